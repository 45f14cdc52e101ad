//! The extents every architecture has.

use super::ConfigFile;
use crate::error::EngineError;

/// Extents that fit together; all are at least 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dims {
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Number of layers.
    pub num_layers: usize,
    /// Width of the feed-forward block.
    pub intermediate_size: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of a head; even.
    pub head_dim: usize,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Added to the mean square in the norms; above 0.
    pub eps: f64,
    /// Positions the model was trained for, where the config says so. The reference does not stop
    /// there, and neither does the decoder; it warns.
    pub max_positions: Option<usize>,
}

impl Dims {
    /// Checks that the extents fit together.
    pub(crate) fn checked(self, file: &ConfigFile) -> Result<Self, EngineError> {
        self.checked_as(file, "rms_norm_eps")
    }

    /// [`Dims::checked`] where the norms' constant has the key `eps`.
    pub(crate) fn checked_as(self, file: &ConfigFile, eps: &str) -> Result<Self, EngineError> {
        let extents = [
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.num_layers),
            ("intermediate_size", self.intermediate_size),
            ("num_attention_heads", self.heads),
            ("num_key_value_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("vocab_size", self.vocab_size),
        ];
        for (key, extent) in extents {
            if extent == 0 || i32::try_from(extent).is_err() {
                return Err(file.unsupported(key, extent, "1 to 2147483647"));
            }
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            let wanted = format!("a divisor of num_attention_heads = {}", self.heads);
            return Err(file.unsupported("num_key_value_heads", self.kv_heads, wanted));
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(file.unsupported("head_dim", self.head_dim, "an even number"));
        }
        if !(self.eps > 0.0 && self.eps.is_finite()) {
            return Err(file.unsupported(eps, self.eps, "a number above 0"));
        }
        Ok(self)
    }
}
