//! `mx.quantized_matmul`.

use mlx_rs::Array;

use super::Packed;
use crate::error::EngineError;
use crate::ops::{SliceAxis, pad, raw, reshape, slice};

/// Row counts at which MLX's Metal kernel for plain (not transposed) packed matrices was wrong.
const WRONG_ROWS: std::ops::RangeInclusive<i32> = 2..=3;

/// The least row count at which it is right again.
const RIGHT_ROWS: i32 = 4;

/// `mx.quantized_matmul`: x `[.., rows, k]` times w, `[.., n, k]` if `transpose`, otherwise
/// `[.., k, n]`, to `[.., rows, n]`.
///
/// Without `transpose`, 2 or 3 rows are padded with zero rows to 4 and cut back, since MLX's Metal
/// kernel has answered wrongly there. Rows do not depend on each other, so where MLX is right the
/// bits are the same.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn quantized_matmul(x: &Array, w: &Packed, transpose: bool) -> Result<Array, EngineError> {
    if transpose || x.ndim() == 0 {
        return multiply(x, w, transpose);
    }
    // With one matrix MLX counts the rows of all batches together.
    if w.words.ndim() == 2 && x.ndim() != 2 {
        let (leading, width) = x.shape().split_at(x.ndim() - 1);
        let rows = leading.iter().product();
        let flat = padded(&reshape(x, &[rows, width[0]])?, w)?;
        let shape = [leading, &flat.shape()[1..]].concat();
        return reshape(&flat, &shape);
    }
    padded(x, w)
}

fn padded(x: &Array, w: &Packed) -> Result<Array, EngineError> {
    let at = x.ndim().saturating_sub(2);
    let rows = x.shape()[at];
    if x.ndim() < 2 || !WRONG_ROWS.contains(&rows) {
        return multiply(x, w, false);
    }
    let mut widths = vec![(0, 0); x.ndim()];
    widths[at] = (0, RIGHT_ROWS - rows);
    let product = multiply(&pad(x, &widths)?, w, false)?;
    let mut axes: Vec<_> = product.shape().iter().map(|&extent| SliceAxis::full(extent)).collect();
    let at = axes.len() - 2;
    axes[at] = SliceAxis::full(rows);
    slice(&product, &axes)
}

fn multiply(x: &Array, w: &Packed, transpose: bool) -> Result<Array, EngineError> {
    raw::array("quantized_matmul", |result, stream| {
        // SAFETY: the arrays outlive the call and the mode's name is a static C string.
        unsafe {
            mlx_sys::mlx_quantized_matmul(
                result,
                x.as_ptr(),
                w.words.as_ptr(),
                w.scales.as_ptr(),
                raw::optional(w.biases.as_ref()),
                transpose,
                w.mode.c_group_size(),
                w.mode.c_bits(),
                w.mode.c_name().as_ptr(),
                stream,
            )
        }
    })
}
