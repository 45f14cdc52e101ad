//! `mx.gather_qmm`.

use mlx_rs::Array;

use super::Packed;
use crate::error::EngineError;
use crate::ops::raw;

/// `mx.gather_qmm`: products of matrices picked from x `[.., m, k]` and the packed w (`[.., n, k]` if
/// `transpose`, otherwise `[.., k, n]`) by integer indices into their flattened batch axes, which
/// broadcast together; without indices, in order. `sorted` promises that the right indices ascend.
/// Indices are not checked.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn gather_qmm(
    x: &Array,
    w: &Packed,
    left: Option<&Array>,
    right: Option<&Array>,
    transpose: bool,
    sorted: bool,
) -> Result<Array, EngineError> {
    raw::array("gather_qmm", |result, stream| {
        // SAFETY: the arrays outlive the call and the mode's name is a static C string.
        unsafe {
            mlx_sys::mlx_gather_qmm(
                result,
                x.as_ptr(),
                w.words.as_ptr(),
                w.scales.as_ptr(),
                raw::optional(w.biases.as_ref()),
                raw::optional(left),
                raw::optional(right),
                transpose,
                w.mode.c_group_size(),
                w.mode.c_bits(),
                w.mode.c_name().as_ptr(),
                sorted,
                stream,
            )
        }
    })
}
