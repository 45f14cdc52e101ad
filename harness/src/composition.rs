//! Compositions as command lines spell them: `l1`, `l2:kv8`, `l2:kv4g32,after-forward,stock`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::case::{Convert, Route};

/// How one model computes its answer, in a form that fits in an argument. `case::Composition` says the
/// same of a case, layer by layer.
///
/// ```text
/// l1                                   plain keys and values and no kernel, as mlx-lm
/// l2:kvBITS[gGROUP][,WHEN][,ROUTE]     every cache that can be is packed, as mlx-optiq; kernels that are
///                                      promoted and claim exactness
///     WHEN   empty (default) | after-forward | from-step=N
///     ROUTE  tiled (default for 4 and 8 bits) | tiled-prefill | stock
/// l3[:kvBITS…]                         rows as either, and every kernel that is promoted
/// …+ID=off|promoted|on|mutant:NAME[@CALLS]   any of these with the lever of a kernel elsewhere
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Spelled {
    /// Which kernels may be on.
    pub tier: Tier,
    /// How rows are packed; plain where absent.
    pub packed: Option<Packed>,
    /// Levers beside the tier's: `ID=POSITION`, separated by commas.
    pub levers: String,
}

/// The preset of kernels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tier {
    /// None.
    #[default]
    L1,
    /// Promoted exact ones.
    L2,
    /// All promoted ones.
    L3,
}

/// Packed keys and values, the same for every layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packed {
    /// Bits of an element: 2, 3, 4, 5, 6 or 8.
    pub bits: u32,
    /// Elements that share a scale and a bias; absent, the first of 64 and 32 that divides the model's
    /// head.
    pub group: Option<u32>,
    /// When plain caches become packed ones.
    pub convert: Convert,
    /// The route of attention.
    pub attention: Route,
}

/// A composition that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpellingError {
    /// It is none of those there are.
    #[error(
        "composition `{found}`: {why}; wanted l1, l3, or \
         l2|l3:kvBITS[gGROUP][,empty|after-forward|from-step=N][,stock|tiled|tiled-prefill], \
         with +KERNEL=off|promoted|on for levers"
    )]
    Unknown {
        /// What was given.
        found: String,
        /// What is wrong with it.
        why: String,
    },
}

impl FromStr for Spelled {
    type Err = SpellingError;

    fn from_str(text: &str) -> Result<Self, SpellingError> {
        let unknown = |why: String| SpellingError::Unknown { found: text.to_owned(), why };
        let mut parts = text.split('+');
        let base = parts.next().unwrap_or_default();
        let levers = parts.map(lever).collect::<Result<Vec<_>, _>>().map_err(unknown)?.join(",");
        let (tier, rows) = match base.split_once(':') {
            None => (base, None),
            Some((tier, rows)) => (tier, Some(rows)),
        };
        let tier = match (tier, rows) {
            ("l1", None) => Tier::L1,
            ("l2", Some(_)) => Tier::L2,
            ("l3", _) => Tier::L3,
            _ => return Err(unknown("neither l1, l2:… nor l3".to_owned())),
        };
        let packed = rows.map(packed).transpose().map_err(unknown)?;
        Ok(Self { tier, packed, levers })
    }
}

/// `fused_swiglu=on`; whether there is such a kernel is for the engine to say.
fn lever(text: &str) -> Result<&str, String> {
    match text.split_once('=') {
        Some((id, position)) if !id.is_empty() && !position.is_empty() && !text.contains(',') => {
            Ok(text)
        }
        _ => Err(format!("`+{text}` is no lever such as +fused_swiglu=on")),
    }
}

/// `kv4g32,after-forward,stock`.
fn packed(rest: &str) -> Result<Packed, String> {
    let mut parts = rest.split(',');
    let (bits, group) = packing(parts.next().unwrap_or_default())?;
    let (mut convert, mut route) = (None, None);
    for part in parts {
        let again = match (when(part), self::route(part)) {
            (Some(when), _) => convert.replace(when).is_some(),
            (None, Some(kind)) => route.replace(kind).is_some(),
            (None, None) => return Err(format!("`{part}` is unknown")),
        };
        if again {
            return Err(format!("`{part}` comes after another of its kind"));
        }
    }
    let tiles = matches!(bits, 4 | 8);
    let attention = route.unwrap_or(if tiles { Route::Tiled } else { Route::Stock });
    if attention != Route::Stock && !tiles {
        return Err(format!("mlx-optiq attends to {bits} bits without tiles"));
    }
    Ok(Packed { bits, group, convert: convert.unwrap_or(Convert::Empty), attention })
}

