//! Boolean attention masks.

use mlx_rs::Array;

use crate::error::{EngineError, op};
use crate::ops;

/// `create_causal_mask` of `mlx_lm/models/base.py`: `[count, offset + count]`, true where a query at
/// position `offset + row` may attend to the key at position `column`: not later, and with a window
/// fewer than `window` positions back.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn causal_mask(count: i32, offset: i32, window: Option<i32>) -> Result<Array, EngineError> {
    let queries = ops::expand_dims(&ops::arange(offset, offset + count)?, 1)?;
    let keys = ops::expand_dims(&ops::arange(0, offset + count)?, 0)?;
    let not_later = op("greater_equal", queries.ge(&keys))?;
    let Some(window) = window else { return Ok(not_later) };
    let reach = ops::add(&keys, &Array::from_int(window))?;
    let in_window = op("less", queries.lt(&reach))?;
    op("logical_and", not_later.logical_and(&in_window))
}
