//! `mlx_lm/models/hunyuan_v1_dense.py`. Heads are normed after rope, whose base grows with `alpha`.

use serde::Deserialize;

use super::Arch;
use super::shared::{SILU, all_keys, only_act, yes};
use crate::config::{ConfigFile, Extents, RopeConfig};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, NormKind,
    QkNorm, QkNormKind, QkPlace, Spec,
};
use crate::ops::{Proportional, RopeScaling};

pub(super) const ARCH: Arch = Arch { model_type: "hunyuan_v1_dense", keys, spec };

const EXTENTS: Extents = Extents {
    needs_kv_heads: true,
    defaults: &[("max_position_embeddings", 32_768.0)],
    ..Extents::LLAMA
};

const HEAD_NORMS: QkNorm = QkNorm {
    names: ["query_layernorm", "key_layernorm"],
    place: QkPlace::AfterRope,
    kind: QkNormKind::Shared(NormKind::Rms),
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    rope_theta: Option<f64>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default = "yes")]
    use_qk_norm: bool,
    rope_scaling: Option<WireScaling>,
    #[serde(default)]
    tie_word_embeddings: bool,
    // The reference reads none of the following; they are taken only where they change nothing.
    hidden_act: Option<String>,
    mlp_bias: Option<bool>,
    norm_type: Option<String>,
    num_experts: Option<usize>,
    pretraining_tp: Option<u32>,
    use_cla: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireScaling {
    #[serde(rename = "type")]
    kind: String,
    alpha: f64,
    factor: f64,
    // Of yarn; under an alpha nobody reads them.
    #[serde(rename = "beta_fast")]
    _beta_fast: Option<f64>,
    #[serde(rename = "beta_slow")]
    _beta_slow: Option<f64>,
    #[serde(rename = "mscale")]
    _mscale: Option<f64>,
    #[serde(rename = "mscale_all_dim")]
    _mscale_all_dim: Option<f64>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    refuse_other_maths(file, &wire)?;
    let attention = AttentionSpec {
        input_bias: wire.attention_bias,
        output_bias: wire.attention_bias,
        qk_norm: wire.use_qk_norm.then_some(HEAD_NORMS),
        ..AttentionSpec::new(&dims, rope(file, &wire, dims.head_dim)?)
    };
    let mlp = MlpSpec::gated(dims.intermediate_size, Activation::Silu);
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Dense(mlp));
    let tied = wire.tie_word_embeddings;
    Ok(Spec {
        drops: if tied { vec![Drop::HEAD] } else { vec![] },
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(tied))
    })
}

/// `DynamicNTKAlphaRoPE`: the base times `alpha ** (dims / (dims - 2))`. Its periods are an array, which
/// `mx.fast.rope` rounds otherwise than a base; proportional scaling of the whole head gives the same.
fn rope(file: &ConfigFile, wire: &Wire, head_dim: usize) -> Result<RopeConfig, EngineError> {
    let base = wire.rope_theta.unwrap_or(10_000.0);
    let alpha = wire.rope_scaling.as_ref().map_or(1.0, |scaling| scaling.alpha);
    for (key, number) in [("rope_theta", base), ("rope_scaling.alpha", alpha)] {
        if !(number > 0.0 && number.is_finite()) {
            return Err(file.unsupported(key, number, "a number above 0"));
        }
    }
    if head_dim < 4 {
        return Err(file.unsupported("head_dim", head_dim, "4 or more"));
    }
    let dims = head_dim as f64;
    let whole = Proportional { partial_rotary_factor: 1.0, factor: 1.0 };
    Ok(RopeConfig {
        scaling: RopeScaling::Proportional(whole),
        ..RopeConfig::plain(base * alpha.powf(dims / (dims - 2.0)))
    })
}

fn refuse_other_maths(file: &ConfigFile, wire: &Wire) -> Result<(), EngineError> {
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    file.only("mlp_bias", wire.mlp_bias.as_ref(), &[false])?;
    file.only("norm_type", wire.norm_type.as_ref(), &["rms".into()])?;
    file.only("num_experts", wire.num_experts.as_ref(), &[1])?;
    file.only("pretraining_tp", wire.pretraining_tp.as_ref(), &[1])?;
    file.only("use_cla", wire.use_cla.as_ref(), &[false])?;
    let Some(scaling) = &wire.rope_scaling else { return Ok(()) };
    file.only("rope_scaling.type", Some(&scaling.kind), &["dynamic".into()])?;
    file.only("rope_scaling.factor", Some(&scaling.factor), &[1.0])
}