/// `kv4g32`.
fn packing(text: &str) -> Result<(u32, Option<u32>), String> {
    let wrong = || format!("`{text}` is no packing such as kv8 or kv4g32");
    let digits = text.strip_prefix("kv").ok_or_else(wrong)?;
    let (bits, group) = digits.split_once('g').map_or((digits, None), |(b, g)| (b, Some(g)));
    let bits = bits.parse().map_err(|_| wrong())?;
    let group = group.map(str::parse).transpose().map_err(|_| wrong())?;
    if !matches!(bits, 2..=6 | 8) || !matches!(group, None | Some(32 | 64 | 128)) {
        return Err(format!("MLX has no packing `{text}`: bits 2 to 6 or 8, groups 32, 64 or 128"));
    }
    Ok((bits, group))
}

fn when(text: &str) -> Option<Convert> {
    match text {
        "empty" => Some(Convert::Empty),
        "after-forward" => Some(Convert::AfterForward),
        _ => match text.strip_prefix("from-step=")?.parse() {
            Ok(0) | Err(_) => None,
            Ok(step) => Some(Convert::FromStep(step)),
        },
    }
}

fn route(text: &str) -> Option<Route> {
    match text {
        "stock" => Some(Route::Stock),
        "tiled" => Some(Route::Tiled),
        "tiled-prefill" => Some(Route::TiledPrefill),
        _ => None,
    }
}

impl fmt::Display for Spelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.tier {
            Tier::L1 => "l1",
            Tier::L2 => "l2",
            Tier::L3 => "l3",
        })?;
        if let Some(packed) = &self.packed {
            write!(f, ":{packed}")?;
        }
        let mut levers = self.levers.split(',').filter(|lever| !lever.is_empty());
        levers.try_for_each(|lever| write!(f, "+{lever}"))
    }
}

impl fmt::Display for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bits, group, convert, attention } = self;
        write!(f, "kv{bits}")?;
        if let Some(group) = group {
            write!(f, "g{group}")?;
        }
        match convert {
            Convert::Empty => f.write_str(",empty")?,
            Convert::AfterForward => f.write_str(",after-forward")?,
            Convert::FromStep(step) => write!(f, ",from-step={step}")?,
        }
        f.write_str(match attention {
            Route::Stock => ",stock",
            Route::Tiled => ",tiled",
            Route::TiledPrefill => ",tiled-prefill",
        })
    }
}

impl TryFrom<String> for Spelled {
    type Error = SpellingError;

    fn try_from(text: String) -> Result<Self, SpellingError> {
        text.parse()
    }
}

impl From<Spelled> for String {
    fn from(spelled: Spelled) -> Self {
        spelled.to_string()
    }
}

/// Refuses levers in the environment (`MLX_PARITY_KERNELS`) that do not exist.
///
/// # Errors
/// What the engine says to them.
pub fn check_environment() -> Result<(), String> {
    #[cfg(feature = "engine")]
    policy(&Spelled::default()).map_err(|error| format!("MLX_PARITY_KERNELS: {error}"))?;
    Ok(())
}

#[cfg(feature = "engine")]
pub use engine::{decoder, policy};

#[cfg(feature = "engine")]
mod engine {
    use mlx_parity_engine::{
        Composition, Convert, DEFAULT_PREFILL_STEP_SIZE, Decoder, EngineError, KvBits, Lora, Model,
        Route, kernels::Policy,
    };

    use super::{Packed, Spelled, Tier};
    use crate::case;

    /// mlx-lm's `--kv-group-size`, and what is left for heads that it does not divide.
    const GROUP: i32 = 64;
    const NARROW_GROUP: i32 = 32;

