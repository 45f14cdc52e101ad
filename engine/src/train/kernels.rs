//! Kernels with a backward in the place of ops, in training: each is one function to MLX, with the gradient
//! that the kernel beside it computes.

use std::cell::Cell;

use mlx_parity_kernels::{How, Params};
use mlx_rs::Array;

use super::closure::Result;
use super::function::Function;
use crate::kernels::run;
use crate::model::HeadWeight;
use crate::ops::{self, Mask, refused};

/// Which kernels train. They are asked for, not promoted: none by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrainKernels {
    /// `flash_attention` for masks that it takes, and [`manual_sdpa`](ops::manual_sdpa) for others.
    pub flash_attention: bool,
    /// `fused_geglu` in gated blocks with `gelu_approx`.
    pub fused_geglu: bool,
    /// `flash_cce` for the head, which then never holds logits.
    pub flash_cce: bool,
}

thread_local! {
    static ACTIVE: Cell<TrainKernels> = const {
        Cell::new(TrainKernels { flash_attention: false, fused_geglu: false, flash_cce: false })
    };
}

impl TrainKernels {
    /// Has models take these until the answer is dropped.
    pub(super) fn enter(self) -> Entered {
        Entered { before: ACTIVE.replace(self) }
    }
}

/// Kernels that are taken, until dropped.
pub(super) struct Entered {
    before: TrainKernels,
}

impl Drop for Entered {
    fn drop(&mut self) {
        ACTIVE.set(self.before);
    }
}

/// Attention where training asks for other than MLX's own.
pub(crate) fn attention(
    queries: &Array,
    keys: &Array,
    values: &Array,
    scale: f32,
    mask: &Mask,
) -> Result<Option<Array>> {
    if !ACTIVE.get().flash_attention {
        return Ok(None);
    }
    Ok(Some(match mask {
        Mask::Allowed(_) => ops::manual_sdpa(queries, keys, values, scale, mask.into())?,
        Mask::Causal => flash_attention(queries, keys, values, scale, true)?,
        Mask::Full => flash_attention(queries, keys, values, scale, false)?,
    }))
}

/// `gelu_approx(gate) * up` where training asks for the kernel.
pub(crate) fn geglu(gate: &Array, up: &Array) -> Result<Option<Array>> {
    if !ACTIVE.get().fused_geglu {
        return Ok(None);
    }
    fused_geglu(gate, up).map(Some)
}

/// The kernel `flash_attention`, differentiable by all three: queries `[b, heads, n, d]`, keys and values `[b,
/// kv_heads, keys, d]`, of which under `causal` the last query sees all.
///
/// # Errors
/// [`EngineError::Kernel`](crate::EngineError::Kernel) for a call that the kernel does not take.
pub fn flash_attention(
    queries: &Array,
    keys: &Array,
    values: &Array,
    scale: f32,
    causal: bool,
) -> Result<Array> {
    let params = move || {
        let causal = f64::from(u8::from(causal));
        let scale = f64::from(scale);
        Params(vec![("scale", scale), ("causal", causal), ("window", 0.0), ("want_lse", 1.0)])
    };
    let forward = move |inputs: &[Array]| {
        let operands = [("queries", &inputs[0]), ("keys", &inputs[1]), ("values", &inputs[2])];
        run("flash_attention", &operands, params(), How::new())
    };
    let backward = move |inputs: &[Array], cotangents: &[Array], outputs: &[Array]| {
        let cotangent = ops::contiguous(&cotangents[0])?;
        let operands = [
            ("queries", &inputs[0]),
            ("keys", &inputs[1]),
            ("values", &inputs[2]),
            ("out", &outputs[0]),
            ("lse", &outputs[1]),
            ("cotangent", &cotangent),
        ];
        run("flash_attention_vjp", &operands, params(), How::new())
    };
    let dense = |a: &Array| ops::contiguous(a);
    let inputs = [dense(queries)?, dense(keys)?, dense(values)?];
    first(Function::with_vjp(forward, backward)?.call(&inputs)?)
}

/// The kernel `fused_geglu`, differentiable by both: `gelu_approx(gate) * up`.
///
/// # Errors
/// As [`flash_attention`].
pub fn fused_geglu(gate: &Array, up: &Array) -> Result<Array> {
    let forward = |inputs: &[Array]| {
        let operands = [("gate", &inputs[0]), ("up", &inputs[1])];
        run("fused_geglu", &operands, Params::default(), How::new())
    };
    let backward = |inputs: &[Array], cotangents: &[Array], _: &[Array]| {
        let operands = [("gate", &inputs[0]), ("up", &inputs[1]), ("cotangent", &cotangents[0])];
        run("fused_geglu_vjp", &operands, Params::default(), How::new())
    };
    first(Function::with_vjp(forward, backward)?.call(&[gate.clone(), up.clone()])?)
}

/// The kernel `flash_cce`, differentiable by the stream: the cross entropy `[n]`, f32, of each row of `hidden`
/// `[n, width]` for classes `targets` `[n]`, i32, under the head's matrix, which gets no gradient. A target
/// of -100 has the loss 0.
///
/// # Errors
/// As [`flash_attention`].
pub fn flash_cce(hidden: &Array, weight: &HeadWeight, targets: &Array) -> Result<Array> {
    let (of_forward, of_backward) = (weight.clone(), weight.clone());
    let forward = move |inputs: &[Array]| {
        let mut operands = vec![("hidden", &inputs[0]), ("targets", &inputs[1])];
        operands.extend(of_forward.operands());
        run("flash_cce", &operands, of_forward.params(), How::new())
    };
    let backward = move |inputs: &[Array], cotangents: &[Array], outputs: &[Array]| {
        let mut operands = vec![
            ("hidden", &inputs[0]),
            ("targets", &inputs[1]),
            ("lse", &outputs[1]),
            ("cotangent", &cotangents[0]),
        ];
        operands.extend(of_backward.operands());
        let gradient = first(run("flash_cce_vjp", &operands, of_backward.params(), How::new())?)?;
        Ok(vec![gradient, ops::zeros(inputs[1].shape(), inputs[1].dtype())?])
    };
    first(Function::with_vjp(forward, backward)?.call(&[hidden.clone(), targets.clone()])?)
}

impl HeadWeight {
    fn operands(&self) -> Vec<(&'static str, &Array)> {
        match self {
            Self::Plain(weight) => vec![("weight", weight)],
            Self::Packed { words, scales, biases, .. } => {
                vec![("weight_w", words), ("weight_scales", scales), ("weight_biases", biases)]
            }
        }
    }

    fn params(&self) -> Params {
        let mut params = vec![("want_dweight", 0.0)];
        if let Self::Packed { packing, .. } = self {
            let numbers = [("bits", packing.bits), ("group", packing.group_size)];
            params.extend(numbers.map(|(name, number)| (name, f64::from(number))));
        }
        Params(params)
    }
}

fn first(outputs: Vec<Array>) -> Result<Array> {
    let none = || refused("kernel", "no result", "one");
    outputs.into_iter().next().ok_or_else(none)
}
