//! Attention on what a cache returns.

use mlx_rs::{Array, Dtype};

use crate::cache::Rows;
use crate::composition::{Route, TILE};
use crate::error::EngineError;
use crate::kernels::sites;
use crate::ops::packed::{self, Packed};
use crate::ops::{self, Mask};
use crate::train;

/// Queries `[batch, heads, n, d]` on rows `[batch, kv_heads, keys, d]` to `[batch, heads, n, d]`: MLX's
/// fast attention on plain rows, `quantized_scaled_dot_product_attention` of `mlx_lm/models/base.py`
/// or mlx-optiq's tiles on packed ones, as their route says.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub(crate) fn attend(
    queries: &Array,
    rows: &Rows,
    scale: f32,
    mask: &Mask,
) -> Result<Array, EngineError> {
    match rows {
        Rows::Plain { keys, values } => {
            if let Some(mixed) = train::attention(queries, keys, values, scale, mask)? {
                return Ok(mixed);
            }
            match sites::flash(queries, keys, values, scale, mask)? {
                Some(mixed) => Ok(mixed),
                None => ops::scaled_dot_product_attention(queries, keys, values, scale, mask),
            }
        }
        Rows::Packed { keys, values, route } => {
            if let Some(mixed) = sites::decode_sdpa(queries, keys, values, scale, mask)? {
                Ok(mixed)
            } else if tiles(*route, queries, keys, mask) {
                let causal = matches!(mask, Mask::Causal);
                packed::tiled_attention(queries, keys, values, scale, causal, TILE)
            } else {
                packed::scaled_dot_product_attention(queries, keys, values, scale, mask.into())
            }
        }
    }
}

/// Whether a call is one that the tiled attention takes: `_supported` and the mask's test in
/// mlx-optiq's `runtime/fused_quant_sdpa.py`, which gives the others to mlx-lm's attention.
fn tiles(route: Route, queries: &Array, keys: &Packed, mask: &Mask) -> bool {
    let asked = match route {
        Route::Stock => false,
        Route::TiledPrefill => queries.dim(2) > 1,
        Route::Tiled => true,
    };
    asked
        && matches!(keys.mode.bits(), 4 | 8)
        && matches!(keys.mode.group_size(), 32 | 64 | 128)
        && matches!(queries.dtype(), Dtype::Float16 | Dtype::Bfloat16)
        && !matches!(mask, Mask::Allowed(_))
}
