//! Values added or put at indices.

use mlx_rs::Array;
use mlx_rs::ops::indexing::scatter_add_single;

use super::{expand_dims, refused, transpose};
use crate::error::{EngineError, op};

/// `a.at[.., indices, ..].add(updates)`: `updates` added to the slices of `a` along `axis` at integer
/// `indices`, each of a repeated index's. `updates` has the shape [`super::take`] would give. Indices
/// are not checked.
///
/// # Errors
/// [`EngineError::Op`] where the shapes do not fit or MLX throws.
pub fn scatter_add(
    a: &Array,
    indices: &Array,
    updates: &Array,
    axis: i32,
) -> Result<Array, EngineError> {
    let rank = a.ndim() as i32;
    let axis = if axis < 0 { axis + rank } else { axis };
    if !(0..rank).contains(&axis) {
        return Err(refused(
            "scatter_add",
            &format!("axis {axis}"),
            &format!("one of {rank} axes"),
        ));
    }
    let shape = a.shape();
    let wanted = [&shape[..axis as usize], indices.shape(), &shape[axis as usize + 1..]].concat();
    if updates.shape() != wanted {
        let found = format!("updates of shape {:?}", updates.shape());
        return Err(refused("scatter_add", &found, &format!("{wanted:?}")));
    }
    // MLX wants the indices' axes in front and an axis of extent 1 where `axis` was.
    let taken = axis..axis + indices.ndim() as i32;
    let order: Vec<i32> =
        taken.clone().chain(0..axis).chain(taken.end..updates.ndim() as i32).collect();
    let updates = expand_dims(&transpose(updates, &order)?, indices.ndim() as i32 + axis)?;
    op("scatter_add", scatter_add_single(a, indices, &updates, axis))
}

/// `mx.put_along_axis`: `a` with one element along `axis` replaced for each index; `values` broadcast
/// to the indices, and both to `a` off the axis. Indices are not checked.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for shapes that do not broadcast.
pub fn put_along_axis(
    a: &Array,
    indices: &Array,
    values: &Array,
    axis: i32,
) -> Result<Array, EngineError> {
    op("put_along_axis", a.put_along_axis(indices, values, axis))
}
