//! One layer: norms, attention, feed-forward block, and how they are joined.

use half::f16;
use mlx_rs::{Array, Dtype};

use super::attention::{Attention, Context};
use super::mlp::Mlp;
use super::moe::Moe;
use super::norm::Norm;
use super::spec::{Block, FeedForward, Flow, LayerSpec, ParallelSum, Residual, Spec};
use crate::config::LayerKind;
use crate::error::EngineError;
use crate::fault::{self, Fault};
use crate::kernels::sites;
use crate::ops;
use crate::place::Place;
use crate::taps::TapSink;
use crate::weights::Weights;

/// The layer of a [`LayerSpec`].
pub(super) struct Layer {
    pub(super) kind: LayerKind,
    flow: Flow,
    before_attention: Option<NamedNorm>,
    pub(super) attention: Attention,
    after_attention: Option<NamedNorm>,
    before_mlp: Option<NamedNorm>,
    mlp: FeedForwardBlock,
    after_mlp: Option<NamedNorm>,
}

/// A norm and the name it is tapped under.
struct NamedNorm(&'static str, Norm);

/// The block of a [`FeedForward`].
pub(in crate::model) enum FeedForwardBlock {
    Dense(Mlp),
    Moe(Box<Moe>),
}

impl Layer {
    /// The layer at a place.
    pub(super) fn load(
        weights: &mut Weights,
        place: &Place,
        spec: &Spec,
        layer: &LayerSpec,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let dims = &spec.dims;
        let block = ordered(layer.block, fault);
        let mut norm = |name: Option<&'static str>, eps: f64| {
            let load = |name: &'static str| {
                let place = place.join(name);
                let width = dims.hidden_size;
                let norm = Norm::load(weights, &place, spec.norm, width, eps, fault)?;
                Ok::<_, EngineError>(NamedNorm(name, norm))
            };
            name.map(load).transpose()
        };
        let before_attention = norm(block.before_attention, dims.eps)?;
        let after_attention = norm(block.after_attention, dims.eps)?;
        let before_mlp = norm(block.before_mlp, fault::mlp_norm_eps(fault, dims.eps))?;
        let after_mlp = norm(block.after_mlp, dims.eps)?;
        let mlp = place.join(layer.mlp);
        Ok(Self {
            kind: layer.kind,
            flow: block.flow,
            before_attention,
            attention: Attention::load(weights, place, &layer.attention, dims, fault)?,
            after_attention,
            before_mlp,
            mlp: FeedForwardBlock::load(
                weights,
                &mlp,
                dims.hidden_size,
                &layer.feed_forward,
                fault,
            )?,
            after_mlp,
        })
    }

    /// x `[batch, n, hidden]` to the same.
    pub(super) fn forward(
        &self,
        x: &Array,
        context: Context,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let at = context.cache.position();
        let pure = self.attention.is_pure();
        let inputs = [x, &context.cache.position_array()];
        // The normed stream leaves its segment only where the feed-forward block reads it too.
        if !self.shares_norm() {
            let heads = sink.segment_where(pure, "before", inputs, |[x, array], sink| {
                let seen = normed(self.before_attention.as_ref(), x, sink)?;
                self.attention.turned_heads(&seen, at, array, sink)
            })?;
            let mixed = self.attention.mix(heads, context, sink)?;
            let after =
                |[x, mixed]: [&Array; 2], sink: &mut TapSink| Ok([self.joined(x, x, mixed, sink)?]);
            let [out] = sink.segment("after", [x, &mixed], after)?;
            return Ok(out);
        }
        let before = |[x, array]: [&Array; 2], sink: &mut TapSink| {
            let seen = normed(self.before_attention.as_ref(), x, sink)?;
            let [q, k, v] = self.attention.turned_heads(&seen, at, array, sink)?;
            Ok([seen, q, k, v])
        };
        let [seen, q, k, v] = sink.segment_where(pure, "before", inputs, before)?;
        let mixed = self.attention.mix([q, k, v], context, sink)?;
        let after = |[x, seen, mixed]: [&Array; 3], sink: &mut TapSink| {
            Ok([self.joined(x, seen, mixed, sink)?])
        };
        let [out] = sink.segment("after", [x, &seen, &mixed], after)?;
        Ok(out)
    }

    /// Whether one norm stands before both blocks.
    fn shares_norm(&self) -> bool {
        matches!(self.flow, Flow::Parallel(_))
            && self.before_mlp.is_none()
            && self.before_attention.is_some()
    }

    /// The layer's output, of its input, what the feed-forward block reads if the blocks are parallel,
    /// and what attention mixed.
    fn joined(
        &self,
        x: &Array,
        stream: &Array,
        mixed: &Array,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let r = self.attention.output(mixed, sink)?;
        let r = normed(self.after_attention.as_ref(), &r, sink)?;
        let norm = self.before_mlp.as_ref();
        let out = match self.flow {
            Flow::Sequential(residual) => {
                let h = residual.join(x, &r)?;
                match self.fused_feed_forward(residual, norm, &h, sink)? {
                    Some(out) => out,
                    None => residual.join(&h, &self.feed_forward(norm, &h, sink)?)?,
                }
            }
            Flow::Parallel(sum) => sum.join(x, &r, &self.feed_forward(norm, stream, sink)?)?,
        };
        sink.tap("out", &out);
        Ok(out)
    }

    /// The feed-forward block and the stream it is added to, by one kernel.
    fn fused_feed_forward(
        &self,
        residual: Residual,
        norm: Option<&NamedNorm>,
        h: &Array,
        sink: &mut TapSink,
    ) -> Result<Option<Array>, EngineError> {
        let FeedForwardBlock::Dense(mlp) = &self.mlp else { return Ok(None) };
        let plain = matches!(residual, Residual::Add) && self.after_mlp.is_none();
        match mlp.swiglu().filter(|_| plain && sites::mlp_wanted()) {
            Some(projections) => sites::mlp(&normed(norm, h, sink)?, h, projections),
            None => Ok(None),
        }
    }

    fn feed_forward(
        &self,
        norm: Option<&NamedNorm>,
        x: &Array,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let seen = normed(norm, x, sink)?;
        let r = self.mlp.forward(&seen, sink)?;
        normed(self.after_mlp.as_ref(), &r, sink)
    }
}

