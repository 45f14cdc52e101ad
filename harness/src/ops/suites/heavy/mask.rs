//! Masks of attention as operands, and what they say to the reference.
//!
//! Argument `mask`: `"none"`; `"causal"`; `"bool"` (random, `[queries, keys]`, every query sees its
//! own key); `"padding"` (bool, `[batch, 1, 1, keys]`, item i hides its last 3(i+1) keys);
//! `"window"` (bool, causal and `window` keys wide, as mlx-lm makes it); `"additive"` (numbers, a
//! fifth of them −inf); `"per-head"` (the same, `[batch, heads, queries, keys]`); `"dead-bool"`,
//! `"dead-additive"` (the first query sees nothing).

#[cfg(feature = "engine")]
use mlx_parity_engine::{Array, ops::ScoreMask};
use mlx_parity_oracles::ops::{Attention, CausalAlignment, DeadRows, Mask};
use mlx_parity_oracles::{BoolTensor, Tensor64};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::operand;
use crate::ops::{Call, Source, SuiteError};

/// Extents of an attention call.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Items.
    pub batch: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Queries.
    pub queries: usize,
    /// Keys.
    pub keys: usize,
    /// Width of a head.
    pub dim: usize,
}

impl Sizes {
    /// From `batch` (1), `heads`, `kv_heads` (as heads), `queries`, `keys`, `dim`.
    pub fn of(call: &Call) -> Result<Self, SuiteError> {
        let heads = call.size("heads")?;
        Ok(Self {
            batch: call.size_or("batch", 1)?,
            heads,
            kv_heads: call.size_or("kv_heads", heads)?,
            queries: call.size("queries")?,
            keys: call.size("keys")?,
            dim: call.size("dim")?,
        })
    }

    /// Position of a query among the keys, bottom-right aligned; where there are more queries than
    /// keys the first stand before all keys.
    pub fn position(&self, query: usize) -> Option<usize> {
        (query + self.keys).checked_sub(self.queries)
    }
}

/// The kind of mask a call has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No mask.
    None,
    /// The engine's own causal mask.
    Causal,
    /// Booleans as an operand.
    Bool,
    /// Numbers as an operand.
    Additive,
}

/// The kind of a call's mask.
pub fn kind(call: &Call) -> Result<Kind, SuiteError> {
    Ok(match call.text_or("mask", "none")? {
        "none" => Kind::None,
        "causal" => Kind::Causal,
        "bool" | "padding" | "window" | "dead-bool" => Kind::Bool,
        "additive" | "per-head" | "dead-additive" => Kind::Additive,
        _ => {
            let wanted = "a mask that the suite's documentation names";
            return Err(call.wrong("mask", wanted).into());
        }
    })
}

/// The mask operand, where there is one.
pub fn make(
    call: &Call,
    source: &mut Source,
    sizes: &Sizes,
) -> Result<Option<HostTensor>, SuiteError> {
    let name = call.text_or("mask", "none")?;
    Ok(match kind(call)? {
        Kind::None | Kind::Causal => None,
        Kind::Bool if name == "padding" => Some(padding(sizes)?),
        Kind::Bool => {
            let shown = match name {
                "window" => window(sizes, call.size("window")?),
                _ => random(source, sizes, name == "dead-bool"),
            };
            let shown = shown.into_iter().map(u8::from).collect();
            Some(HostTensor::new(Dtype::Bool, [sizes.queries, sizes.keys], shown)?)
        }
        Kind::Additive => Some(additive(call, source, sizes, name)?),
    })
}

fn random(source: &mut Source, sizes: &Sizes, dead: bool) -> Vec<bool> {
    let mut shown = Vec::with_capacity(sizes.queries * sizes.keys);
    for query in 0..sizes.queries {
        let own = sizes.position(query).unwrap_or(0);
        shown.extend((0..sizes.keys).map(|key| {
            let chance = source.below(4) != 0;
            !(dead && query == 0) && (chance || key == own)
        }));
    }
    shown
}

/// As `mlx_lm.models.base.create_causal_mask` makes it: a query sees itself and `width − 1` keys
/// before it.
fn window(sizes: &Sizes, width: usize) -> Vec<bool> {
    let seen = |i: usize| {
        let (query, key) = (i / sizes.keys, i % sizes.keys);
        sizes.position(query).is_some_and(|own| key <= own && own < key + width)
    };
    (0..sizes.queries * sizes.keys).map(seen).collect()
}