    /// A decoder at the start of a sequence that computes so.
    ///
    /// # Errors
    /// What the engine says to a composition that the model cannot carry, or to a lever.
    pub fn decoder<'m>(model: &'m Model, spelled: &Spelled) -> Result<Decoder<'m>, EngineError> {
        let kernels = policy(spelled)?;
        let with = |composition: Composition| {
            let composition = Composition { kernels: kernels.clone(), ..composition };
            Decoder::with(model, DEFAULT_PREFILL_STEP_SIZE, &composition)
        };
        let Some(packed) = &spelled.packed else { return with(Composition::l1()) };
        let grouped = |group: i32| with(composition(model, packed, group));
        match packed.group {
            Some(group) => grouped(group as i32),
            None => grouped(GROUP).or_else(|error| grouped(NARROW_GROUP).map_err(|_| error)),
        }
    }

    /// The levers of a composition.
    ///
    /// # Errors
    /// [`EngineError::Lever`] for one that does not exist, in the spelling or in the environment.
    pub fn policy(spelled: &Spelled) -> Result<Policy, EngineError> {
        let preset = match spelled.tier {
            Tier::L1 => Policy::l1(),
            Tier::L2 => Policy::l2(),
            Tier::L3 => Policy::l3(),
        };
        preset.with(&spelled.levers)?.with_environment()
    }

    fn composition(model: &Model, packed: &Packed, group: i32) -> Composition {
        let bits = KvBits { bits: packed.bits as i32, group };
        Composition {
            convert: match packed.convert {
                case::Convert::Empty => Convert::Empty,
                case::Convert::AfterForward => Convert::AfterForward,
                case::Convert::FromStep(step) => Convert::FromStep(step),
            },
            attention: match packed.attention {
                case::Route::Stock => Route::Stock,
                case::Route::TiledPrefill => Route::TiledPrefill,
                case::Route::Tiled => Route::Tiled,
            },
            lora: Lora::Cast,
            ..Composition::uniform(model, bits)
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("l1", "l1")]
    #[case("l2:kv8", "l2:kv8,empty,tiled")]
    #[case("l2:kv4g32,stock", "l2:kv4g32,empty,stock")]
    #[case("l2:kv3", "l2:kv3,empty,stock")]
    #[case("l2:kv8g64,from-step=40,tiled-prefill", "l2:kv8g64,from-step=40,tiled-prefill")]
    #[case("l2:kv8,stock,after-forward", "l2:kv8,after-forward,stock")]
    #[case("l3", "l3")]
    #[case("l3:kv4", "l3:kv4,empty,tiled")]
    #[case("l1+fused_swiglu=on", "l1+fused_swiglu=on")]
    #[case("l2:kv8+a=on@3+b=mutant:c", "l2:kv8,empty,tiled+a=on@3+b=mutant:c")]
    fn a_spelling_has_one_full_form(#[case] text: &str, #[case] full: &str) {
        let spelled: Spelled = text.parse().unwrap();
        assert_eq!(spelled.to_string(), full);
        assert_eq!(full.parse(), Ok(spelled));
    }

    #[rstest]
    #[case::empty("", "neither l1")]
    #[case::another_case("L1", "neither l1")]
    #[case::no_packing("l2:", "no packing")]
    #[case::no_bits("l2:kv", "no packing")]
    #[case::bits("l2:kv7", "bits 2 to 6 or 8")]
    #[case::group("l2:kv8g48", "groups 32, 64 or 128")]
    #[case::step("l2:kv8,from-step=0", "`from-step=0` is unknown")]
    #[case::twice("l2:kv8,stock,tiled", "after another of its kind")]
    #[case::tiles("l2:kv3,tiled", "3 bits without tiles")]
    #[case::l2("l2", "neither l1")]
    #[case::packed_l1("l1:kv8", "neither l1")]
    #[case::l3("l3:fused", "no packing")]
    #[case::lever("l1+fused_swiglu", "no lever")]
    #[case::two_levers("l1+a=on,b=on", "no lever")]
    fn what_is_none_says_why(#[case] text: &str, #[case] wanted: &str) {
        let error = text.parse::<Spelled>().unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}
