//! How a model's answers are computed beside its weights: what keeps its keys and values, and how
//! attention reads them.

/// How attention reads packed keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Route {
    /// `quantized_scaled_dot_product_attention` of `mlx_lm/models/base.py`, for every call.
    #[default]
    Stock,
    /// Tiles of [`TILE`] keys for calls of several tokens, as [`Route::Stock`] for a single one.
    TiledPrefill,
    /// Tiles of [`TILE`] keys for every call: `install()` of mlx-optiq's
    /// `runtime/fused_quant_sdpa.py`.
    Tiled,
}

/// Keys in a tile: `n_chunk` of mlx-optiq's `runtime/fused_quant_sdpa.py`.
pub const TILE: i32 = 512;
