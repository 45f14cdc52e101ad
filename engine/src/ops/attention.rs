//! `mx.fast.scaled_dot_product_attention` and its masks.

use mlx_rs::Array;
use mlx_rs::fast::{self, ScaledDotProductAttentionMask};

use crate::error::{EngineError, op};

/// Which keys a query may attend to.
#[derive(Debug, Clone)]
pub enum Mask {
    /// All keys (`None` in mlx-lm: a single new token on a cache without a window).
    Full,
    /// MLX's own lower-right causal mask (`"causal"` in mlx-lm).
    Causal,
    /// A boolean array broadcastable to `[batch, heads, queries, keys]`; true may be attended.
    Allowed(Array),
}

/// `mx.fast.scaled_dot_product_attention`: q `[b, heads, n, d]`, k and v `[b, kv_heads, keys, d]`
/// to `[b, heads, n, d]`; softmax in f32, the rest in q's dtype.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn scaled_dot_product_attention(
    q: &Array,
    k: &Array,
    v: &Array,
    scale: f32,
    mask: &Mask,
) -> Result<Array, EngineError> {
    let mask = match mask {
        Mask::Full => None,
        Mask::Causal => Some(ScaledDotProductAttentionMask::Causal),
        Mask::Allowed(array) => Some(ScaledDotProductAttentionMask::Array(array)),
    };
    op(
        "fast.scaled_dot_product_attention",
        fast::scaled_dot_product_attention(q, k, v, scale, mask, None),
    )
}
