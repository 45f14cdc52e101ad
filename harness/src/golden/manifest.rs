//! The manifest of a golden: who answered, where, from which weights, in which composition.

use std::collections::BTreeMap;

use mlx_parity_tensor::Dtype;
use serde::{Deserialize, Serialize};

use crate::{
    case::{self, Convert, Kv, LayerPacking, Lora, Packing, Route},
    fingerprint::Fingerprint,
};

/// Version of the golden format; a reader refuses any other.
pub const GOLDEN_SCHEMA: u32 = 1;

/// Which oracle, in which version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OracleVersion {
    /// `mlx-lm`.
    pub name: String,
    /// Versions of it and of what it stands on, by package.
    pub packages: BTreeMap<String, String>,
}

/// How an answer was computed. Answers of different compositions are never compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Composition {
    /// Cache class of each layer, `plain`, `rotating(32)`.
    pub cache: Vec<String>,
    /// Prompt tokens per prefill call; the last one goes alone.
    pub prefill_step: usize,
    /// Rows per forward.
    pub batch: usize,
    /// Attention route, `mx.fast.scaled_dot_product_attention`.
    pub attention: String,
    /// Fused kernels in use, by lever.
    pub kernels: Vec<String>,
    /// When caches were quantized, `from step 40`, where some were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversion: Option<String>,
    /// How an adapter was mounted, where not as mlx-lm mounts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// How canvases were denoised, for a diffusion model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denoising: Option<Denoising>,
}

impl Composition {
    /// How it is another one than a case asks for, if it is.
    pub fn unasked(&self, asked: Option<&case::Composition>) -> Option<String> {
        let differs = |what: &str, found: &str, wanted: &str| {
            (found != wanted).then(|| format!("{what} `{found}`, the case asks for `{wanted}`"))
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        let convert = asked.and_then(|asked| asked.convert).map_or("none".to_owned(), conversion);
        let uncast = asked.is_some_and(|asked| asked.lora == Lora::Uncast);
        let adapter = if uncast { "mounted without a cast" } else { "none" };
        let packed = self.cache.iter().map(|cache| packing(cache)).collect::<Vec<_>>().join(", ");
        differs("conversion", &text(&self.conversion), &convert)
            .or_else(|| differs("adapter", &text(&self.adapter), adapter))
            .or_else(|| differs("route of attention", self.route(), route(asked)))
            .or_else(|| differs("caches", &packed, &self.wanted_packing(asked)))
    }

    fn route(&self) -> &str {
        match (self.attention.starts_with("tiled("), self.attention.contains("stock at L = 1")) {
            (false, _) => "whole",
            (true, true) => "tiled prefill",
            (true, false) => "tiled",
        }
    }

    /// The packing that a case asks for of each cache of this composition that can be packed.
    fn wanted_packing(&self, asked: Option<&case::Composition>) -> String {
        let kv = asked.and_then(|asked| asked.kv.as_ref());
        let wanted = |(at, cache): (usize, &String)| match kv {
            _ if cache.starts_with("arrays(") => "plain".to_owned(),
            None => "plain".to_owned(),
            Some(Kv::All(Packing { bits, group })) => packed_text(*bits, *group),
            Some(Kv::Layers(layers)) => {
                let of = layers.iter().find(|entry| entry.layer == at);
                of.map_or("plain".to_owned(), |LayerPacking { bits, group, .. }| {
                    packed_text(*bits, *group)
                })
            }
        };
        self.cache.iter().enumerate().map(wanted).collect::<Vec<_>>().join(", ")
    }
}

fn packed_text(bits: u32, group: u32) -> String {
    format!("quantized({bits} bits, group {group})")
}

/// The packing in the description of a cache.
fn packing(cache: &str) -> &str {
    cache.find("quantized(").map_or("plain", |at| &cache[at..])
}

fn conversion(convert: Convert) -> String {
    match convert {
        Convert::Empty => "from empty".to_owned(),
        Convert::AfterForward => "after the first forward".to_owned(),
        Convert::FromStep(step) => format!("from step {step}"),
    }
}

fn route(asked: Option<&case::Composition>) -> &'static str {
    match asked.map(|asked| asked.attention).unwrap_or_default() {
        Route::Stock => "whole",
        Route::TiledPrefill => "tiled prefill",
        Route::Tiled => "tiled",
    }
}

/// How canvases were denoised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Denoising {
    /// The sampler with its bound, `entropy-bound(0.1)`.
    pub sampler: String,
    /// Temperature of the samples, `0.7`.
    pub temperature: String,
    /// Tokens of each canvas.
    pub canvases: Vec<usize>,
    /// Steps each canvas took.
    pub steps: Vec<usize>,
}

/// One frozen tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorEntry {
    /// Element type.
    pub dtype: Dtype,
    /// Shape.
    pub shape: Vec<usize>,
    /// Digest as [`mlx_parity_tensor::HostTensor::digest`] gives it.
    pub digest: String,
}

/// The manifest, `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Manifest {
    /// [`GOLDEN_SCHEMA`].
    pub schema: u32,
    /// Id of the case.
    pub case: String,
    /// Digest of the case, [`crate::case::Case::digest`].
    pub case_digest: String,
    /// The oracle.
    pub oracle: OracleVersion,
    /// Where it answered.
    pub fingerprint: Fingerprint,
    /// Digest of the weights it answered from.
    pub weights: String,
    /// Digest of the model's `config.json`.
    pub config: String,
    /// How it computed.
    pub composition: Composition,
    /// Prompt ids.
    pub prompt: Vec<u32>,
    /// Ids of the decode steps, chosen greedily or taken from the prompt; the engine replays them. Of
    /// denoised canvases, the ids they came to.
    pub steps: Vec<u32>,
    /// What the answer holds: distinct tokens, margins, entropy.
    pub strength: serde_json::Value,
    /// The tensors, by name.
    pub tensors: BTreeMap<String, TensorEntry>,
    /// The command that made it.
    pub command: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described() -> Composition {
        Composition {
            cache: vec!["rotating(16), quantized(8 bits, group 32)".to_owned(), "plain".to_owned()],
            prefill_step: 8,
            batch: 1,
            attention: "tiled(512) for L > 1, stock at L = 1, 1 tile at most".to_owned(),
            kernels: Vec::new(),
            conversion: Some("from empty".to_owned()),
            adapter: None,
            denoising: None,
        }
    }

    fn asked() -> case::Composition {
        case::Composition {
            kv: Some(Kv::Layers(vec![LayerPacking { layer: 0, bits: 8, group: 32 }])),
            convert: Some(Convert::Empty),
            attention: Route::TiledPrefill,
            lora: Lora::Cast,
        }
    }

    #[test]
    fn an_answer_in_another_composition_is_told_from_the_one_that_was_asked_for() {
        assert_eq!(described().unasked(Some(&asked())), None);
        assert_eq!(
            described().unasked(None).as_deref().map(|text| &text[..10]),
            Some("conversion")
        );
        let all = Kv::All(Packing { bits: 8, group: 32 });
        let fewer = Kv::Layers(vec![LayerPacking { layer: 0, bits: 4, group: 32 }]);
        for other in [
            case::Composition { kv: Some(all), ..asked() },
            case::Composition { kv: Some(fewer), ..asked() },
            case::Composition { convert: Some(Convert::FromStep(3)), ..asked() },
            case::Composition { attention: Route::Tiled, ..asked() },
            case::Composition { attention: Route::Stock, ..asked() },
            case::Composition { lora: Lora::Uncast, ..asked() },
        ] {
            assert!(described().unasked(Some(&other)).is_some(), "{other}");
        }
    }
}
