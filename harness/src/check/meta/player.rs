//! Decoders of one model and composition.

use mlx_parity_engine::{Composition, Decoder, EngineError, KvBits, Model};

use super::Bench;
use crate::meta::KvPacking;

/// A model and what its decoders compute with.
pub(super) struct Player<'m> {
    pub(super) model: &'m Model,
    composition: Composition,
}

impl<'m> Player<'m> {
    pub(super) fn new(bench: &'m Bench) -> Self {
        let model = &bench.model;
        let packed =
            |kv: KvPacking| Composition::uniform(model, KvBits { bits: kv.bits, group: kv.group });
        Self { model, composition: bench.kv.map_or_else(Composition::l1, packed) }
    }

    /// A decoder at the start of a sequence.
    pub(super) fn start(&self, step: usize) -> Result<Decoder<'m>, EngineError> {
        Decoder::with(self.model, step, &self.composition)
    }
}
