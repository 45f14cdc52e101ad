//! One layer: attention, feed-forward block, the layer's own input, and its scalar.

use mlx_rs::Array;

use super::attention::{Attention, CallState};
use super::experts::Experts;
use super::per_layer::PerLayerGate;
use crate::config::{Gemma4TextConfig, KeyValues, LayerKind};
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::model::universal::mlp::Mlp;
use crate::model::universal::spec::{Activation, MlpSpec};
use crate::nn::RmsNorm;
use crate::ops::{self, Mask};
use crate::place::Place;
use crate::taps::TapSink;
use crate::weights::Weights;

pub(super) struct Layer {
    pub(super) kind: LayerKind,
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    pre_feedforward_layernorm: RmsNorm,
    mlp: Mlp,
    experts: Option<Experts>,
    post_feedforward_layernorm: RmsNorm,
    per_layer_gate: Option<PerLayerGate>,
    /// `layer_scalar`, `[1]`.
    scalar: Array,
}

impl Layer {
    /// Layer `index`, at a module path.
    pub(super) fn load(
        config: &Gemma4TextConfig,
        index: usize,
        path: &str,
        weights: &mut Weights,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let (dims, spec) = (&config.dims, &config.layers[index]);
        let mlp = MlpSpec::gated(spec.intermediate_size, Activation::GeluApprox);
        let mlp_place = Place::root(path).join("mlp");
        let mlp = Mlp::load(weights, &mlp_place, dims.hidden_size, &mlp, fault)?;
        let (attention, place) = (format!("{path}.self_attn"), place(config, index, fault));
        let self_attn = Attention::load(dims, spec, place, &attention, weights, fault)?;
        let load_experts = |experts| Experts::load(dims, experts, path, weights);
        let experts = config.experts.as_ref().map(load_experts).transpose()?;
        let per_layer_gate = PerLayerGate::load(config, path, weights)?;
        let scalar = weights.parameter(&format!("{path}.layer_scalar"), &[1])?;
        let mut norm =
            |name: &str| weights.norm(&format!("{path}.{name}"), dims.hidden_size, dims.eps);
        Ok(Self {
            kind: spec.kind,
            input_layernorm: norm("input_layernorm")?,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            pre_feedforward_layernorm: norm("pre_feedforward_layernorm")?,
            post_feedforward_layernorm: norm("post_feedforward_layernorm")?,
            mlp,
            experts,
            self_attn,
            per_layer_gate,
            scalar,
        })
    }

    /// [`Network::length_limit`](crate::model::Network::length_limit) of this layer.
    pub(super) fn length_limit(&self) -> Option<i32> {
        self.self_attn.length_limit()
    }

    /// [`Network::stretches_from`](crate::model::Network::stretches_from) of this layer.
    pub(super) fn stretches_from(&self) -> Option<i32> {
        self.self_attn.stretches_from()
    }

    /// x `[batch, n, hidden]` to the same.
    pub(super) fn forward(
        &self,
        x: &Array,
        mask: &Mask,
        state: &mut CallState,
        slice: Option<&Array>,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let norm = |x: &Array, sink: &mut TapSink| {
            let normed = self.input_layernorm.forward(x)?;
            sink.tap("input_layernorm", &normed);
            Ok(normed)
        };
        let mixed = self.self_attn.mix(norm, x, mask, state, sink)?;
        let [out] = match slice {
            Some(slice) => sink.segment("after", [x, &mixed, slice], |[x, mixed, slice], sink| {
                Ok([self.joined(x, mixed, Some(slice), sink)?])
            }),
            None => sink.segment("after", [x, &mixed], |[x, mixed], sink| {
                Ok([self.joined(x, mixed, None, sink)?])
            }),
        }?;
        Ok(out)
    }

    /// The layer's output, of its input, what attention mixed and the layer's slice.
    fn joined(
        &self,
        x: &Array,
        mixed: &Array,
        slice: Option<&Array>,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let mixed = self.self_attn.output(mixed, sink)?;
        let mixed = self.post_attention_layernorm.forward(&mixed)?;
        sink.tap("post_attention_layernorm", &mixed);
        let mut h = ops::add(x, &mixed)?;

        let normed = self.pre_feedforward_layernorm.forward(&h)?;
        sink.tap("pre_feedforward_layernorm", &normed);
        let mut out = self.mlp.forward(&normed, sink)?;
        if let Some(experts) = &self.experts {
            out = experts.forward(&h, &out, sink)?;
        }
        let out = self.post_feedforward_layernorm.forward(&out)?;
        sink.tap("post_feedforward_layernorm", &out);
        h = ops::add(&h, &out)?;

        if let (Some(gate), Some(slice)) = (&self.per_layer_gate, slice) {
            h = gate.forward(&h, slice, sink)?;
        }
        h = ops::multiply(&h, &self.scalar)?;
        sink.tap("out", &h);
        Ok(h)
    }
}

/// The layer, and so the cache, whose keys and values layer `index` attends to.
fn place(config: &Gemma4TextConfig, index: usize, fault: Option<Fault>) -> usize {
    let spec = &config.layers[index];
    let KeyValues::Shared(donor) = spec.key_values else { return index };
    let first = config.layers.iter().position(|layer| layer.kind == spec.kind);
    fault::shared_kv(fault, donor, first)
}
