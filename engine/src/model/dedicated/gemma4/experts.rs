//! Routed experts beside the feed-forward block: `Router` and `Experts`.

use mlx_rs::Array;

use crate::config::{Dims, Gemma4Experts};
use crate::error::EngineError;
use crate::nn::{Linear, RmsNorm, SwitchGlu};
use crate::ops::{self, Axes, SliceAxis};
use crate::taps::TapSink;
use crate::weights::{ExpertPaths, Original, Weights};

/// A router, its experts, and the norms that the block has where there are experts.
pub(super) struct Experts {
    router: Router,
    pre_feedforward_layernorm_2: RmsNorm,
    switch_glu: SwitchGlu,
    post_feedforward_layernorm_1: RmsNorm,
    post_feedforward_layernorm_2: RmsNorm,
}

impl Experts {
    /// The modules of the layer at a module path.
    pub(super) fn load(
        dims: &Dims,
        experts: &Gemma4Experts,
        path: &str,
        weights: &mut Weights,
    ) -> Result<Self, EngineError> {
        let mut norm =
            |name: &str| weights.norm(&format!("{path}.{name}"), dims.hidden_size, dims.eps);
        Ok(Self {
            pre_feedforward_layernorm_2: norm("pre_feedforward_layernorm_2")?,
            post_feedforward_layernorm_1: norm("post_feedforward_layernorm_1")?,
            post_feedforward_layernorm_2: norm("post_feedforward_layernorm_2")?,
            router: Router::load(dims, experts, &format!("{path}.router"), weights)?,
            switch_glu: switch_glu(dims, experts, &format!("{path}.experts"), weights)?,
        })
    }

    /// h before the block and `dense`, what its feed-forward half made of h, to the sum of both
    /// halves.
    pub(super) fn forward(
        &self,
        h: &Array,
        dense: &Array,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let dense = self.post_feedforward_layernorm_1.forward(dense)?;
        sink.tap("post_feedforward_layernorm_1", &dense);
        let (indices, shares) = self.router.forward(h, sink)?;
        let normed = self.pre_feedforward_layernorm_2.forward(h)?;
        sink.tap("pre_feedforward_layernorm_2", &normed);
        let out = self.switch_glu.forward(&normed, &indices, |name, value| {
            sink.tap(&format!("experts.switch_glu.{name}"), value);
        })?;
        let out = ops::multiply(&ops::expand_dims(&shares, -1)?, &out)?;
        let out = ops::sum(&out, Axes::Of(&[-2]), false)?;
        sink.tap("experts", &out);
        let out = self.post_feedforward_layernorm_2.forward(&out)?;
        sink.tap("post_feedforward_layernorm_2", &out);
        ops::add(&dense, &out)
    }
}

/// The three projections, from mlx-lm's layout or the published one of two tensors without `.weight`.
fn switch_glu(
    dims: &Dims,
    experts: &Gemma4Experts,
    path: &str,
    weights: &mut Weights,
) -> Result<SwitchGlu, EngineError> {
    let (hidden, inner) = (dims.hidden_size, experts.intermediate_size);
    let (gate_up, down) = (format!("{path}.gate_up_proj"), format!("{path}.down_proj"));
    let mut project = |name: &str, tensor: &str, part, parts, [outputs, inputs]: [usize; 2]| {
        let paths = ExpertPaths {
            stacked: &format!("{path}.switch_glu.{name}"),
            original: Some(Original::Fused { tensor, part, parts }),
        };
        weights.experts(paths, [experts.count, outputs, inputs], false)
    };
    Ok(SwitchGlu {
        gate_proj: project("gate_proj", &gate_up, 0, 2, [inner, hidden])?,
        up_proj: project("up_proj", &gate_up, 1, 2, [inner, hidden])?,
        down_proj: project("down_proj", &down, 0, 1, [hidden, inner])?,
        activation: ops::gelu_approx,
    })
}

/// Norm, scale, project, pick, softmax over the picked.
struct Router {
    proj: Linear,
    /// Of the norm, `scale * hidden_size ** -0.5`.
    weight: Array,
    /// `[experts]`.
    per_expert_scale: Array,
    top_k: i32,
    eps: f32,
}

impl Router {
    fn load(
        dims: &Dims,
        experts: &Gemma4Experts,
        path: &str,
        weights: &mut Weights,
    ) -> Result<Self, EngineError> {
        let scale = weights.parameter(&format!("{path}.scale"), &[dims.hidden_size])?;
        let root = (dims.hidden_size as f64).powf(-0.5);
        let weight = ops::multiply(&scale, &ops::scalar(root, scale.dtype())?)?;
        ops::eval([&weight])?;
        let per_expert_scale = format!("{path}.per_expert_scale");
        Ok(Self {
            proj: weights.linear(
                &format!("{path}.proj"),
                [experts.count, dims.hidden_size],
                false,
            )?,
            weight,
            per_expert_scale: weights.parameter(&per_expert_scale, &[experts.count])?,
            top_k: experts.top_k as i32,
            eps: dims.eps as f32,
        })
    }

    /// x `[batch, n, hidden]` to the picked experts and their shares, both `[batch, n, top_k]`.
    fn forward(&self, x: &Array, sink: &mut TapSink) -> Result<(Array, Array), EngineError> {
        let normed = ops::rms_norm(x, &self.weight, self.eps)?;
        let scores = self.proj.forward(&normed)?;
        sink.tap("router.proj", &scores);
        let order = ops::argpartition(&scores, -self.top_k, -1)?;
        let mut axes: Vec<_> =
            order.shape().iter().map(|&extent| SliceAxis::full(extent)).collect();
        if let Some(last) = axes.last_mut() {
            last.start = last.stop - self.top_k;
        }
        let indices = ops::slice(&order, &axes)?;
        sink.tap("router", &indices);
        let shares = ops::softmax(&ops::take_along_axis(&scores, &indices, -1)?, false)?;
        let scale = ops::take_rows(&self.per_expert_scale, &indices)?;
        Ok((indices, ops::multiply(&shares, &scale)?))
    }
}
