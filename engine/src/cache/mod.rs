//! Caches, layer by layer, as `mlx_lm/models/cache.py` keeps them: keys and values of positions, or the
//! state of a recurrent layer.

mod batch;
mod buffers;
mod mask;
mod named;
mod padded;
mod padded_rotating;
mod plain;
mod poison;
mod quantized;
mod recurrent;
mod rotating;
mod rotating_quantized;
mod rows;
mod saved;
mod spoil;

pub(crate) use buffers::Buffers;
pub use buffers::Part;
pub use mask::{DeadRows, MaskRule, added, causal_mask};
pub use padded::PaddedCache;
pub use padded_rotating::PaddedRotatingCache;
pub use plain::PlainCache;
pub use quantized::QuantizedCache;
pub use recurrent::{RecurrentCache, RecurrentForm, RecurrentState};
pub use rotating::RotatingCache;
pub use rotating_quantized::RotatingQuantizedCache;
pub use rows::Rows;
pub(crate) use saved::{Form, load, save};

use mlx_rs::Array;

use crate::composition::Route;
use crate::error::EngineError;
use crate::fault;
use crate::nn::Position;
use crate::ops::packed::Packed;
use crate::ops::{Affine, Mask};

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
    /// Keeps every position, packed.
    Quantized(QuantizedCache),
    /// Keeps a window of positions, packed.
    RotatingQuantized(RotatingQuantizedCache),
    /// Keeps every position of sequences of several lengths.
    Padded(PaddedCache),
    /// Keeps a window of positions of sequences of several lengths.
    PaddedRotating(PaddedRotatingCache),
    /// Keeps what all positions add up to.
    Recurrent(RecurrentCache),
}

impl KvCache {
    /// Tokens seen so far: the position of the next one; rows seen so far where sequences of several
    /// lengths stand side by side.
    pub fn offset(&self) -> i32 {
        match self {
            Self::Padded(cache) => cache.seen(),
            Self::PaddedRotating(cache) => cache.seen(),
            Self::Plain(cache) => cache.offset(),
            Self::Rotating(cache) => cache.offset(),
            Self::Quantized(cache) => cache.offset(),
            Self::RotatingQuantized(cache) => cache.offset(),
            Self::Recurrent(cache) => cache.offset(),
        }
    }

    /// Where the next token stands, for a rotary encoding.
    pub fn position(&self) -> Position {
        match self {
            Self::Plain(cache) => cache.position(),
            Self::Quantized(cache) => cache.position(),
            _ => self.offset().into(),
        }
    }

    /// Where the next token of each sequence stands, where they differ.
    pub fn offsets(&self) -> Option<Vec<i32>> {
        match self {
            Self::Padded(cache) => Some(cache.offsets()),
            Self::PaddedRotating(cache) => Some(cache.offsets().to_vec()),
            _ => None,
        }
    }

