//! The composition that a case asks for: how keys and values are kept, and how they are attended to.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Everything mlx-optiq lets vary between two answers of one model to one prompt (tier L2). Absent, a
/// replay is computed as mlx-lm computes it by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Composition {
    /// Which caches hold packed keys and values; absent, none does.
    pub kv: Option<Kv>,
    /// When they become such caches; there where `kv` is.
    pub convert: Option<Convert>,
    /// The route of attention over packed keys and values.
    #[serde(default)]
    pub attention: Route,
    /// What the residual of an adapter is cast to.
    #[serde(default)]
    pub lora: Lora,
}

/// The caches that hold packed keys and values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Kv {
    /// Every cache that can: `optiq serve --kv-bits`.
    All(Packing),
    /// Those of some layers, counted over the layers that own a cache: `optiq serve --kv-config`.
    Layers(Vec<LayerPacking>),
}

/// How rows of keys and values are packed: affine, groups along the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packing {
    /// Bits of an element: 2, 3, 4, 5, 6 or 8.
    pub bits: u32,
    /// Elements that share a scale and a bias: 32, 64 or 128.
    pub group: u32,
}

/// The packing of one layer's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerPacking {
    /// The layer.
    pub layer: usize,
    /// As in [`Packing`].
    pub bits: u32,
    /// As in [`Packing`].
    pub group: u32,
}

/// When plain caches become packed ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Convert {
    /// Before the first token.
    Empty,
    /// Behind the first model call.
    AfterForward,
    /// Behind the first model call at whose end a cache holds this many tokens (mlx-lm's
    /// `quantized_kv_start`).
    FromStep(usize),
}

/// The route of attention over packed keys and values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// mlx-lm's, over all keys at once.
    #[default]
    Stock,
    /// mlx-optiq's, tile by tile, in calls of more than one token.
    TiledPrefill,
    /// mlx-optiq's in every call, as its own wrapper has it.
    Tiled,
}

/// The residual of a LoRA adapter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lora {
    /// Cast to the dtype of what it is added to, as mlx-lm mounts adapters.
    #[default]
    Cast,
    /// Not cast, as mlx-optiq mounts them: f32 adapters make f32 of what follows.
    Uncast,
}

impl Composition {
    /// What is wrong with it, if something is.
    pub fn fault(&self) -> Option<String> {
        if self.kv.is_some() != self.convert.is_some() {
            return Some("`kv` and `convert` come together".to_owned());
        }
        if self.convert == Some(Convert::FromStep(0)) {
            return Some("from-step = 0 is `after-forward`".to_owned());
        }
        if self.kv.is_none() && self.lora == Lora::Cast {
            return Some("this composition is mlx-lm's own, which tier l1 is held to".to_owned());
        }
        if self.kv.is_none() && self.attention != Route::Stock {
            return Some("only packed keys and values are attended to in tiles".to_owned());
        }
        if let Some(Kv::Layers(layers)) = &self.kv
            && (layers.is_empty() || !layers.is_sorted_by(|a, b| a.layer < b.layer))
        {
            return Some("`layers` names no layer, or not in order and each once".to_owned());
        }
        self.packings().into_iter().find_map(|packing| self.unfit(packing))
    }

    fn unfit(&self, Packing { bits, group }: Packing) -> Option<String> {
        if !matches!(bits, 2..=6 | 8) || !matches!(group, 32 | 64 | 128) {
            return Some(format!("{bits} bits in groups of {group}: MLX packs no such rows"));
        }
        let tiled = self.attention != Route::Stock;
        (tiled && !matches!(bits, 4 | 8))
            .then(|| format!("mlx-optiq attends to {bits} bits without tiles"))
    }

    /// Every packing in it.
    fn packings(&self) -> Vec<Packing> {
        match &self.kv {
            None => Vec::new(),
            Some(Kv::All(packing)) => vec![*packing],
            Some(Kv::Layers(layers)) => layers
                .iter()
                .map(|&LayerPacking { bits, group, .. }| Packing { bits, group })
                .collect(),
        }
    }
}

/// `kv8 g32 from empty, tiled`.
impl fmt::Display for Composition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kv {
            None => f.write_str("plain kv")?,
            Some(Kv::All(Packing { bits, group })) => write!(f, "kv{bits} g{group}")?,
            Some(Kv::Layers(layers)) => {
                f.write_str("kv")?;
                for LayerPacking { layer, bits, group } in layers {
                    write!(f, " {layer}:{bits}g{group}")?;
                }
            }
        }
        match self.convert {
            None => {}
            Some(Convert::Empty) => f.write_str(" from empty")?,
            Some(Convert::AfterForward) => f.write_str(" after forward")?,
            Some(Convert::FromStep(step)) => write!(f, " from step {step}")?,
        }
        f.write_str(match self.attention {
            Route::Stock => "",
            Route::TiledPrefill => ", tiled prefill",
            Route::Tiled => ", tiled",
        })?;
        f.write_str(if self.lora == Lora::Uncast { ", lora uncast" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn read(text: &str) -> Composition {
        toml::from_str(text).unwrap()
    }

    #[rstest]
    #[case::all("kv.all = { bits = 8, group = 32 }\nconvert = 'empty'", "kv8 g32 from empty")]
    #[case::tiled(
        "kv.all = { bits = 4, group = 64 }\nconvert = 'after-forward'\nattention = 'tiled-prefill'",
        "kv4 g64 after forward, tiled prefill"
    )]
    #[case::layers(
        "kv.layers = [{ layer = 0, bits = 4, group = 32 }, { layer = 2, bits = 8, group = 32 }]\n\
         convert = { from-step = 40 }\nattention = 'tiled'",
        "kv 0:4g32 2:8g32 from step 40, tiled"
    )]
    #[case::lora("lora = 'uncast'", "plain kv, lora uncast")]
    fn a_composition_has_a_text_of_its_own(#[case] text: &str, #[case] wanted: &str) {
        let composition = read(text);
        assert_eq!(composition.to_string(), wanted);
        assert_eq!(composition.fault(), None);
    }

    #[rstest]
    #[case::nothing("", "tier l1")]
    #[case::no_time("kv.all = { bits = 8, group = 32 }", "come together")]
    #[case::no_kv("convert = 'empty'\nlora = 'uncast'", "come together")]
    #[case::step("kv.all = { bits = 8, group = 32 }\nconvert = { from-step = 0 }", "after-forward")]
    #[case::bits("kv.all = { bits = 7, group = 32 }\nconvert = 'empty'", "7 bits in groups of 32")]
    #[case::group("kv.all = { bits = 8, group = 16 }\nconvert = 'empty'", "groups of 16")]
    #[case::tiles(
        "kv.all = { bits = 3, group = 32 }\nconvert = 'empty'\nattention = 'tiled'",
        "3 bits without tiles"
    )]
    #[case::no_tiles("lora = 'uncast'\nattention = 'tiled'", "only packed keys")]
    #[case::no_layer("kv.layers = []\nconvert = 'empty'", "names no layer")]
    #[case::order(
        "kv.layers = [{ layer = 1, bits = 4, group = 32 }, { layer = 1, bits = 8, group = 32 }]\n\
         convert = 'empty'",
        "in order and each once"
    )]
    fn a_composition_that_is_none_says_why(#[case] text: &str, #[case] wanted: &str) {
        let fault = read(text).fault().unwrap();
        assert!(fault.contains(wanted), "{fault}");
    }
}