fn padding(sizes: &Sizes) -> Result<HostTensor, SuiteError> {
    let shown = |i: usize| {
        let (item, key) = (i / sizes.keys, i % sizes.keys);
        u8::from(key + 3 * (item + 1) < sizes.keys || key == 0)
    };
    let bytes = (0..sizes.batch * sizes.keys).map(shown).collect();
    Ok(HostTensor::new(Dtype::Bool, [sizes.batch, 1, 1, sizes.keys], bytes)?)
}

fn additive(
    call: &Call,
    source: &mut Source,
    sizes: &Sizes,
    name: &str,
) -> Result<HostTensor, SuiteError> {
    let heads = if name == "per-head" { vec![sizes.batch, sizes.heads] } else { Vec::new() };
    let rows = heads.iter().product::<usize>() * sizes.queries;
    let mut values = Vec::with_capacity(rows * sizes.keys);
    for row in 0..rows {
        let query = row % sizes.queries;
        let (own, dead) = (sizes.position(query).unwrap_or(0), name == "dead-additive");
        values.extend((0..sizes.keys).map(|key| {
            let hidden = source.below(5) == 0 && key != own;
            let value = source.bell();
            if hidden || (dead && query == 0) { f64::NEG_INFINITY } else { value }
        }));
    }
    let shape = operand::shape(&heads, &[sizes.queries, sizes.keys]);
    operand::rounded(call.dtype, &Tensor64::new(shape, values)?)
}

/// A mask operand as the reference takes it.
pub struct Wide {
    kind: Kind,
    shown: Option<BoolTensor>,
    added: Option<Tensor64>,
}

impl Wide {
    /// Reads the operand.
    pub fn of(call: &Call, operand: Option<&HostTensor>) -> Result<Self, SuiteError> {
        let kind = kind(call)?;
        let (mut shown, mut added) = (None, None);
        match (kind, operand) {
            (Kind::Bool, Some(mask)) => shown = Some(BoolTensor::from_host(mask)?),
            (Kind::Additive, Some(mask)) => added = Some(operand::wide(mask)),
            _ => {}
        }
        Ok(Self { kind, shown, added })
    }

    /// The mask in MLX's convention.
    pub fn mask(&self) -> Mask<'_> {
        match (&self.shown, &self.added) {
            (Some(shown), _) => Mask::Bool(shown),
            (_, Some(added)) => Mask::Additive(added),
            _ if self.kind == Kind::Causal => Mask::Causal(CausalAlignment::BottomRight),
            _ => Mask::None,
        }
    }

    /// The other tensors that a mistaken reading takes this mask for.
    pub fn misread(&self) -> Misread {
        Misread {
            added: self.shown.as_ref().map(|mask| mask.map(|shown| f64::from(u8::from(shown)))),
            inverted: self.shown.as_ref().map(|mask| mask.map(|shown| !shown)),
            shown: self.added.as_ref().map(|mask| mask.map(|value| value != 0.0)),
        }
    }
}

/// A mask under the mistaken readings.
pub struct Misread {
    /// Booleans added as zeros and ones.
    pub added: Option<Tensor64>,
    /// Booleans with their sense inverted.
    pub inverted: Option<BoolTensor>,
    /// Numbers read as booleans.
    pub shown: Option<BoolTensor>,
}

/// An attention of the call's scale; a query that sees no key answers as MLX's composed path does.
pub fn attention<'a>(call: &Call, dim: usize, mask: Mask<'a>) -> Result<Attention<'a>, SuiteError> {
    Ok(Attention::new(f64::from(scale(call, dim)?), mask))
}

/// The `scale` of a call: 1/√dim unless given.
pub fn scale(call: &Call, dim: usize) -> Result<f32, SuiteError> {
    Ok(call.float_or("scale", 1.0 / (dim as f64).sqrt())? as f32)
}