    /// The number of [`KvCache::position`] as an array, i32, for segments that are traced; `[sequences]`
    /// where they differ.
    pub fn position_array(&self) -> Array {
        if let Some(offsets) = self.offsets() {
            return Array::from_slice(&offsets, &[offsets.len() as i32]);
        }
        Array::from_int(self.position().offset)
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
            Self::Quantized(cache) => {
                cache.expect(length);
                return Ok(());
            }
            Self::Rotating(_) | Self::RotatingQuantized(_) | Self::PaddedRotating(_) => "a window",
            Self::Padded(_) => "sequences of several lengths",
            Self::Recurrent(_) => "a recurrent state",
        };
        let wanted = "every position, as rotations that change with the length need".to_owned();
        Err(EngineError::CacheForm { found: found.to_owned(), wanted })
    }

    /// Takes the keys and values of new positions in and returns all that may be attended to.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws, and [`EngineError::CacheForm`] on every update after that;
    /// [`EngineError::CacheForm`] for a recurrent layer's cache and for rows that are not of four axes,
    /// [`EngineError::BatchSize`] for another number of sequences than there are.
    pub fn update(&mut self, keys: &Array, values: &Array) -> Result<Rows, EngineError> {
        self.takes(keys, values)?;
        fault::point(|| "before a cache update".to_owned())?;
        let rows = self.write(keys, values)?;
        fault::point(|| "behind a cache update".to_owned())?;
        Ok(rows)
    }

    /// Whether new rows fit those there are. MLX itself would repeat a single sequence for all.
    fn takes(&self, keys: &Array, values: &Array) -> Result<(), EngineError> {
        let form = |found: String, wanted: String| Err(EngineError::CacheForm { found, wanted });
        for rows in [keys, values] {
            if rows.ndim() != 4 || rows.dim(2) != keys.dim(2) || rows.dim(2) == 0 {
                let wanted = "[batch, kv_heads, positions, head_dim], as many of both";
                return form(format!("rows {:?}", rows.shape()), wanted.to_owned());
            }
        }
        let held = match self {
            Self::Recurrent(_) => return Ok(()),
            Self::Plain(_) | Self::Rotating(_) | Self::Padded(_) | Self::PaddedRotating(_) => {
                self.buffers().map(|all| all.keys.batch())
            }
            Self::Quantized(_) | Self::RotatingQuantized(_) => {
                self.packed().map(|all| all.keys.batch())
            }
        };
        let found = keys.dim(0) as usize;
        match held {
            Some(held) if held != keys.dim(0) => {
                Err(EngineError::BatchSize { found, wanted: held as usize })
            }
            None if self.offset() > 0 => {
                let wanted = format!("{} positions", self.offset());
                form("nothing, after an update that failed".to_owned(), wanted)
            }
            _ => Ok(()),
        }
    }

    fn write(&mut self, keys: &Array, values: &Array) -> Result<Rows, EngineError> {
        let (keys, values) = match self {
            Self::Plain(cache) => cache.update(keys, values)?,
            Self::Rotating(cache) => cache.update(keys, values)?,
            Self::Padded(cache) => cache.update(keys, values)?,
            Self::PaddedRotating(cache) => cache.update(keys, values)?,
            Self::Quantized(cache) => return cache.update(keys, values),
            Self::RotatingQuantized(cache) => return cache.update(keys, values),
            Self::Recurrent(_) => {
                return Err(EngineError::CacheForm {
                    found: "a recurrent state".to_owned(),
                    wanted: "keys and values".to_owned(),
                });
            }
        };
        Ok(Rows::Plain { keys, values })
    }

    /// Whether it keeps keys and values, plain or packed.
    pub fn keeps_rows(&self) -> bool {
        !matches!(self, Self::Recurrent(_))
    }

    /// The size of its window and how much of it is kept for ever; none where it has no window.
    pub(crate) fn window(&self) -> Option<[i32; 2]> {
        let counters = match self {
            Self::Rotating(cache) => cache.counters(),
            Self::RotatingQuantized(cache) => cache.rows().counters(),
            _ => return None,
        };
        Some([counters.max_size, counters.keep])
    }

    /// Packs a plain cache's rows, and has it pack what comes; any other stays as it is
    /// (`quantize_cache_layer` of mlx-optiq's `runtime/kv/rotating.py`).
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws, as for a width that the group size does not divide.
    pub(crate) fn pack(&mut self, packing: Affine, route: Route) -> Result<(), EngineError> {
        match self {
            Self::Plain(cache) => {
                *self = Self::Quantized(QuantizedCache::of(cache, packing, route)?);
            }
            Self::Rotating(cache) => {
                let packed = RotatingQuantizedCache::of(cache, packing, route)?;
                *self = Self::RotatingQuantized(packed);
            }
            _ => {}
        }
        Ok(())
    }

    /// The cache of a recurrent layer.
    ///
    /// # Errors
    /// [`EngineError::CacheForm`] for one of keys and values.
    pub fn recurrent(&mut self) -> Result<&mut RecurrentCache, EngineError> {
        match self {
            Self::Recurrent(cache) => Ok(cache),
            _ => Err(EngineError::CacheForm {
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
            Self::Quantized(cache) => cache.mask(count, window),
            Self::RotatingQuantized(cache) => cache.mask(count, window),
            Self::Padded(cache) => cache.mask(count, window),
            Self::PaddedRotating(cache) => cache.mask(count, window),
            Self::Recurrent(_) => Ok(Mask::Full),
        }
    }

    /// The column of the newest position among the keys that the last [`KvCache::update`] returned.
    pub fn newest(&self) -> i32 {
        match self {
            Self::Rotating(cache) => cache.newest(),
            Self::RotatingQuantized(cache) => cache.rows().newest(),
            Self::PaddedRotating(cache) => cache.newest(),
            _ => self.offset() - 1,
        }
    }

    /// The arrays, for evaluation between prefill chunks.
    pub fn state(&self) -> impl Iterator<Item = &Array> {
        self.arrays().into_iter().map(|(_, array)| array)
    }

    /// Bytes of the arrays.
    pub fn bytes(&self) -> usize {
        self.state().map(Array::nbytes).sum()
    }

    /// Sequences side by side in the arrays; none before the first update.
    pub fn batch(&self) -> Option<usize> {
        self.arrays().first().map(|(_, first)| first.dim(0) as usize)
    }

    /// The rows that later positions may attend to, oldest first; none before the first update, and
    /// where a cache holds something else than plain rows.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub(crate) fn in_order(&self) -> Result<Option<(Array, Array)>, EngineError> {
        let Some(buffers) = self.buffers() else { return Ok(None) };
        let rows = match self {
            Self::Rotating(cache) => buffers.map(|buffer| cache.in_order(buffer))?,
            _ => buffers.filled(self.offset())?,
        };
        Ok(Some((rows.keys, rows.values)))
    }

    /// Whether [`KvCache::trim`] can forget the newest positions: a window may not have wrapped, and a
    /// recurrent state cannot go back.
    pub fn is_trimmable(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Quantized(_) => true,
            Self::Rotating(cache) => cache.is_trimmable(),
            Self::RotatingQuantized(cache) => cache.is_trimmable(),
            Self::Padded(_) => true,
            Self::PaddedRotating(cache) => cache.is_trimmable(),
            Self::Recurrent(_) => false,
        }
    }

    /// Forgets the newest `count` positions and returns how many it forgot: at most all, and none
    /// where the cache is not trimmable.
    pub fn trim(&mut self, count: i32) -> i32 {
        match self {
            Self::Plain(cache) => cache.trim(count),
            Self::Rotating(cache) => cache.trim(count),
            Self::Quantized(cache) => cache.trim(count),
            Self::RotatingQuantized(cache) => cache.trim(count),
            Self::Padded(cache) => cache.trim(count),
            Self::PaddedRotating(cache) => cache.trim(count),
            Self::Recurrent(_) => 0,
        }
    }

    /// The newest positions that [`KvCache::rollback`] can take back: none of a recurrent state, which
    /// only a copy from before them can, and of sequences side by side those that a trim can.
    pub fn revocable(&self) -> i32 {
        match self {
            Self::Plain(cache) => cache.offset(),
            Self::Rotating(cache) => cache.revocable(),
            Self::Quantized(cache) => cache.offset(),
            Self::RotatingQuantized(cache) => cache.rows().revocable(),
            Self::Padded(_) | Self::PaddedRotating(_) if self.is_trimmable() => self.offset(),
            Self::Padded(_) | Self::PaddedRotating(_) => 0,
            Self::Recurrent(_) => 0,
        }
    }

    /// Takes the newest `count` positions back, as speculative decoding does with those it guessed
    /// wrong: right behind the write that brought them also where a window has wrapped.
    ///
    /// # Errors
    /// [`EngineError::NotRevocable`] where that is more than [`KvCache::revocable`], and
    /// [`EngineError::Op`] where MLX throws; nothing is taken back.
    pub fn rollback(&mut self, count: i32) -> Result<(), EngineError> {
        match self {
            Self::Plain(cache) => cache.rollback(count),
            Self::Rotating(cache) => cache.rollback(count),
            Self::Quantized(cache) => cache.rows_mut().rollback(count),
            Self::RotatingQuantized(cache) => cache.rows_mut().rollback(count),
            Self::Padded(_) | Self::PaddedRotating(_) => {
                refuse_beyond(self.revocable(), count)?;
                self.trim(count);
                Ok(())
            }
            Self::Recurrent(_) => refuse_beyond(0, count),
        }
    }

    /// Counts `count` positions as seen without writing their rows, where the buffers have room:
    /// for a deliberate fault.
    pub(crate) fn skip(&mut self, count: i32) {
        let plain = self.buffers().map(Buffers::capacity);
        let capacity = plain.or_else(|| self.packed().map(Buffers::capacity));
        match self {
            _ if count > capacity.unwrap_or(0) - self.offset() => {}
            Self::Plain(cache) => cache.skip(count),
            Self::Rotating(cache) => cache.skip(count),
            Self::Quantized(cache) => cache.rows_mut().skip(count),
            Self::RotatingQuantized(cache) => cache.rows_mut().skip(count),
            Self::Padded(_) | Self::PaddedRotating(_) | Self::Recurrent(_) => {}
        }
    }

    /// Plain buffers.
    fn buffers(&self) -> Option<&Buffers> {
        match self {
            Self::Plain(cache) => cache.buffers(),
            Self::Rotating(cache) => cache.buffers(),
            Self::Padded(cache) => cache.buffers(),
            Self::PaddedRotating(cache) => cache.buffers(),
            _ => None,
        }
    }

    /// Packed buffers.
    fn packed(&self) -> Option<&Buffers<Packed>> {
        match self {
            Self::Quantized(cache) => cache.rows().buffers(),
            Self::RotatingQuantized(cache) => cache.rows().buffers(),
            _ => None,
        }
    }

    /// The arrays and their names in a file of saved caches; none before the first update.
    fn arrays(&self) -> Vec<(&'static str, &Array)> {
        match self {
            Self::Recurrent(cache) => match cache.state() {
                Some(RecurrentState { conv, memory }) => vec![("conv", conv), ("memory", memory)],
                None => Vec::new(),
            },
            Self::Plain(_) | Self::Rotating(_) | Self::Padded(_) | Self::PaddedRotating(_) => {
                match self.buffers() {
                    Some(Buffers { keys, values }) => vec![("keys", keys), ("values", values)],
                    None => Vec::new(),
                }
            }
            Self::Quantized(_) | Self::RotatingQuantized(_) => match self.packed() {
                Some(Buffers { keys, values }) => packed_arrays(keys, values),
                None => Vec::new(),
            },
        }
    }
}

/// Refuses to take more positions back than can be.
fn refuse_beyond(revocable: i32, count: i32) -> Result<(), EngineError> {
    if (0..=revocable).contains(&count) {
        return Ok(());
    }
    Err(EngineError::NotRevocable { found: count as usize, revocable: revocable as usize })
}

fn packed_arrays<'a>(keys: &'a Packed, values: &'a Packed) -> Vec<(&'static str, &'a Array)> {
    let biases = |name, packed: &'a Packed| packed.biases.as_ref().map(|biases| (name, biases));
    let mut arrays = vec![("keys.words", &keys.words), ("keys.scales", &keys.scales)];
    arrays.extend(biases("keys.biases", keys));
    arrays.extend([("values.words", &values.words), ("values.scales", &values.scales)]);
    arrays.extend(biases("values.biases", values));
    arrays
}
