//! Which experts a token goes to, and how much each of them counts.
//!
//! Every function takes the router's logits `[.., experts]` and gives the picked experts `[.., picks]`
//! (u32) and their weights, of the same shape. `mx.argpartition` leaves the order of its picks open, and
//! among equals prefers the lower position: of negated logits the first of equals, of the logits
//! themselves the last. The order decides how the weighted sum rounds, so each architecture keeps the
//! call that its module makes.

use mlx_rs::{Array, Dtype};

use crate::error::{EngineError, op};
use crate::ops::{self, Axes, SliceAxis};

/// How a router chooses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Choice {
    /// The softmax of all logits, then its largest (`qwen2_moe`, `qwen3_moe`, `olmoe`).
    SoftmaxThenTop {
        /// The call that finds them.
        side: Side,
        /// Whether their weights are divided by their sum.
        normalised: bool,
    },
    /// The largest logits, then the softmax of those.
    TopThenSoftmax {
        /// The call that finds them.
        side: Side,
        /// Whether the softmax and the weights are in f32 (`granitemoe`), not in the logits' dtype
        /// (`mixtral`).
        wide: bool,
    },
    /// `group_expert_select` of `mlx_lm/models/glm4_moe.py` and `dots1.py`.
    Grouped(Groups),
    /// A function of the logits in f32, its largest, and their weights over a sum of at least 1e-12
    /// (`ernie4_5_moe`).
    Wide(Gating),
    /// `sparsemixer` of `mlx_lm/models/phimoe.py`.
    SparseMixer {
        /// Half of the distance, relative to the largest, above which a logit is left out.
        jitter: f64,
    },
}

/// The end of `mx.argpartition` that holds the picks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// `argpartition(-x, kth=k - 1)[..., :k]`.
    First,
    /// `argpartition(x, kth=-k)[..., -k:]`.
    Last,
}

/// Experts in groups, of which some are left out before the experts are picked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Groups {
    /// Number of groups; divides the number of experts.
    pub count: usize,
    /// Groups that are kept; at least 1.
    pub kept: usize,
    /// Whether the picked weights are divided by their sum.
    pub normalised: bool,
    /// What they are multiplied by.
    pub factor: f64,
}

/// A function that makes weights of logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gating {
    /// `nn.Softmax` over all experts.
    Softmax,
    /// `nn.Sigmoid` of each.
    Sigmoid,
}

/// Picked experts and their weights.
pub(in crate::model) struct Picked {
    /// `[.., picks]`, u32.
    pub experts: Array,
    /// `[.., picks]`.
    pub weights: Array,
}

impl Choice {
    /// Picks `picks` experts; `correction` `[experts]` is added to what [`Choice::Grouped`] picks by.
    pub(in crate::model) fn pick(
        self,
        logits: &Array,
        correction: Option<&Array>,
        picks: i32,
    ) -> Result<Picked, EngineError> {
        match self {
            Self::SoftmaxThenTop { side, normalised } => {
                let picked = top(&ops::softmax(logits, true)?, side, picks)?;
                if normalised { picked.over_their_sum() } else { Ok(picked) }
            }
            Self::TopThenSoftmax { side, wide } => {
                let Picked { experts, weights } = top(logits, side, picks)?;
                let weights = if wide {
                    ops::softmax(&ops::cast(&weights, Dtype::Float32)?, false)?
                } else {
                    ops::softmax(&weights, true)?
                };
                Ok(Picked { experts, weights })
            }
            Self::Grouped(groups) => grouped(logits, correction, groups, picks),
            Self::Wide(gating) => wide(logits, gating, picks),
            Self::SparseMixer { jitter } => sparse_mixer(logits, jitter, picks),
        }
    }

    /// The same choice under [`Fault::UnnormalisedTopK`](crate::fault::Fault): weights of all experts
    /// are not brought to a sum of 1 among the picked ones.
    pub(super) fn unnormalised(
        self,
        logits: &Array,
        correction: Option<&Array>,
        picks: i32,
    ) -> Result<Picked, EngineError> {
        match self {
            Self::SoftmaxThenTop { side, .. } | Self::TopThenSoftmax { side, .. } => {
                top(&ops::softmax(logits, true)?, side, picks)
            }
            Self::Grouped(groups) => {
                grouped(logits, correction, Groups { normalised: false, ..groups }, picks)
            }
            Self::Wide(gating) => top(&gating.of(logits)?, Side::First, picks),
            Self::SparseMixer { .. } => {
                let Picked { experts, .. } = self.pick(logits, correction, picks)?;
                let weights = ops::take_along_axis(&ops::softmax(logits, true)?, &experts, -1)?;
                Ok(Picked { experts, weights })
            }
        }
    }
}

impl Picked {
    fn over_their_sum(self) -> Result<Self, EngineError> {
        let sum = ops::sum(&self.weights, Axes::Of(&[-1]), true)?;
        Ok(Self { weights: ops::divide(&self.weights, &sum)?, ..self })
    }
}

