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

/// What is done to the scores of [`attend`] before softmax.
#[derive(Debug, Clone, Copy)]
pub enum ScoreMask<'a> {
    /// Nothing.
    None,
    /// A query sees no later key; the last query sees all.
    Causal,
    /// An array that broadcasts to `[batch, heads, queries, keys]`: a boolean one hides keys where it
    /// is false, one of the queries' dtype is added.
    Array(&'a Array),
}

impl<'a> From<&'a Mask> for ScoreMask<'a> {
    fn from(mask: &'a Mask) -> Self {
        match mask {
            Mask::Full => Self::None,
            Mask::Causal => Self::Causal,
            Mask::Allowed(array) => Self::Array(array),
        }
    }
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
    attend(q, k, v, scale, mask.into(), None)
}

/// [`scaled_dot_product_attention`] under any mask, with `sinks` `[heads]`: one more score a query
/// head, which takes its share of softmax and has no value.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn attend(
    q: &Array,
    k: &Array,
    v: &Array,
    scale: f32,
    mask: ScoreMask,
    sinks: Option<&Array>,
) -> Result<Array, EngineError> {
    let mask = match mask {
        ScoreMask::None => None,
        ScoreMask::Causal => Some(ScaledDotProductAttentionMask::Causal),
        ScoreMask::Array(array) => Some(ScaledDotProductAttentionMask::Array(array)),
    };
    op(
        "fast.scaled_dot_product_attention",
        fast::scaled_dot_product_attention(q, k, v, scale, mask, sinks),
    )
}
