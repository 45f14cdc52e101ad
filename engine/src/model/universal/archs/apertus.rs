//! `mlx_lm/models/apertus.py`.

use serde::Deserialize;
use serde_json::Value;

use super::Arch;
use super::shared::{all_keys, only_act, rope_of};
use crate::config::{ConfigFile, Extents, HeadDim, RopeKeys};
use crate::error::EngineError;
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpInputs, MlpSpec,
    NormKind, QkNorm, QkPlace, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "apertus", keys, spec };

const EXTENTS: Extents =
    Extents { head_dim: HeadDim::Derived, needs_kv_heads: true, ..Extents::LLAMA };

const BLOCK: Block = Block {
    before_attention: Some("attention_layernorm"),
    before_mlp: Some("feedforward_layernorm"),
    ..Block::PRE
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the file")]
struct Wire {
    mlp_bias: bool,
    rope_theta: f64,
    #[serde(default)]
    rope_traditional: bool,
    rope_scaling: Option<Value>,
    tie_word_embeddings: bool,
    // The reference ignores it; here it means what it means to the model's authors.
    rope_parameters: Option<Value>,
    // The reference goes by none of the following; they are taken only where they change nothing.
    attention_bias: bool,
    hidden_act: Option<String>,
    post_norm: bool,
    qk_norm: bool,
}

fn keys() -> Vec<&'static str> {
    all_keys::<Wire>(&EXTENTS)
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rest) = EXTENTS.read(file)?;
    let wire: Wire = rest.wire()?;
    only_act(file, "hidden_act", wire.hidden_act.as_ref(), &["xielu"])?;
    file.only("attention_bias", Some(&wire.attention_bias), &[false])?;
    file.only("post_norm", Some(&wire.post_norm), &[false])?;
    file.only("qk_norm", Some(&wire.qk_norm), &[true])?;
    let keys = RopeKeys {
        theta: Some(wire.rope_theta),
        max_positions: dims.max_positions,
        traditional: wire.rope_traditional,
        ..RopeKeys::default()
    };
    let rope = rope_of(file, &keys, wire.rope_scaling.as_ref(), wire.rope_parameters.as_ref())?;
    let attention = AttentionSpec {
        qk_norm: Some(QkNorm::by_head(QkPlace::BeforeTranspose, NormKind::Rms)),
        ..AttentionSpec::new(&dims, rope)
    };
    let mlp = MlpSpec {
        width: dims.intermediate_size,
        inputs: MlpInputs::Plain("up_proj"),
        down: "down_proj",
        bias: wire.mlp_bias,
        activation: Activation::Xielu,
    };
    let layer = LayerSpec::new(BLOCK, attention, FeedForward::Dense(mlp));
    let tied = wire.tie_word_embeddings;
    Ok(Spec {
        drops: if tied { vec![Drop::HEAD] } else { vec![] },
        ..Spec::new(dims, vec![layer; dims.num_layers], Head::tied_if(tied))
    })
}
