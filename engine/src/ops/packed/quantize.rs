//! To packed values and back.

use mlx_rs::{Array, Dtype};

use super::{Mode, Packed};
use crate::error::EngineError;
use crate::ops::{raw, refused};

/// `mx.quantize`: floats `[.., columns]` packed along the last axis, which the mode's group size
/// divides. `global_scale` is for [`Mode::Nvfp4`]: an f32 scalar, the largest magnitude of the whole
/// tensor, to which its scales are then relative.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for a width the group size does not divide.
pub fn quantize(
    w: &Array,
    mode: Mode,
    global_scale: Option<&Array>,
) -> Result<Packed, EngineError> {
    let mut parts = raw::arrays("quantize", |result, stream| {
        // SAFETY: the arrays outlive the call and the mode's name is a static C string.
        unsafe {
            mlx_sys::mlx_quantize(
                result,
                w.as_ptr(),
                mode.c_group_size(),
                mode.c_bits(),
                mode.c_name().as_ptr(),
                raw::optional(global_scale),
                stream,
            )
        }
    })?
    .into_iter();
    let (words, scales, biases) = (parts.next(), parts.next(), parts.next());
    match (words, scales) {
        (Some(words), Some(scales)) => Ok(Packed { words, scales, biases, mode }),
        _ => Err(refused("quantize", "fewer than 2 arrays", "2 or 3")),
    }
}

/// `mx.dequantize`: the values of a packed matrix, in `dtype` or, without one, in MLX's choice: the
/// scales' dtype for [`Mode::Affine`], bf16 for the others. `global_scale` as for [`quantize`].
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn dequantize(
    w: &Packed,
    global_scale: Option<&Array>,
    dtype: Option<Dtype>,
) -> Result<Array, EngineError> {
    let dtype = mlx_sys::mlx_optional_dtype {
        value: dtype.unwrap_or(Dtype::Float32).into(),
        has_value: dtype.is_some(),
    };
    raw::array("dequantize", |result, stream| {
        // SAFETY: the arrays outlive the call and the mode's name is a static C string.
        unsafe {
            mlx_sys::mlx_dequantize(
                result,
                w.words.as_ptr(),
                w.scales.as_ptr(),
                raw::optional(w.biases.as_ref()),
                w.mode.c_group_size(),
                w.mode.c_bits(),
                w.mode.c_name().as_ptr(),
                raw::optional(global_scale),
                dtype,
                stream,
            )
        }
    })
}
