//! `DecoderLayer` of `mlx_lm/models/qwen3_5.py`.

use mlx_rs::Array;

use super::attention::Attention;
use super::gated_delta::GatedDeltaNet;
use super::{LoadNorm, ROOT};
use crate::cache::KvCache;
use crate::config::{Dims, Qwen35Config};
use crate::error::EngineError;
use crate::fault::Fault;
use crate::model::universal::mlp::Mlp;
use crate::model::universal::spec::{Activation, MlpSpec};
use crate::nn::RmsNorm;
use crate::ops::{self, Mask};
use crate::place::Place;
use crate::taps::TapSink;
use crate::weights::Weights;

/// One layer; it norms before each block and adds after it.
pub(super) struct Layer {
    input_layernorm: RmsNorm,
    mixer: Mixer,
    post_attention_layernorm: RmsNorm,
    mlp: Mlp,
}

/// How positions learn of each other.
enum Mixer {
    Recurrent(GatedDeltaNet),
    Attention(Attention),
}

impl Layer {
    pub(super) fn load(
        config: &Qwen35Config,
        weights: &mut Weights,
        index: usize,
        norm: LoadNorm,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let dims = &config.dims;
        let path = format!("{ROOT}.layers.{index}");
        let mixer = if config.is_linear(index) {
            let path = format!("{path}.linear_attn");
            Mixer::Recurrent(GatedDeltaNet::load(config, weights, &path)?)
        } else {
            let path = format!("{path}.self_attn");
            Mixer::Attention(Attention::load(config, weights, &path, norm, fault)?)
        };
        let mut norm =
            |name: &str| norm(weights, &format!("{path}.{name}"), dims.hidden_size, dims.eps);
        Ok(Self {
            input_layernorm: norm("input_layernorm")?,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            mixer,
            mlp: mlp(weights, &path, dims, fault)?,
        })
    }

    /// x `[batch, n, hidden]` to the same; `mask` is that of the attention layers.
    pub(super) fn forward(
        &self,
        x: &Array,
        mask: &Mask,
        cache: &mut KvCache,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let normed = self.input_layernorm.forward(x)?;
        sink.tap("input_layernorm", &normed);
        let mixed = match &self.mixer {
            Mixer::Recurrent(net) => net.forward(&normed, cache.recurrent()?, sink)?,
            Mixer::Attention(attention) => attention.forward(&normed, mask, cache, sink)?,
        };
        let h = ops::add(x, &mixed)?;
        let normed = self.post_attention_layernorm.forward(&h)?;
        sink.tap("post_attention_layernorm", &normed);
        let out = ops::add(&h, &self.mlp.forward(&normed, sink)?)?;
        sink.tap("out", &out);
        Ok(out)
    }
}

fn mlp(
    weights: &mut Weights,
    layer: &str,
    dims: &Dims,
    fault: Option<Fault>,
) -> Result<Mlp, EngineError> {
    let spec = MlpSpec::gated(dims.intermediate_size, Activation::Silu);
    Mlp::load(weights, &Place::root(layer).join("mlp"), dims.hidden_size, &spec, fault)
}
