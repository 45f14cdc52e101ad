//! The seal of an entry: a digest of all it says.

use sha2::{Digest as _, Sha256};

use super::{Cell, Entry, Place};

/// SHA-256 over every field but the seal, each with its length before it, in hex.
pub(super) fn of(entry: &Entry) -> String {
    let Entry { cell, decision, evidence, record, seal: _ } = entry;
    let Cell { kernel, place: Place { backend, chip, mlx }, dtype, class, digest } = cell;
    let mut hash = Sha256::new();
    let fields = [kernel, backend, chip, mlx, dtype.name(), class, digest, decision.word(), record];
    let findings =
        evidence.iter().flat_map(|of| [of.evidence.code(), of.verdict.word(), of.what.as_str()]);
    for part in fields.into_iter().chain(findings) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
