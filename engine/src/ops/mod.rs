//! Named MLX ops with typed errors. One file per op or family; each says what `mlx.core` calls it.

mod activation;
mod attention;
mod elementwise;
mod matmul;
mod quantized;
mod rms_norm;
mod rope;
mod shape;
mod softmax;
mod take;

pub use activation::{gelu_approx, silu};
pub use attention::{Mask, scaled_dot_product_attention};
pub use elementwise::{add, cast, clip, multiply, power, scalar, sigmoid, subtract, tanh};
pub use matmul::{addmm, matmul};
pub use quantized::{Affine, dequantize, quantized_matmul};
pub use rms_norm::rms_norm;
pub use rope::rope;
pub use shape::{
    arange, concatenate, contiguous, expand_dims, reshape, rows_of_last_but_one, set_rows,
    transpose, zeros,
};
pub use softmax::{log_sum_exp, softmax};
pub use take::{argmax_last, take_rows};

use mlx_rs::Array;

use crate::error::{EngineError, op};

/// `mx.eval`: computes the arrays now.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn eval<'a>(arrays: impl IntoIterator<Item = &'a Array>) -> Result<(), EngineError> {
    op("eval", mlx_rs::transforms::eval(arrays))
}
