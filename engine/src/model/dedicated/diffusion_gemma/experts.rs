//! The mixture of experts of a layer: `Router` and `Experts`.

use mlx_rs::Array;

use super::config::DiffusionGemmaConfig;
use super::mlp::geglu;
use crate::error::EngineError;
use crate::nn::{Experts as Matrices, GatherSort, Linear, SwitchLinear};
use crate::ops::{self, Axes, SliceAxis};
use crate::taps::TapSink;
use crate::weights::Weights;

/// Picks the experts of each row and weighs them.
pub(super) struct Router {
    proj: Linear,
    scale: Array,
    per_expert_scale: Array,
    eps: f32,
    root_size: f64,
    top_k: i32,
}

impl Router {
    pub(super) fn load(
        config: &DiffusionGemmaConfig,
        weights: &mut Weights,
        path: &str,
    ) -> Result<Self, EngineError> {
        let (hidden, experts) = (config.dims.hidden_size, config.experts);
        Ok(Self {
            proj: weights.linear(&format!("{path}.proj"), [experts, hidden], false)?,
            scale: weights.parameter(&format!("{path}.scale"), &[hidden])?,
            per_expert_scale: weights.parameter(&format!("{path}.per_expert_scale"), &[experts])?,
            eps: config.dims.eps as f32,
            root_size: (hidden as f64).powf(-0.5),
            top_k: config.top_k as i32,
        })
    }

    /// x `[rows, hidden]` to the experts' numbers and weights, `[rows, top_k]` each.
    fn forward(&self, x: &Array, sink: &mut TapSink) -> Result<(Array, Array), EngineError> {
        let x = ops::rms_norm(x, None, self.eps)?;
        let x = ops::multiply(&x, &self.scale)?;
        let x = ops::multiply(&x, &ops::scalar(self.root_size, x.dtype())?)?;
        let scores = self.proj.forward(&x)?;
        sink.tap("router.proj", &scores);
        let order = ops::argpartition(&scores, -self.top_k, -1)?;
        let experts = order.dim(-1);
        let best = SliceAxis::range(experts - self.top_k, experts);
        let indices = ops::slice(&order, &[SliceAxis::full(order.dim(0)), best])?;
        let weights = ops::softmax(&ops::take_along_axis(&scores, &indices, -1)?, true)?;
        let weights = ops::multiply(&weights, &ops::take_rows(&self.per_expert_scale, &indices)?)?;
        Ok((indices, weights))
    }
}

/// One gated feed-forward block an expert.
pub(super) struct Experts {
    router: Router,
    gate_up_proj: SwitchLinear,
    down_proj: SwitchLinear,
    inner: i32,
}

impl Experts {
    pub(super) fn load(
        config: &DiffusionGemmaConfig,
        weights: &mut Weights,
        layer: &str,
    ) -> Result<Self, EngineError> {
        let (hidden, inner) = (config.dims.hidden_size, config.moe_intermediate_size);
        let experts = config.experts;
        let mut matrices = |name: &str, shape| projection(weights, layer, name, shape);
        Ok(Self {
            gate_up_proj: matrices("gate_up_proj", [experts, 2 * inner, hidden])?,
            down_proj: matrices("down_proj", [experts, hidden, inner])?,
            router: Router::load(config, weights, &format!("{layer}.router"))?,
            inner: inner as i32,
        })
    }

    /// `routed` `[rows, hidden]` chooses the experts, `x` of the same shape goes through them.
    pub(super) fn forward(
        &self,
        routed: &Array,
        x: &Array,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let (indices, weights) = self.router.forward(routed, sink)?;
        let x = ops::expand_dims(&ops::expand_dims(x, -2)?, -2)?;
        let sorted = GatherSort::when_many(&x, &indices)?;
        let (x, picks) = match &sorted {
            Some(sorted) => (&sorted.rows, &sorted.indices),
            None => (&x, &indices),
        };
        let gate_up = self.gate_up_proj.forward(x, picks, sorted.is_some())?;
        sink.tap("experts.gate_up", &gate_up);
        let half = |start| {
            let mut axes: Vec<_> =
                gate_up.shape().iter().map(|&extent| SliceAxis::full(extent)).collect();
            if let Some(last) = axes.last_mut() {
                *last = SliceAxis::range(start, start + self.inner);
            }
            ops::slice(&gate_up, &axes)
        };
        let act = geglu(&half(0)?, &half(self.inner)?)?;
        let y = self.down_proj.forward(&act, picks, sorted.is_some())?;
        sink.tap("experts.down", &y);
        let y = match &sorted {
            Some(sorted) => sorted.unsort(&y, &indices)?,
            None => y,
        };
        let weighted = ops::multiply(&ops::squeeze(&y, -2)?, &ops::expand_dims(&weights, -1)?)?;
        let out = ops::sum(&weighted, Axes::Of(&[-2]), false)?;
        sink.tap("experts", &out);
        Ok(out)
    }
}

/// The matrices of all experts, also under the name that `sanitize` completes.
fn projection(
    weights: &mut Weights,
    layer: &str,
    name: &str,
    shape: [usize; 3],
) -> Result<SwitchLinear, EngineError> {
    let path = format!("{layer}.experts.{name}");
    if weights.has(&path) {
        return Ok(SwitchLinear::new(Matrices::Plain(weights.parameter(&path, &shape)?), None));
    }
    weights.switch_linear(&path, shape, false)
}
