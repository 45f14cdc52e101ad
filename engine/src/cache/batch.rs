//! Sequences joining and leaving the caches of several.

use super::{KvCache, PaddedCache, PaddedRotatingCache};
use crate::error::EngineError;

impl KvCache {
    /// `merge` of one: the cache of one sequence as others can stand beside it.
    ///
    /// # Errors
    /// [`EngineError::CacheForm`] for packed rows, for a window that keeps rows for ever and for several
    /// sequences; [`EngineError::Op`] where MLX throws.
    pub(crate) fn beside(&self) -> Result<Self, EngineError> {
        if let Some(batch) = self.batch().filter(|batch| *batch != 1) {
            return Err(form(&format!("{batch} sequences"), "one"));
        }
        Ok(match self {
            Self::Plain(cache) => Self::Padded(PaddedCache::of(cache)?),
            Self::Rotating(cache) => Self::PaddedRotating(PaddedRotatingCache::of(cache)?),
            Self::Recurrent(cache) => Self::Recurrent(cache.clone()),
            other => return Err(form(&other.to_string(), "plain rows or a recurrent state")),
        })
    }

    /// An empty cache like this one for sequences that begin with so much padding.
    ///
    /// # Errors
    /// [`EngineError::CacheForm`] for packed rows and recurrent states.
    pub(crate) fn padded(&self, padding: &[i32]) -> Result<Self, EngineError> {
        Ok(match self {
            Self::Plain(_) => Self::Padded(PaddedCache::new(padding.to_vec())),
            Self::Rotating(cache) => {
                let size = cache.counters().max_size;
                Self::PaddedRotating(PaddedRotatingCache::new(size, padding.to_vec()))
            }
            other => return Err(form(&other.to_string(), "plain rows")),
        })
    }

    /// Other sequences behind these.
    ///
    /// # Errors
    /// [`EngineError::CacheForm`] for a cache of another kind, [`EngineError::Op`] where MLX throws.
    pub(crate) fn extend(&mut self, other: Self) -> Result<(), EngineError> {
        match (self, other) {
            (Self::Padded(cache), Self::Padded(other)) => cache.extend(&other),
            (Self::PaddedRotating(cache), Self::PaddedRotating(other)) => cache.extend(other),
            (Self::Recurrent(cache), Self::Recurrent(other)) => cache.extend(&other),
            (cache, other) => Err(form(&other.to_string(), &cache.to_string())),
        }
    }

    /// The sequences at the given places alone.
    ///
    /// # Errors
    /// [`EngineError::CacheForm`] for a cache that no other sequence can join, [`EngineError::Op`] where
    /// MLX throws.
    pub(crate) fn filter(&mut self, keep: &[usize]) -> Result<(), EngineError> {
        match self {
            Self::Padded(cache) => cache.filter(keep),
            Self::PaddedRotating(cache) => cache.filter(keep),
            Self::Recurrent(cache) => cache.filter(keep),
            other => Err(form(&other.to_string(), "sequences side by side")),
        }
    }

    /// The cache of the sequence at a place, alone.
    ///
    /// # Errors
    /// As [`KvCache::filter`].
    pub(crate) fn extract(&self, at: usize) -> Result<Self, EngineError> {
        Ok(match self {
            Self::Padded(cache) => Self::Plain(cache.extract(at)?),
            Self::PaddedRotating(cache) => Self::Rotating(cache.extract(at)?),
            Self::Recurrent(cache) => Self::Recurrent(cache.extract(at)?),
            other => return Err(form(&other.to_string(), "sequences side by side")),
        })
    }
}

fn form(found: &str, wanted: &str) -> EngineError {
    EngineError::CacheForm { found: found.to_owned(), wanted: wanted.to_owned() }
}