/// Every convention that the mask of a call can be mistaken for.
pub fn mistaken<'a>(
    call: &Call,
    sizes: &Sizes,
    misread: &'a Misread,
) -> Result<Vec<(mlx_parity_oracles::Convention, Attention<'a>)>, SuiteError> {
    use mlx_parity_oracles::Convention;
    let plain = |mask| attention(call, sizes.dim, mask);
    let mut found = Vec::new();
    if let Some(mask) = &misread.added {
        found.push((Convention::MaskAdded, plain(Mask::Additive(mask))?));
    }
    if let Some(mask) = &misread.inverted {
        found.push((Convention::MaskInverted, plain(Mask::Bool(mask))?));
    }
    if let Some(mask) = &misread.shown {
        found.push((Convention::MaskAsBoolean, plain(Mask::Bool(mask))?));
    }
    let name = call.text_or("mask", "none")?;
    if name == "causal" {
        found.push((Convention::CausalTopLeft, plain(Mask::Causal(CausalAlignment::TopLeft))?));
    }
    if name == "window" {
        let width = call.size("window")?;
        let causal = plain(Mask::Causal(CausalAlignment::BottomRight))?;
        let wide = |window| Attention { window: Some(window), dead_rows: DeadRows::Mean, ..causal };
        found.push((Convention::WindowPlusOne, wide(width + 1)));
        found.push((Convention::WindowMinusOne, wide(width - 1)));
    }
    Ok(found)
}

/// Keys that no query of an item may see: what lies in them must not matter.
pub fn unseen(
    call: &Call,
    sizes: &Sizes,
    mask: Option<&HostTensor>,
) -> Result<Vec<(usize, usize)>, SuiteError> {
    let wide = Wide::of(call, mask)?;
    let full = [sizes.batch, 1, sizes.queries, sizes.keys];
    let hidden = match wide.mask() {
        Mask::Bool(shown) => shown.broadcast_to(&full)?.map(|shown| !shown),
        Mask::Additive(added) => added.broadcast_to(&full)?.map(|v| v == f64::NEG_INFINITY),
        _ => return Ok(Vec::new()),
    };
    let never = |item: usize, key: usize| {
        let rows = hidden.data()[item * sizes.queries * sizes.keys..].chunks(sizes.keys);
        rows.take(sizes.queries).all(|row| row[key])
    };
    let all = (0..sizes.batch).flat_map(|item| (0..sizes.keys).map(move |key| (item, key)));
    Ok(all.filter(|&(item, key)| never(item, key)).collect())
}

/// The mask of a call from the operands that start with it, and the operands after it.
#[cfg(feature = "engine")]
pub fn engine<'a>(
    call: &Call,
    operands: &'a [Array],
) -> Result<(ScoreMask<'a>, &'a [Array]), SuiteError> {
    Ok(match (kind(call)?, operands) {
        (Kind::Bool | Kind::Additive, [mask, rest @ ..]) => (ScoreMask::Array(mask), rest),
        (Kind::Causal, rest) => (ScoreMask::Causal, rest),
        (_, rest) => (ScoreMask::None, rest),
    })
}

#[cfg(test)]
mod tests {
    use mlx_parity_oracles::ops::sdpa;

    use super::*;

    const SIZES: Sizes = Sizes { batch: 1, heads: 1, kv_heads: 1, queries: 3, keys: 6, dim: 2 };

    #[test]
    fn the_window_operand_is_the_references_window() {
        let wave = |pitch: f64, rows: usize| {
            let values = (0..rows * 2).map(|i| (i as f64 * pitch).sin()).collect();
            Tensor64::new([1, 1, rows, 2], values).unwrap()
        };
        let (q, k, v) = (wave(0.7, 3), wave(0.3, 6), wave(1.1, 6));
        let shown = BoolTensor::new([3, 6], window(&SIZES, 2)).unwrap();
        let causal = Attention::new(0.5, Mask::Causal(CausalAlignment::BottomRight));
        let by_window = sdpa(&q, &k, &v, &Attention { window: Some(2), ..causal }).unwrap();
        let by_mask = sdpa(&q, &k, &v, &Attention::new(0.5, Mask::Bool(&shown))).unwrap();
        assert_eq!(by_window, by_mask);
    }

    #[test]
    fn random_masks_leave_no_query_blind_unless_asked() {
        let blind = |dead| {
            let shown = random(&mut Source::new(3), &SIZES, dead);
            shown.chunks(6).map(|row| row.iter().all(|shown| !shown)).collect::<Vec<_>>()
        };
        assert_eq!(blind(false), [false, false, false]);
        assert_eq!(blind(true), [true, false, false]);
    }
}
