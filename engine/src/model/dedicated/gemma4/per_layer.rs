//! The second embedding: `_get_per_layer_inputs` and `_project_per_layer_inputs`, and the gate that
//! lets a layer's slice of it into the residual stream.

use mlx_rs::Array;

use super::Names;
use crate::config::{Gemma4TextConfig, PerLayerInput};
use crate::error::EngineError;
use crate::model::parts::{layer_slice, times, unflatten};
use crate::nn::{Embedding, Linear, RmsNorm};
use crate::ops;
use crate::taps::TapSink;
use crate::weights::Weights;

/// What every layer takes its slice from.
pub(super) struct PerLayerInputs {
    embed_tokens_per_layer: Embedding,
    per_layer_model_projection: Linear,
    per_layer_projection_norm: RmsNorm,
    layers: i32,
    width: i32,
    hidden_size: usize,
}

impl PerLayerInputs {
    /// The modules, where the model has them.
    pub(super) fn load(
        config: &Gemma4TextConfig,
        names: Names,
        weights: &mut Weights,
    ) -> Result<Option<Self>, EngineError> {
        let Some(PerLayerInput { vocab_size, width }) = config.per_layer_input else {
            return Ok(None);
        };
        let dims = &config.dims;
        let all = dims.num_layers * width;
        let projection = names.of("per_layer_model_projection");
        let norm = names.of("per_layer_projection_norm");
        Ok(Some(Self {
            embed_tokens_per_layer: weights
                .embedding(&names.of("embed_tokens_per_layer"), [vocab_size, all])?,
            per_layer_model_projection: weights.linear(
                &projection,
                [all, dims.hidden_size],
                false,
            )?,
            per_layer_projection_norm: weights.norm(&norm, width, dims.eps)?,
            layers: dims.num_layers as i32,
            width: width as i32,
            hidden_size: dims.hidden_size,
        }))
    }

    /// A slice `[batch, n, width]` a layer, for ids `[batch, n]` and their scaled embedding `h`.
    pub(super) fn forward(
        &self,
        ids: &Array,
        h: &Array,
        sink: &mut TapSink,
    ) -> Result<Vec<Option<Array>>, EngineError> {
        let looked_up = self.embed_tokens_per_layer.forward(ids)?;
        sink.tap("embed_tokens_per_layer", &looked_up);
        let looked_up = times(&looked_up, f64::from(self.width).powf(0.5))?;

        let looked_up = unflatten(&looked_up, self.layers, self.width)?;

        let projected = self.per_layer_model_projection.forward(h)?;
        sink.tap("per_layer_model_projection", &projected);
        let projected = times(&projected, (self.hidden_size as f64).powf(-0.5))?;
        let projected = unflatten(&projected, self.layers, self.width)?;
        let projected = self.per_layer_projection_norm.forward(&projected)?;
        sink.tap("per_layer_projection_norm", &projected);

        let sum = times(&ops::add(&projected, &looked_up)?, 2.0_f64.powf(-0.5))?;
        (0..self.layers).map(|layer| layer_slice(&sum, layer).map(Some)).collect()
    }
}

/// The gate of one layer.
pub(super) struct PerLayerGate {
    per_layer_input_gate: Linear,
    per_layer_projection: Linear,
    post_per_layer_input_norm: RmsNorm,
}

impl PerLayerGate {
    /// The modules of the layer at a module path, where the model has them.
    pub(super) fn load(
        config: &Gemma4TextConfig,
        path: &str,
        weights: &mut Weights,
    ) -> Result<Option<Self>, EngineError> {
        let Some(PerLayerInput { width, .. }) = config.per_layer_input else { return Ok(None) };
        let hidden = config.dims.hidden_size;
        let gate = format!("{path}.per_layer_input_gate");
        let projection = format!("{path}.per_layer_projection");
        let norm = format!("{path}.post_per_layer_input_norm");
        Ok(Some(Self {
            per_layer_input_gate: weights.linear(&gate, [width, hidden], false)?,
            per_layer_projection: weights.linear(&projection, [hidden, width], false)?,
            post_per_layer_input_norm: weights.norm(&norm, hidden, config.dims.eps)?,
        }))
    }

    /// h `[batch, n, hidden]` and the layer's slice `[batch, n, width]` to h with the slice taken in.
    pub(super) fn forward(
        &self,
        h: &Array,
        slice: &Array,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let gate = self.per_layer_input_gate.forward(h)?;
        sink.tap("per_layer_input_gate", &gate);
        let gate = ops::multiply(&ops::gelu_approx(&gate)?, slice)?;
        let gate = self.per_layer_projection.forward(&gate)?;
        sink.tap("per_layer_projection", &gate);
        let gate = self.post_per_layer_input_norm.forward(&gate)?;
        sink.tap("post_per_layer_input_norm", &gate);
        ops::add(h, &gate)
    }
}
