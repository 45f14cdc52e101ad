//! Caches, layer by layer, as `mlx_lm/models/cache.py` keeps them: keys and values of positions, or the
//! state of a recurrent layer.

mod mask;
mod plain;
mod poison;
mod recurrent;
mod rotating;
mod saved;

pub use mask::{DeadRows, MaskRule, added, causal_mask};
pub use plain::PlainCache;
pub use recurrent::{RecurrentCache, RecurrentForm, RecurrentState};
pub use rotating::RotatingCache;
pub(crate) use saved::{Form, load, save};

use mlx_rs::Array;

use crate::error::EngineError;
use crate::nn::Position;
use crate::ops::Mask;

/// Positions a buffer grows by at a time.
pub(crate) const STEP: i32 = 256;

/// The cache of one layer. Keys and values are `[batch, kv_heads, positions, head_dim]`; a recurrent
/// layer has none.
#[derive(Debug, Clone)]
pub enum KvCache {
    /// Keeps every position.
    Plain(PlainCache),
    /// Keeps a window of positions.
    Rotating(RotatingCache),
    /// Keeps what all positions add up to.
    Recurrent(RecurrentCache),
}

impl KvCache {
    /// Tokens seen so far: the position of the next one.
    pub fn offset(&self) -> i32 {
        match self {
            Self::Plain(cache) => cache.offset(),
            Self::Rotating(cache) => cache.offset(),
            Self::Recurrent(cache) => cache.offset(),
        }
    }

    /// Where the next token stands, for a rotary encoding.
    pub fn position(&self) -> Position {
        match self {
            Self::Plain(cache) => cache.position(),
            Self::Rotating(_) | Self::Recurrent(_) => self.offset().into(),
        }
    }

    /// Tells how many tokens the sequence will have after the calls at hand.
    ///
    /// # Errors
    /// [`EngineError::CacheForm`] for a cache that does not keep every position: what it has forgotten
    /// could not be rotated anew.
    pub fn expect(&mut self, length: i32) -> Result<(), EngineError> {
        let found = match self {
            Self::Plain(cache) => {
                cache.expect(length);
                return Ok(());
            }
            Self::Rotating(_) => "a window",
            Self::Recurrent(_) => "a recurrent state",
        };
        let wanted = "every position, as rotations that change with the length need".to_owned();
        Err(EngineError::CacheForm { found: found.to_owned(), wanted })
    }

    /// Takes the keys and values of new positions in and returns all that may be attended to.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws, [`EngineError::CacheForm`] for a recurrent layer's cache.
    pub fn update(&mut self, keys: &Array, values: &Array) -> Result<(Array, Array), EngineError> {
        match self {
            Self::Plain(cache) => cache.update(keys, values),
            Self::Rotating(cache) => cache.update(keys, values),
            Self::Recurrent(_) => Err(EngineError::CacheForm {
                found: "a recurrent state".to_owned(),
                wanted: "keys and values".to_owned(),
            }),
        }
    }

    /// The cache of a recurrent layer.
    ///
    /// # Errors
    /// [`EngineError::CacheForm`] for one of keys and values.
    pub fn recurrent(&mut self) -> Result<&mut RecurrentCache, EngineError> {
        match self {
            Self::Recurrent(cache) => Ok(cache),
            Self::Plain(_) | Self::Rotating(_) => Err(EngineError::CacheForm {
                found: "keys and values".to_owned(),
                wanted: "a recurrent state".to_owned(),
            }),
        }
    }

    /// The mask for `count` new positions, to be asked for before [`KvCache::update`]. A recurrent layer
    /// masks nothing: rows of a batch have equal lengths here (`create_ssm_mask`).
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn mask(&self, count: i32, window: Option<i32>) -> Result<Mask, EngineError> {
        match self {
            Self::Plain(cache) => cache.mask(count, window),
            Self::Rotating(cache) => cache.mask(count, window),
            Self::Recurrent(_) => Ok(Mask::Full),
        }
    }

    /// The column of the newest position among the keys that the last [`KvCache::update`] returned.
    pub fn newest(&self) -> i32 {
        match self {
            Self::Plain(cache) => cache.offset() - 1,
            Self::Rotating(cache) => cache.newest(),
            Self::Recurrent(cache) => cache.offset() - 1,
        }
    }

    /// The arrays, for evaluation between prefill chunks.
    pub fn state(&self) -> impl Iterator<Item = &Array> {
        self.arrays().into_iter().flatten().map(|(_, array)| array)
    }

    /// Sequences side by side in the arrays; none before the first update.
    pub fn batch(&self) -> Option<usize> {
        self.arrays().map(|[(_, first), _]| first.dim(0) as usize)
    }

    /// The rows that later positions may attend to, oldest first; none before the first update and for a
    /// recurrent layer.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub(crate) fn in_order(&self) -> Result<Option<(Array, Array)>, EngineError> {
        let Some(buffers) = self.buffers() else { return Ok(None) };
        let rows = match self {
            Self::Rotating(cache) => buffers.map(|buffer| cache.in_order(buffer))?,
            Self::Plain(_) | Self::Recurrent(_) => plain::filled(buffers, self.offset())?,
        };
        Ok(Some((rows.keys, rows.values)))
    }

    /// Whether [`KvCache::trim`] can forget the newest positions: a window may not have wrapped, and a
    /// recurrent state cannot go back.
    pub fn is_trimmable(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Rotating(cache) => cache.is_trimmable(),
            Self::Recurrent(_) => false,
        }
    }

    /// Forgets the newest `count` positions and returns how many it forgot: at most all, and none
    /// where the cache is not trimmable.
    pub fn trim(&mut self, count: i32) -> i32 {
        match self {
            Self::Plain(cache) => cache.trim(count),
            Self::Rotating(cache) => cache.trim(count),
            Self::Recurrent(_) => 0,
        }
    }

    /// Counts `count` positions as seen without writing their rows, where the buffers have room:
    /// for a deliberate fault.
    pub(crate) fn skip(&mut self, count: i32) {
        let room = self.buffers().map_or(0, Buffers::capacity) - self.offset();
        match self {
            _ if count > room => {}
            Self::Plain(cache) => cache.skip(count),
            Self::Rotating(cache) => cache.skip(count),
            Self::Recurrent(_) => {}
        }
    }

    fn buffers(&self) -> Option<&Buffers> {
        match self {
            Self::Plain(cache) => cache.buffers(),
            Self::Rotating(cache) => cache.buffers(),
            Self::Recurrent(_) => None,
        }
    }

    /// The two arrays and their names in a file of saved caches.
    fn arrays(&self) -> Option<[(&'static str, &Array); 2]> {
        if let Self::Recurrent(cache) = self {
            let RecurrentState { conv, memory } = cache.state()?;
            return Some([("conv", conv), ("memory", memory)]);
        }
        let Buffers { keys, values } = self.buffers()?;
        Some([("keys", keys), ("values", values)])
    }
}

/// The two buffers of one layer.
#[derive(Debug, Clone)]
pub(crate) struct Buffers {
    pub(crate) keys: Array,
    pub(crate) values: Array,
}

impl Buffers {
    /// Applies one step to both buffers.
    pub(crate) fn map(
        &self,
        step: impl Fn(&Array) -> Result<Array, EngineError>,
    ) -> Result<Self, EngineError> {
        Ok(Self { keys: step(&self.keys)?, values: step(&self.values)? })
    }

    /// Positions the buffers have room for.
    pub(crate) fn capacity(&self) -> i32 {
        self.keys.dim(2)
    }
}