/// The positions of the largest along the last axis, with no gradient, as mlx-lm's routers have them.
fn positions(values: &Array, side: Side, picks: i32) -> Result<Array, EngineError> {
    let width = values.dim(-1);
    let (order, range) = match side {
        Side::First => {
            let order = ops::argpartition(&ops::negative(values)?, picks - 1, -1)?;
            (order, SliceAxis::range(0, picks))
        }
        Side::Last => {
            (ops::argpartition(values, -picks, -1)?, SliceAxis::range(width - picks, width))
        }
    };
    let picked = slice_axis(&order, -1, range)?;
    op("stop_gradient", mlx_rs::stop_gradient(&picked))
}

/// The largest of each row of `weights` and where they stand.
fn top(weights: &Array, side: Side, picks: i32) -> Result<Picked, EngineError> {
    let experts = positions(weights, side, picks)?;
    let weights = ops::take_along_axis(weights, &experts, -1)?;
    Ok(Picked { experts, weights })
}

/// The reference compiles this function; a compiled kernel holds the factor as [`ops::constant`] says.
fn grouped(
    logits: &Array,
    correction: Option<&Array>,
    groups: Groups,
    picks: i32,
) -> Result<Picked, EngineError> {
    let scores = ops::sigmoid(&ops::cast(logits, Dtype::Float32)?)?;
    let mut ranked = match correction {
        Some(correction) => ops::add(&scores, correction)?,
        None => scores.clone(),
    };
    if groups.kept < groups.count {
        ranked = without_weak_groups(&ranked, groups)?;
    }
    let experts = positions(&ranked, Side::First, picks)?;
    let weights = ops::take_along_axis(&scores, &experts, -1)?;
    let mut picked = Picked { experts, weights };
    if picks > 1 && groups.normalised {
        picked = picked.over_their_sum()?;
    }
    let factor = ops::constant(groups.factor, picked.weights.dtype())?;
    Ok(Picked { weights: ops::multiply(&picked.weights, &factor)?, ..picked })
}

/// Zeros for the experts of the groups whose best two come to least.
fn without_weak_groups(ranked: &Array, groups: Groups) -> Result<Array, EngineError> {
    let shape = ranked.shape().to_vec();
    let Some((width, leading)) = shape.split_last() else { return Ok(ranked.clone()) };
    let count = groups.count as i32;
    let split = [leading, &[count, width / count]].concat();
    let by_group = ops::reshape(ranked, &split)?;
    let strength = ops::sum(&ops::topk(&by_group, 2, -1)?, Axes::Of(&[-1]), true)?;
    let weak = (groups.count - groups.kept) as i32;
    let order = ops::argpartition(&strength, weak - 1, -2)?;
    let weakest = slice_axis(&order, -2, SliceAxis::range(0, weak))?;
    let zero = ops::scalar(0.0, Dtype::Float32)?;
    ops::reshape(&ops::put_along_axis(&by_group, &weakest, &zero, -2)?, &shape)
}

fn wide(logits: &Array, gating: Gating, picks: i32) -> Result<Picked, EngineError> {
    let Picked { experts, weights } = top(&gating.of(logits)?, Side::First, picks)?;
    let sum = ops::sum(&weights, Axes::Of(&[-1]), true)?;
    let sum = ops::maximum(&sum, &ops::scalar(1e-12, sum.dtype())?)?;
    Ok(Picked { experts, weights: ops::divide(&weights, &sum)? })
}

impl Gating {
    /// Weights of all experts, in f32.
    fn of(self, logits: &Array) -> Result<Array, EngineError> {
        let logits = ops::cast(logits, Dtype::Float32)?;
        match self {
            Self::Softmax => ops::softmax(&logits, false),
            Self::Sigmoid => ops::sigmoid(&logits),
        }
    }
}

/// One pick after another: the largest that is left, weighed by the softmax of the logits that are
/// left and near it.
fn sparse_mixer(logits: &Array, jitter: f64, picks: i32) -> Result<Picked, EngineError> {
    let never = ops::scalar(f64::NEG_INFINITY, logits.dtype())?;
    let far = ops::scalar(2.0 * jitter, logits.dtype())?;
    let mut left = logits.clone();
    let (mut experts, mut weights) = (Vec::new(), Vec::new());
    for _ in 0..picks {
        let largest = ops::max(&left, Axes::Of(&[-1]), true)?;
        let expert = ops::argmax(&left, -1, true)?;
        let scale = ops::maximum(&ops::abs(logits)?, &largest)?;
        let distance = ops::divide(&ops::subtract(&largest, logits)?, &scale)?;
        let near = ops::select(&ops::greater(&distance, &far)?, &never, &left)?;
        weights.push(ops::take_along_axis(&ops::softmax(&near, true)?, &expert, -1)?);
        left = ops::put_along_axis(&left, &expert, &never, -1)?;
        experts.push(expert);
    }
    let join = |parts: &[Array]| ops::concatenate(&parts.iter().collect::<Vec<_>>(), -1);
    Ok(Picked { experts: join(&experts)?, weights: join(&weights)? })
}

/// A range of one axis, counted from the end, and all of the others.
fn slice_axis(a: &Array, axis: i32, range: SliceAxis) -> Result<Array, EngineError> {
    let mut axes: Vec<_> = a.shape().iter().map(|&extent| SliceAxis::full(extent)).collect();
    let at = (a.ndim() as i32 + axis) as usize;
    axes[at] = range;
    ops::slice(a, &axes)
}
