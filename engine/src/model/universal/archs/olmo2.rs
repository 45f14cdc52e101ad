//! `mlx_lm/models/olmo2.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{SILU, TEN_THOUSAND, all_keys, only_act, rope_of, yes};
use crate::config::{ConfigFile, Extents, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, NormKind,
    QkNorm, QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "olmo2", keys, spec };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the file")]
struct Wire {
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    rope_theta: Option<f64>,
    #[serde(default)]
    rope_traditional: bool,
    rope_scaling: Option<Value>,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    // The reference ignores it; here it means what it means to the model's authors.
    rope_parameters: Option<Value>,
    // The reference does not read it; it is taken only where it changes nothing.
    hidden_act: Option<String>,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&Extents::LLAMA)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = Extents::LLAMA.read(file)?;
    let wire: Wire = rest.wire()?;
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), SILU)?;
    let keys = RopeKeys {
        theta: wire.rope_theta,
        default_theta: TEN_THOUSAND,
        max_positions: dims.max_positions,
        traditional: wire.rope_traditional,
        ..RopeKeys::default()
    };
    let rope = rope_of(file, &keys, wire.rope_scaling.as_ref(), wire.rope_parameters.as_ref())?;
    let attention = AttentionSpec {
        input_bias: wire.attention_bias,
        output_bias: wire.attention_bias,
        qk_norm: Some(QkNorm::by_head(QkPlace::Width, NormKind::Rms)),
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp =
        MlpSpec { bias: wire.mlp_bias, ..MlpSpec::gated(dims.intermediate_size, Activation::Silu) };
    let layer = LayerSpec::new(Block::POST, attention, FeedForward::Dense(mlp));
    Ok(Spec {
        drops: vec![Drop::INV_FREQ],
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(wire.tie_word_embeddings))
    })
}
