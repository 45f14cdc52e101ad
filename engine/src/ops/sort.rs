//! Order along an axis.

use mlx_rs::Array;
use mlx_rs::ops::argpartition_axis;
use mlx_rs::ops::indexing::topk_axis;

use super::raw;
use crate::error::{EngineError, op};

/// `mx.sort` along one axis, ascending.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for an axis that does not exist.
pub fn sort(a: &Array, axis: i32) -> Result<Array, EngineError> {
    op("sort", mlx_rs::ops::sort_axis(a, axis))
}

/// `mx.argsort` along one axis: u32 positions that sort it.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for an axis that does not exist.
pub fn argsort(a: &Array, axis: i32) -> Result<Array, EngineError> {
    op("argsort", mlx_rs::ops::argsort_axis(a, axis))
}

/// `mx.argpartition` along one axis: u32 positions such that the element at the `kth` stands where it
/// would stand sorted, none before it larger and none after it smaller. A negative `kth` counts from
/// the end. The order on either side is open; of equals, those of lower position count as smaller.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for a `kth` outside the axis.
pub fn argpartition(a: &Array, kth: i32, axis: i32) -> Result<Array, EngineError> {
    op("argpartition", argpartition_axis(a, kth, axis))
}

/// `mx.topk`: the `k` largest along one axis, in no stated order.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for a `k` above the axis's extent.
pub fn topk(a: &Array, k: i32, axis: i32) -> Result<Array, EngineError> {
    op("topk", topk_axis(a, k, axis))
}

/// `mx.searchsorted` on the right side of a sorted vector: for each value, u32, how many elements are not
/// above it.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub(crate) fn searchsorted_right(sorted: &Array, values: &Array) -> Result<Array, EngineError> {
    raw::array("searchsorted", |result, stream| {
        // SAFETY: both arrays outlive the call, and the side is a NUL-terminated text that does too.
        unsafe {
            mlx_sys::mlx_searchsorted(
                result,
                sorted.as_ptr(),
                values.as_ptr(),
                c"right".as_ptr(),
                stream,
            )
        }
    })
}
