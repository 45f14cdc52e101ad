//! `DecoderLayer`: attention, then a dense block and experts side by side.

use mlx_rs::Array;

use super::attention::{Attention, Before};
use super::config::DiffusionGemmaConfig;
use super::experts::Experts;
use super::mlp::Mlp;
use crate::config::LayerKind;
use crate::error::EngineError;
use crate::fault::Fault;
use crate::nn::RmsNorm;
use crate::ops::{self, Mask};
use crate::taps::TapSink;
use crate::weights::Weights;

pub(super) struct Layer {
    pub(super) kind: LayerKind,
    self_attn: Attention,
    mlp: Mlp,
    experts: Experts,
    norms: Norms,
    /// Multiplies the layer's output on a canvas, `[1]`.
    pub(super) scalar: Array,
    /// The same while a prompt is read.
    pub(super) reading_scalar: Array,
}

struct Norms {
    input: RmsNorm,
    post_attention: RmsNorm,
    pre_feedforward: RmsNorm,
    post_feedforward: RmsNorm,
    pre_experts: RmsNorm,
    post_dense: RmsNorm,
    post_experts: RmsNorm,
}

impl Norms {
    fn load(
        config: &DiffusionGemmaConfig,
        weights: &mut Weights,
        path: &str,
    ) -> Result<Self, EngineError> {
        let dims = &config.dims;
        let mut norm = |name| weights.norm(&format!("{path}.{name}"), dims.hidden_size, dims.eps);
        Ok(Self {
            input: norm("input_layernorm")?,
            post_attention: norm("post_attention_layernorm")?,
            pre_feedforward: norm("pre_feedforward_layernorm")?,
            post_feedforward: norm("post_feedforward_layernorm")?,
            pre_experts: norm("pre_feedforward_layernorm_2")?,
            post_dense: norm("post_feedforward_layernorm_1")?,
            post_experts: norm("post_feedforward_layernorm_2")?,
        })
    }
}

impl Layer {
    pub(super) fn load(
        config: &DiffusionGemmaConfig,
        weights: &mut Weights,
        index: usize,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let kind = config.kinds[index];
        let path = format!("model.decoder.layers.{index}");
        let reading = format!("model.encoder.language_model.layers.{index}.layer_scalar");
        let attention = format!("{path}.self_attn");
        Ok(Self {
            kind,
            self_attn: Attention::load(config, weights, &attention, kind, fault)?,
            mlp: Mlp::load(config, weights, &format!("{path}.mlp"))?,
            experts: Experts::load(config, weights, &path)?,
            norms: Norms::load(config, weights, &path)?,
            scalar: weights.parameter(&format!("{path}.layer_scalar"), &[1])?,
            reading_scalar: weights.parameter(&reading, &[1])?,
        })
    }

    /// x `[1, n, hidden]` to the same.
    pub(super) fn forward(
        &self,
        x: &Array,
        mask: &Mask,
        mut before: Before,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let scalar = match before {
            Before::Read(_) => &self.reading_scalar,
            Before::Canvas(_) => &self.scalar,
        };
        let h = self.norms.input.forward(x)?;
        sink.tap("input_layernorm", &h);
        let h = self.self_attn.forward(&h, mask, &mut before, sink)?;
        let h = self.norms.post_attention.forward(&h)?;
        sink.tap("post_attention_layernorm", &h);
        let h = ops::add(x, &h)?;
        let h = ops::add(&h, &self.feed_forward(&h, sink)?)?;
        let out = ops::multiply(&h, scalar)?;
        sink.tap("out", &out);
        Ok(out)
    }

    fn feed_forward(&self, x: &Array, sink: &mut TapSink) -> Result<Array, EngineError> {
        let dense = self.norms.pre_feedforward.forward(x)?;
        sink.tap("pre_feedforward_layernorm", &dense);
        let dense = self.norms.post_dense.forward(&self.mlp.forward(&dense, "mlp", sink)?)?;
        sink.tap("post_feedforward_layernorm_1", &dense);

        let flat = ops::reshape(x, &[-1, x.dim(-1)])?;
        let mixed = self.norms.pre_experts.forward(&flat)?;
        sink.tap("pre_feedforward_layernorm_2", &mixed);
        let mixed = self.experts.forward(&flat, &mixed, sink)?;
        let mixed = self.norms.post_experts.forward(&ops::reshape(&mixed, x.shape())?)?;
        sink.tap("post_feedforward_layernorm_2", &mixed);

        let out = self.norms.post_feedforward.forward(&ops::add(&dense, &mixed)?)?;
        sink.tap("post_feedforward_layernorm", &out);
        Ok(out)
    }
}
