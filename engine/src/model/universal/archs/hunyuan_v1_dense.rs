//! `mlx_lm/models/hunyuan_v1_dense.py`. Heads are normed after rope, whose base grows with `alpha`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::layout::{Layout, Ropes, SILU};
use super::shared::{above_zero, yes};
use crate::config::{ConfigFile, Extents, RopeConfig};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, NormKind,
    QkNorm, QkNormKind, QkPlace, Spec,
};
use crate::ops::{Proportional, RopeScaling};

pub(super) const ARCH: Arch = Arch { model_type: "hunyuan_v1_dense", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents {
        needs_kv_heads: true,
        defaults: &[("max_position_embeddings", 32_768.0)],
        ..Extents::LLAMA
    },
    rope: Ropes {
        may_be_traditional: false,
        // Those but `alpha` are of yarn; beside an alpha nobody reads them.
        also: &["alpha", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"],
        ..Ropes::LLAMA
    },
    neutral: &[
        ("hidden_act", SILU),
        ("mlp_bias", "[false]"),
        ("norm_type", r#"["rms"]"#),
        ("num_experts", "[1]"),
        ("pretraining_tp", "[1]"),
        ("use_cla", "[false]"),
    ],
};

const HEAD_NORMS: QkNorm = QkNorm {
    names: ["query_layernorm", "key_layernorm"],
    place: QkPlace::AfterRope,
    kind: QkNormKind::Shared(NormKind::Rms),
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    #[serde(default)]
    attention_bias: bool,
    #[serde(default = "yes")]
    use_qk_norm: bool,
    #[serde(default)]
    tie_word_embeddings: bool,
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    let attention = AttentionSpec {
        input_bias: wire.attention_bias,
        output_bias: wire.attention_bias,
        qk_norm: wire.use_qk_norm.then_some(HEAD_NORMS),
        ..AttentionSpec::new(&dims, by_alpha(file, &rope, dims.head_dim)?)
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
fn by_alpha(
    file: &ConfigFile,
    rope: &RopeConfig,
    head_dim: usize,
) -> Result<RopeConfig, EngineError> {
    let alpha = match rope.scaling {
        RopeScaling::Default => 1.0,
        RopeScaling::Dynamic { factor } => {
            file.only("rope_scaling.factor", Some(&factor), &[1.0])?;
            alpha(file)?
        }
        _ => return Err(file.unsupported("rope_scaling.type", "another scaling", "`dynamic`")),
    };
    if head_dim < 4 {
        return Err(file.unsupported("head_dim", head_dim, "4 or more"));
    }
    let dims = head_dim as f64;
    let whole = Proportional { partial_rotary_factor: 1.0, factor: 1.0 };
    Ok(RopeConfig {
        scaling: RopeScaling::Proportional(whole),
        ..RopeConfig::plain(rope.base * alpha.powf(dims / (dims - 2.0)))
    })
}

/// `alpha` of `rope_scaling`, or of `rope_parameters`, which may only repeat it.
fn alpha(file: &ConfigFile) -> Result<f64, EngineError> {
    let of = |key| file.get(key).and_then(|object| object.get("alpha")).and_then(Value::as_f64);
    let (scaling, parameters) = (of("rope_scaling"), of("rope_parameters"));
    let alpha = scaling.or(parameters).unwrap_or(0.0);
    above_zero(file, "rope_scaling.alpha", alpha)?;
    file.only("rope_parameters.alpha", parameters.as_ref(), &[alpha])?;
    Ok(alpha)
}
