//! Ops that move, cut and join values without computing on them.

use mlx_rs::ops::indexing::{Ellipsis, TryIndexOp};
use mlx_rs::{Array, Axes, Dtype};

use super::{SliceAxis, refused, slice_update};
use crate::error::{EngineError, op};

/// `mx.contiguous`: the same values in row-major order.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn contiguous(a: &Array) -> Result<Array, EngineError> {
    op("contiguous", a.contiguous())
}

/// `mx.reshape`; one extent may be -1.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for another number of elements.
pub fn reshape(a: &Array, shape: &[i32]) -> Result<Array, EngineError> {
    op("reshape", a.reshape(shape))
}

/// `mx.transpose` to the given order of axes.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn transpose(a: &Array, axes: &[i32]) -> Result<Array, EngineError> {
    op("transpose", a.transpose_axes(axes))
}

/// `mx.expand_dims`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn expand_dims(a: &Array, axis: i32) -> Result<Array, EngineError> {
    op("expand_dims", a.expand_dims(axis))
}

/// `mx.squeeze` of one axis of extent 1.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for another extent.
pub fn squeeze(a: &Array, axis: i32) -> Result<Array, EngineError> {
    op("squeeze", a.squeeze_axes(&[axis]))
}

/// `mx.swapaxes`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn swap_axes(a: &Array, one: i32, other: i32) -> Result<Array, EngineError> {
    op("swapaxes", a.swap_axes(one, other))
}

/// `mx.broadcast_to`: a view with stride 0 along repeated axes.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for a shape that does not fit.
pub fn broadcast_to(a: &Array, shape: &[i32]) -> Result<Array, EngineError> {
    op("broadcast_to", mlx_rs::ops::broadcast_to(a, shape))
}

/// `mx.flip`: the given axes backwards.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn flip(a: &Array, axes: &[i32]) -> Result<Array, EngineError> {
    op("flip", a.flip(Axes::Axes(axes.to_vec())))
}

/// `mx.stack` along a new axis.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for shapes that differ.
pub fn stack(arrays: &[&Array], axis: i32) -> Result<Array, EngineError> {
    op("stack", mlx_rs::ops::stack(arrays, axis))
}

/// `mx.pad` with zeros: (before, after) for each axis.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for another number of axes.
pub fn pad(a: &Array, widths: &[(i32, i32)]) -> Result<Array, EngineError> {
    op("pad", mlx_rs::ops::pad(a, widths, None, None))
}

/// `mx.concatenate`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for shapes that differ off the axis.
pub fn concatenate(arrays: &[&Array], axis: i32) -> Result<Array, EngineError> {
    op("concatenate", mlx_rs::ops::concatenate(arrays, axis))
}

/// `mx.zeros`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn zeros(shape: &[i32], dtype: Dtype) -> Result<Array, EngineError> {
    op("zeros", mlx_rs::ops::zeros_dtype(shape, dtype))
}

/// `mx.arange` in i32, from `start` up to but not including `stop`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn arange(start: i32, stop: i32) -> Result<Array, EngineError> {
    op("arange", Array::arange::<i32, i32>(start, stop, None))
}

/// `a[..., start:stop, :]`, a view.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn rows_of_last_but_one(a: &Array, start: i32, stop: i32) -> Result<Array, EngineError> {
    op("slice", a.try_index((Ellipsis, start..stop, ..)))
}

/// `a[..., start:stop, :] = rows`, as `mx.slice_update`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn set_rows(a: &mut Array, start: i32, stop: i32, rows: &Array) -> Result<(), EngineError> {
    let mut axes: Vec<_> = a.shape().iter().map(|&extent| SliceAxis::full(extent)).collect();
    let Some(last_but_one) = axes.iter_mut().rev().nth(1) else {
        return Err(refused("slice_update", &format!("{} axes", a.ndim()), "2 or more"));
    };
    *last_but_one = SliceAxis::range(start, stop);
    *a = slice_update(a, rows, &axes)?;
    Ok(())
}
