//! The ledger: which kernels are on by default, and on what evidence. The only thing that can turn one on.
//!
//! Entries carry their evidence and a seal over all they say, so that a decision that was edited by hand, or has
//! no evidence, is refused when it is read. Whoever knows files reads the text.

mod decision;
mod error;
mod seal;
mod wire;

#[cfg(test)]
mod tests;

use std::fmt;

use mlx_parity_tensor::Dtype;

pub use self::decision::{Decision, Evidence, Finding, Verdict, decide};
pub use self::error::LedgerError;

/// Version of the file; a reader refuses any other.
pub const LEDGER_SCHEMA: u32 = 1;

/// Where a kernel runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// `cpu`, `metal`, `cuda`, or `metal-emulated`, which can never be promoted.
    pub backend: String,
    /// Machines whose evidence counts for each other: the architecture of a CPU (`x86_64`), the name of a GPU.
    pub chip: String,
    /// Version of MLX, such as `0.32.2`.
    pub mlx: String,
}

/// What is decided as one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// The candidate.
    pub kernel: String,
    /// Where.
    pub place: Place,
    /// Dtype of activations.
    pub dtype: Dtype,
    /// Class of shapes.
    pub class: String,
    /// [`Spec::digest`](crate::Spec::digest) of the sources that were weighed.
    pub digest: String,
}

impl Cell {
    /// Whether this is the same cell but for the sources and the version of MLX.
    pub fn succeeds(&self, other: &Self) -> bool {
        let key = |cell: &Self| {
            let Place { backend, chip, .. } = cell.place.clone();
            (cell.kernel.clone(), backend, chip, cell.dtype, cell.class.clone())
        };
        key(self) == key(other)
    }
}

/// `fused_decode_sdpa/cpu-x86_64/bf16/decode`
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, place: Place { backend, chip, .. }, dtype, class, .. } = self;
        write!(f, "{kernel}/{backend}-{chip}/{}/{class}", dtype.name())
    }
}

/// A decision about a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The cell.
    pub cell: Cell,
    /// What was decided.
    pub decision: Decision,
    /// What was found of each evidence, in order.
    pub evidence: Vec<Finding>,
    /// The recorded run that found it, as a folder name.
    pub record: String,
    /// SHA-256 of all the above, in hex.
    pub seal: String,
}

impl Entry {
    /// A sealed entry whose decision follows from its findings.
    pub fn new(cell: Cell, evidence: Vec<Finding>, record: String) -> Self {
        let decision = decide(&evidence);
        let mut entry = Self { cell, decision, evidence, record, seal: String::new() };
        entry.seal = seal::of(&entry);
        entry
    }

    /// Reasons of a decision that is not to promote: the findings that do not hold.
    pub fn reasons(&self) -> impl Iterator<Item = &Finding> {
        self.evidence.iter().filter(|finding| !finding.verdict.holds())
    }
}

/// Decisions, one a cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    entries: Vec<Entry>,
}

impl Ledger {
    /// Reads the text of a ledger.
    ///
    /// # Errors
    /// [`LedgerError`] for an unknown field, another version, two entries of one cell, a seal that does not fit,
    /// and a decision that does not follow from its evidence.
    pub fn parse(text: &str) -> Result<Self, LedgerError> {
        wire::parse(text)
    }

    /// The text of the ledger, which [`parse`](Self::parse) reads.
    pub fn to_toml(&self) -> String {
        wire::text(self)
    }

    /// Every entry, sorted by cell.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Puts an entry in the place of that of its cell, whatever sources and version of MLX that one was about.
    pub fn put(&mut self, entry: Entry) {
        self.entries.retain(|old| !entry.cell.succeeds(&old.cell));
        let at = self.entries.partition_point(|old| old.cell < entry.cell);
        self.entries.insert(at, entry);
    }

    /// The entry of a cell, whatever sources and version of MLX it is about.
    pub fn find(&self, cell: &Cell) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.cell.succeeds(cell))
    }

    /// Whether exactly this cell, sources and version of MLX included, is promoted.
    pub fn promotes(&self, cell: &Cell) -> bool {
        let promoted = |entry: &Entry| entry.decision == Decision::Promote && entry.cell == *cell;
        self.entries.iter().any(promoted)
    }
}
