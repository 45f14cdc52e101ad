//! Named MLX ops with typed errors. One file per op or family; each says what `mlx.core` or `mlx.nn`
//! calls it. The list of ops that are checked is `mlx_parity_oracles::ops::OPS`.

mod activation;
mod argreduce;
mod attention;
mod binary;
mod cast;
mod conv1d;
mod cross_entropy;
mod group_norm;
mod layer_norm;
mod logical;
mod manual_attention;
mod matmul;
pub mod packed;
mod quantized;
mod random;
pub(crate) mod raw;
mod reduce;
mod rms_norm;
mod rope;
mod scan;
mod scatter;
mod select;
mod shape;
mod slice;
mod softmax;
mod sort;
mod take;
mod unary;

pub(crate) use activation::constant;
pub use activation::{gelu, gelu_approx, gelu_fast_approx, relu2, silu, softplus};
pub use argreduce::{argmax, argmax_last, argmin};
pub use attention::{Mask, ScoreMask, attend, scaled_dot_product_attention};
pub use binary::{
    add, divide, floor_divide, greater, logaddexp, maximum, minimum, multiply, power, remainder,
    subtract,
};
pub use cast::{cast, from_fp8, scalar, to_fp8};
pub use conv1d::{Conv1d, conv1d};
pub use cross_entropy::cross_entropy;
pub use group_norm::{ChannelOrder, GroupNorm, group_norm};
pub use layer_norm::layer_norm;
pub use logical::{
    all, any, equal, greater_equal, less, less_equal, logical_and, logical_not, logical_or,
};
pub use manual_attention::manual_sdpa;
pub use matmul::{addmm, addmm_scaled, gather_mm, matmul};
pub use quantized::{Affine, dequantize, quantized_matmul};
pub use random::{Keys, categorical, randint};
pub(crate) use random::{random_bits, uniform};
pub use reduce::{Axes, logsumexp, max, mean, min, sum, var};
pub use rms_norm::rms_norm;
pub(crate) use rope::PlainRotation;
pub use rope::{
    Llama3, LongRope, Periods, Proportional, RopeOffset, RopeScaling, Rotation, ScaledRope, Yarn,
    rope, rotate,
};
pub use scan::{cummax, cumsum};
pub use scatter::{put_along_axis, scatter_add};
pub use select::{clip, select};
pub use shape::{
    arange, broadcast_to, concatenate, contiguous, expand_dims, flip, pad, reshape,
    rows_of_last_but_one, set_rows, squeeze, stack, swap_axes, transpose, zeros,
};
pub use slice::{SliceAxis, slice, slice_last, slice_multiply, slice_update};
pub use softmax::{log_sum_exp, softmax, softmax_axis};
pub(crate) use sort::searchsorted_right;
pub use sort::{argpartition, argsort, sort, topk};
pub use take::{take, take_along_axis, take_rows};
pub use unary::{
    abs, cos, erf, exp, expm1, log, log1p, negative, rsqrt, sigmoid, sin, sqrt, square, tanh,
};

use mlx_rs::Array;

use crate::error::{EngineError, op};

/// `mx.eval`: computes the arrays now.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<(), EngineError> {
    op("eval", mlx_rs::transforms::eval(arrays))
}

/// The error for an argument that an op has no meaning for, found before MLX sees it.
pub(crate) fn refused(op: &'static str, found: &str, wanted: &str) -> EngineError {
    EngineError::Op { op, message: format!("found {found}, wanted {wanted}") }
}
