//! `GatedDeltaNet` of `mlx_lm/models/qwen3_5.py`: a short convolution, the gated delta rule and a
//! gated norm.

use mlx_rs::{Array, Dtype};

use super::recurrence::{self, Inputs};
use crate::cache::{RecurrentCache, RecurrentForm, RecurrentState};
use crate::config::{DeltaDims, Qwen35Config};
use crate::error::EngineError;
use crate::nn::{Linear, RmsNorm};
use crate::ops::{self, Conv1d, SliceAxis};
use crate::taps::TapSink;
use crate::weights::Weights;

/// The mixing block of a recurrent layer.
pub(super) struct GatedDeltaNet {
    in_proj_qkv: Linear,
    in_proj_z: Linear,
    in_proj_b: Linear,
    in_proj_a: Linear,
    /// `[channels, taps, 1]`.
    conv: Array,
    a_log: Array,
    dt_bias: Array,
    norm: RmsNorm,
    out_proj: Linear,
    dims: DeltaDims,
}

/// What the projections make of a call's input.
struct Projected {
    qkv: Array,
    z: Array,
    b: Array,
    a: Array,
}

impl GatedDeltaNet {
    /// The block at a module path.
    pub(super) fn load(
        config: &Qwen35Config,
        weights: &mut Weights,
        path: &str,
    ) -> Result<Self, EngineError> {
        let (dims, hidden) = (config.linear, config.dims.hidden_size);
        let mut linear = |name: &str, outputs, inputs| {
            weights.linear(&format!("{path}.{name}"), [outputs, inputs], false)
        };
        Ok(Self {
            in_proj_qkv: linear("in_proj_qkv", dims.channels(), hidden)?,
            in_proj_z: linear("in_proj_z", dims.values(), hidden)?,
            in_proj_b: linear("in_proj_b", dims.value_heads, hidden)?,
            in_proj_a: linear("in_proj_a", dims.value_heads, hidden)?,
            out_proj: linear("out_proj", hidden, dims.values())?,
            conv: convolution(weights, &format!("{path}.conv1d.weight"), dims)?,
            a_log: weights.parameter(&format!("{path}.A_log"), &[dims.value_heads])?,
            dt_bias: weights.parameter(&format!("{path}.dt_bias"), &[dims.value_heads])?,
            norm: weights.norm(&format!("{path}.norm"), dims.value_dim, config.dims.eps)?,
            dims,
        })
    }

    /// x `[batch, n, hidden]` to the same, and the state behind it.
    pub(super) fn forward(
        &self,
        x: &Array,
        state: RecurrentState,
        sink: &mut TapSink,
    ) -> Result<(Array, RecurrentState), EngineError> {
        let (batch, n) = (x.dim(0), x.dim(1));
        let Projected { qkv, z, b, a } = self.project(x, sink)?;
        let (conv, newest) = self.convolve(&qkv, &state.conv)?;
        sink.tap("linear_attn.conv1d", &conv);

        let inputs = self.inputs(&conv, &a, &b)?;
        for (name, value) in [("q", &inputs.q), ("k", &inputs.k), ("v", &inputs.v)] {
            sink.tap(&format!("linear_attn.{name}"), value);
        }
        sink.tap("linear_attn.g", &inputs.g);
        sink.tap("linear_attn.beta", &inputs.beta);

        let (mixed, memory) = recurrence::run(&inputs, state.memory)?;
        sink.tap("linear_attn.delta", &mixed);
        sink.tap("linear_attn.memory", &memory);

        let out = gated(&mixed, &z, &self.norm.forward(&mixed)?)?;
        sink.tap("linear_attn.norm", &out);
        let out = self.out_proj.forward(&ops::reshape(&out, &[batch, n, -1])?)?;
        sink.tap("linear_attn.out", &out);
        Ok((out, RecurrentState { conv: newest, memory }))
    }

