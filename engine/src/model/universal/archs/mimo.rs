//! `mlx_lm/models/mimo.py`. The layers that predict further tokens are dropped.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{SILU, TEN_THOUSAND, all_keys, only_act, rope_of};
use crate::config::{ConfigFile, Extents, HeadDim, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "mimo", keys, spec };

const EXTENTS: Extents = Extents {
    head_dim: HeadDim::Derived,
    needs_kv_heads: true,
    defaults: &[("max_position_embeddings", 32_768.0)],
    ..Extents::LLAMA
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    rope_theta: Option<f64>,
    #[serde(default)]
    rope_traditional: bool,
    rope_scaling: Option<Value>,
    #[serde(default)]
    tie_word_embeddings: bool,
    /// Says how many of the dropped layers there are.
    #[serde(rename = "num_nextn_predict_layers")]
    _num_nextn_predict_layers: Option<usize>,
    // The reference ignores it; here it means what it means to the model's authors.
    rope_parameters: Option<Value>,
    // The reference reads none of the following; they are taken only where they change nothing.
    attention_bias: Option<bool>,
    hidden_act: Option<String>,
    use_sliding_window: Option<bool>,
    sliding_window: Option<usize>,
    #[serde(rename = "max_window_layers")]
    _max_window_layers: Option<usize>,
    use_mrope: Option<bool>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    refuse_other_maths(file, &wire)?;
    let keys = RopeKeys {
        theta: wire.rope_theta,
        default_theta: TEN_THOUSAND,
        max_positions: dims.max_positions,
        traditional: wire.rope_traditional,
        ..RopeKeys::default()
    };
    let rope = rope_of(file, &keys, wire.rope_scaling.as_ref(), wire.rope_parameters.as_ref())?;
    let attention = AttentionSpec { input_bias: true, ..AttentionSpec::new(&dims, rope) };
    let mlp = MlpSpec::gated(dims.intermediate_size, Activation::Silu);
    let layer = LayerSpec::new(Block::PRE, attention, FeedForward::Dense(mlp));
    let tied = wire.tie_word_embeddings;
    let mut drops = vec![Drop::INV_FREQ, Drop::Prefix("model.mtp_layers.".to_owned())];
    if tied {
        drops.push(Drop::HEAD);
    }
    Ok(Spec { drops, ..Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(tied)) })
}

fn refuse_other_maths(file: &ConfigFile, wire: &Wire) -> Result<(), EngineError> {
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    file.only("attention_bias", wire.attention_bias.as_ref(), &[true])?;
    file.only("use_mrope", wire.use_mrope.as_ref(), &[false])?;
    file.only("use_sliding_window", wire.use_sliding_window.as_ref(), &[false])?;
    if wire.use_sliding_window.is_none() {
        file.only("sliding_window", wire.sliding_window.as_ref(), &[])?;
    }
    Ok(())
}
