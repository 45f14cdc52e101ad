//! The matrices that are trained, and the layers they stand beside.

use mlx_rs::Array;

use crate::nn::{Residual, Slot};

/// A layer that an adapter changes, of a model that is not otherwise changed.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The layer's module path.
    pub(crate) path: String,
    /// The block it is in, counted from 0; none for a layer outside of them.
    pub(crate) block: Option<usize>,
    pub(crate) slot: Slot,
    pub(crate) residual: Residual,
}

/// Every pair `lora_a`, `lora_b` of an adapter, in the order of the blocks and, within one, of paths; those
/// of no block come last.
pub(super) struct Pairs(Vec<Planned>);

impl Pairs {
    pub(super) fn new(mut planned: Vec<Planned>) -> Self {
        planned.sort_by_key(|pair| (pair.block.unwrap_or(usize::MAX), pair.path.clone()));
        Self(planned)
    }

    /// The names of all matrices, a before b.
    pub(super) fn names(&self) -> Vec<String> {
        let of = |pair: &Planned| ["lora_a", "lora_b"].map(|part| format!("{}.{part}", pair.path));
        self.0.iter().flat_map(of).collect()
    }

    /// The matrices as the adapter had them, a before b.
    pub(super) fn values(&self) -> Vec<Array> {
        let of = |pair: &Planned| [pair.residual.a.clone(), pair.residual.b.clone()];
        self.0.iter().flat_map(of).collect()
    }

    /// Those of some blocks, or of none.
    pub(super) fn of(&self, blocks: impl Fn(Option<usize>) -> bool) -> Part<'_> {
        // Pairs are sorted by block, so that those of a run of blocks stand together.
        let first = self.0.iter().take_while(|pair| !blocks(pair.block)).count();
        let count = self.0[first..].iter().take_while(|pair| blocks(pair.block)).count();
        Part { pairs: &self.0[first..first + count], first }
    }

    /// All of them.
    pub(super) fn all(&self) -> Part<'_> {
        Part { pairs: &self.0, first: 0 }
    }

    /// The lowest block that is changed; none where only layers outside of blocks are.
    pub(super) fn lowest(&self) -> Option<usize> {
        self.0.first().and_then(|pair| pair.block)
    }

    /// Takes every residual off.
    pub(super) fn unmount(&self) {
        self.0.iter().for_each(|pair| pair.slot.mount(None));
    }
}

/// Pairs that stand together.
#[derive(Clone, Copy)]
pub(super) struct Part<'p> {
    pairs: &'p [Planned],
    first: usize,
}

impl Part<'_> {
    /// Their share of all matrices.
    pub(super) fn share<'v>(&self, values: &'v [Array]) -> &'v [Array] {
        &values[2 * self.first..2 * (self.first + self.pairs.len())]
    }

    /// Puts their share of the matrices beside their layers.
    pub(super) fn mount(&self, share: &[Array]) {
        for (pair, matrices) in self.pairs.iter().zip(share.chunks_exact(2)) {
            let (a, b) = (matrices[0].clone(), matrices[1].clone());
            pair.slot.mount(Some(Residual { a, b, ..pair.residual.clone() }));
        }
    }
}
