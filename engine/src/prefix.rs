//! Prompts that begin as earlier ones did: `LRUPromptCache` of `mlx_lm/models/cache.py`.

use std::collections::VecDeque;

use crate::decoder::{Decoder, Snapshot};
use crate::error::EngineError;

/// Caches of sequences that were run before, the least recently used of which are dropped first. They
/// share their arrays with the decoders that they came from and go to; whoever writes first copies.
#[derive(Debug)]
pub struct PrefixStore {
    /// The most recently used one last.
    kept: VecDeque<Kept>,
    sequences: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Kept {
    ids: Vec<u32>,
    snapshot: Snapshot,
}

impl PrefixStore {
    /// An empty store of at most so many sequences, and so many bytes of their caches.
    pub fn new(sequences: usize, bytes: usize) -> Self {
        Self { kept: VecDeque::new(), sequences, bytes }
    }

    /// Sequences kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Bytes of the caches kept.
    pub fn bytes(&self) -> usize {
        self.kept.iter().map(|kept| kept.snapshot.bytes()).sum()
    }

    /// Keeps what a decoder has run: the sequence `ids`. One that is the beginning of it and of no more
    /// use is dropped.
    ///
    /// # Errors
    /// [`EngineError::BatchSize`] for several sequences, [`EngineError::PrefixLength`] where the decoder
    /// has not seen as many tokens, [`EngineError::DecoderFailed`] after a failed call.
    pub fn keep(&mut self, decoder: &Decoder, ids: &[u32]) -> Result<(), EngineError> {
        let snapshot = decoder.snapshot()?;
        if decoder.offset() != ids.len() {
            let (found, wanted) = (ids.len(), decoder.offset());
            return Err(EngineError::PrefixLength { found, wanted });
        }
        let of_use = |kept: &Kept| {
            let begins = ids.starts_with(&kept.ids) && kept.snapshot.is_like(&snapshot);
            let back = ids.len() - kept.ids.len().min(ids.len());
            !(begins && (back == 0 || snapshot.can_go_back(back)))
        };
        self.kept.retain(of_use);
        self.kept.push_back(Kept { ids: ids.to_vec(), snapshot });
        while self.kept.len() > self.sequences || self.bytes() > self.bytes {
            self.kept.pop_front();
        }
        Ok(())
    }

    /// Puts the caches of the longest common beginning of a prompt and a kept sequence into a decoder
    /// that has seen nothing, and returns its length: what is left, at least the last token, is to be
    /// run. Where the caches cannot be cut, since a window has wrapped or a layer is recurrent, only a
    /// sequence that the prompt begins with counts. Those of another model or composition never do.
    ///
    /// # Errors
    /// [`EngineError::PrefixLength`] for a decoder that has seen something; [`EngineError::Op`] where
    /// MLX throws.
    pub fn resume(&mut self, decoder: &mut Decoder, prompt: &[u32]) -> Result<usize, EngineError> {
        if decoder.offset() != 0 {
            return Err(EngineError::PrefixLength { found: 0, wanted: decoder.offset() });
        }
        let most = prompt.len().saturating_sub(1);
        let common = |kept: &Kept| {
            let pairs = kept.ids.iter().zip(&prompt[..most]);
            let common = pairs.take_while(|(kept, id)| kept == id).count();
            let back = kept.ids.len() - common;
            let fits = kept.snapshot.fits(decoder) && kept.snapshot.can_go_back(back);
            if fits { common } else { 0 }
        };
        let best = self.kept.iter().enumerate().max_by_key(|(_, kept)| common(kept));
        let Some((at, length)) = best.map(|(at, kept)| (at, common(kept))) else { return Ok(0) };
        if length == 0 {
            return Ok(0);
        }
        if let Some(kept) = self.kept.remove(at) {
            let adopted = decoder.adopt(&kept.snapshot, kept.ids.len() - length);
            self.kept.push_back(kept);
            adopted?;
        }
        Ok(length)
    }
}