    fn project(&self, x: &Array, sink: &mut TapSink) -> Result<Projected, EngineError> {
        let mut part = |name: &str, linear: &Linear| {
            let y = linear.forward(x)?;
            sink.tap(&format!("linear_attn.{name}"), &y);
            Ok::<_, EngineError>(y)
        };
        let qkv = part("in_proj_qkv", &self.in_proj_qkv)?;
        let z = part("in_proj_z", &self.in_proj_z)?;
        let shape = [x.dim(0), x.dim(1), self.dims.value_heads as i32, self.dims.value_dim as i32];
        Ok(Projected {
            qkv,
            z: ops::reshape(&z, &shape)?,
            b: part("in_proj_b", &self.in_proj_b)?,
            a: part("in_proj_a", &self.in_proj_a)?,
        })
    }

    /// The convolution over this call's inputs behind the newest earlier ones, and the newest inputs
    /// of all.
    fn convolve(&self, qkv: &Array, earlier: &Array) -> Result<(Array, Array), EngineError> {
        let (batch, n) = (qkv.dim(0), qkv.dim(1));
        let (kept, channels) = (earlier.dim(1), earlier.dim(2));
        let all = ops::concatenate(&[earlier, qkv], 1)?;
        let rows =
            [SliceAxis::full(batch), SliceAxis::range(n, n + kept), SliceAxis::full(channels)];
        let newest = ops::contiguous(&ops::slice(&all, &rows)?)?;
        let form = Conv1d { groups: channels, ..Conv1d::default() };
        Ok((ops::conv1d(&all, &self.conv, form)?, newest))
    }

    /// Queries, keys and values of the heads, and the two gates of the memory.
    fn inputs(&self, conv: &Array, a: &Array, b: &Array) -> Result<Inputs, EngineError> {
        let mixed = ops::silu(conv)?;
        let dims = self.dims;
        let (keys, channels) = (dims.keys() as i32, dims.channels() as i32);
        let part = |start: i32, stop: i32, heads: usize, dim: usize| {
            let (batch, n) = (mixed.dim(0), mixed.dim(1));
            let axes = [SliceAxis::full(batch), SliceAxis::full(n), SliceAxis::range(start, stop)];
            ops::reshape(&ops::slice(&mixed, &axes)?, &[batch, n, heads as i32, dim as i32])
        };
        let q = part(0, keys, dims.key_heads, dims.key_dim)?;
        let k = part(keys, 2 * keys, dims.key_heads, dims.key_dim)?;
        let v = part(2 * keys, channels, dims.value_heads, dims.value_dim)?;
        let (q, k) = recurrence::normalize(&q, &k, dims.key_dim)?;
        let g = recurrence::decay(&self.a_log, a, &self.dt_bias)?;
        Ok(Inputs { q, k, v, g, beta: ops::sigmoid(b)? })
    }
}

/// The state before a call on x `[batch, n, hidden]`: zeros before the first.
pub(super) fn state(x: &Array, cache: &RecurrentCache) -> Result<RecurrentState, EngineError> {
    if let Some(state) = cache.state() {
        return Ok(state.clone());
    }
    let RecurrentForm { inputs, channels, heads, value_dim, key_dim } = cache.form();
    let batch = x.dim(0);
    Ok(RecurrentState {
        conv: ops::zeros(&[batch, inputs, channels], x.dtype())?,
        memory: ops::zeros(&[batch, heads, value_dim, key_dim], Dtype::Float32)?,
    })
}

/// The taps of the convolution, from mlx-lm's layout or from that of the original checkpoints,
/// `[channels, 1, taps]`.
fn convolution(weights: &mut Weights, name: &str, dims: DeltaDims) -> Result<Array, EngineError> {
    let (channels, taps) = (dims.channels(), dims.taps);
    match weights.shape(name)? {
        Some(shape) if shape.last() != Some(&1) => {
            let original = weights.parameter(name, &[channels, 1, taps])?;
            ops::transpose(&original, &[0, 2, 1])
        }
        _ => weights.parameter(name, &[channels, taps, 1]),
    }
}

/// `precise_swiglu` of `mlx_lm/models/activations.py`: `silu(gate) * x` in f32, in `like`'s dtype.
fn gated(like: &Array, gate: &Array, x: &Array) -> Result<Array, EngineError> {
    let gate = ops::silu(&ops::cast(gate, Dtype::Float32)?)?;
    ops::cast(&ops::multiply(&gate, &ops::cast(x, Dtype::Float32)?)?, like.dtype())
}