impl FeedForwardBlock {
    /// The block at a place, on a stream `hidden` wide.
    pub(in crate::model) fn load(
        weights: &mut Weights,
        place: &Place,
        hidden: usize,
        spec: &FeedForward,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        Ok(match spec {
            FeedForward::Dense(mlp) => Self::Dense(Mlp::load(weights, place, hidden, mlp, fault)?),
            FeedForward::Moe(moe) => {
                Self::Moe(Box::new(Moe::load(weights, place, hidden, moe, fault)?))
            }
        })
    }

    /// x `[batch, n, hidden]` to the same.
    pub(in crate::model) fn forward(
        &self,
        x: &Array,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        match self {
            Self::Dense(mlp) => mlp.forward(x, sink),
            Self::Moe(moe) => moe.forward(x, sink),
        }
    }
}

/// x under the norm, or as it is where there is none.
fn normed(norm: Option<&NamedNorm>, x: &Array, sink: &mut TapSink) -> Result<Array, EngineError> {
    let Some(NamedNorm(name, norm)) = norm else { return Ok(x.clone()) };
    let x = norm.forward(x)?;
    sink.tap(name, &x);
    Ok(x)
}

/// The norms where they belong, or where a fault puts them.
fn ordered(mut block: Block, fault: Option<Fault>) -> Block {
    if fault::is(fault, Fault::NormOrder) {
        let last = if block.after_attention.is_some() {
            &mut block.after_attention
        } else {
            &mut block.before_attention
        };
        let first =
            if block.before_mlp.is_some() { &mut block.before_mlp } else { &mut block.after_mlp };
        if first.is_some() {
            std::mem::swap(last, first);
        }
    }
    block
}

impl Residual {
    /// The stream with a block's result.
    fn join(self, x: &Array, r: &Array) -> Result<Array, EngineError> {
        match self {
            Self::Scaled(number) => {
                ops::add(x, &ops::multiply(r, &ops::scalar(number, r.dtype())?)?)
            }
            Self::Clipped if x.dtype() == Dtype::Float16 => clipped(x, r),
            Self::Add | Self::Clipped => ops::add(x, r),
        }
    }
}

/// `clip_residual` of `mlx_lm/models/gemma3_text.py` in f16.
fn clipped(x: &Array, y: &Array) -> Result<Array, EngineError> {
    let bound = |sign: f32| ops::scalar(f64::from(sign * f16::MAX.to_f32()), Dtype::Float32);
    let sum = ops::add(&ops::cast(x, Dtype::Float32)?, &ops::cast(y, Dtype::Float32)?)?;
    ops::cast(&ops::clip(&sum, &bound(-1.0)?, &bound(1.0)?)?, Dtype::Float16)
}

impl ParallelSum {
    fn join(self, x: &Array, attention: &Array, mlp: &Array) -> Result<Array, EngineError> {
        match self {
            Self::BlocksFirst => ops::add(&ops::add(attention, mlp)?, x),
            Self::StreamFirst => ops::add(&ops::add(x, attention)?, mlp),
        }
    }
}
