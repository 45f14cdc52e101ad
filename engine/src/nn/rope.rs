//! `nn.RoPE`.

use mlx_rs::Array;

use crate::error::EngineError;
use crate::ops;

/// Rotary position encoding of the first `dims` values of a head.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// Values of the head that are rotated.
    pub dims: i32,
    /// Whether neighbours pair up, rather than the two halves.
    pub traditional: bool,
    /// The base of the geometric row of frequencies.
    pub base: f32,
    /// Positions are multiplied by this.
    pub scale: f32,
}

impl Rope {
    /// x `[batch, heads, n, d]`, whose first row stands at position `offset`.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn forward(&self, x: &Array, offset: i32) -> Result<Array, EngineError> {
        ops::rope(x, self.dims, self.traditional, self.base, self.scale, offset)
    }
}
