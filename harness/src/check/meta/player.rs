//! Decoders of one model and composition.

use std::{cell::RefCell, collections::HashMap};

use mlx_parity_engine::{Composition, Decoder, EngineError, KvBits, Model};
use mlx_parity_tensor::HostTensor;

use super::{Bench, MetaError};
use crate::meta::KvPacking;

/// A model and what its decoders compute with.
pub(super) struct Player<'m> {
    pub(super) model: &'m Model,
    composition: Composition,
    known: &'m Known,
    /// Tokens behind a cut that are run one by one at most; all where it says nothing.
    pub(super) one_by_one: Option<usize>,
}

/// Answers that several ways are compared with, by what was asked.
pub(super) type Known = RefCell<HashMap<String, HostTensor>>;

impl<'m> Player<'m> {
    pub(super) fn new(bench: &'m Bench) -> Self {
        let model = &bench.model;
        let packed =
            |kv: KvPacking| Composition::uniform(model, KvBits { bits: kv.bits, group: kv.group });
        Self {
            model,
            composition: bench.kv.map_or_else(Composition::l1, packed),
            known: &bench.known,
            one_by_one: bench.one_by_one,
        }
    }

    /// The answer to a question that may have been asked before.
    pub(super) fn known(
        &self,
        question: String,
        ask: impl FnOnce() -> Result<HostTensor, MetaError>,
    ) -> Result<HostTensor, MetaError> {
        if let Some(answer) = self.known.borrow().get(&question) {
            return Ok(answer.clone());
        }
        let answer = ask()?;
        self.known.borrow_mut().insert(question, answer.clone());
        Ok(answer)
    }

    /// Whether keys and values are packed.
    pub(super) fn packs(&self) -> bool {
        !self.composition.kv.is_empty()
    }

    /// A decoder at the start of a sequence.
    pub(super) fn start(&self, step: usize) -> Result<Decoder<'m>, EngineError> {
        Decoder::with(self.model, step, &self.composition)
    }
}
