//! The one list of kernels.

use crate::candidate::Candidate;
use crate::fused_geglu::FusedGeglu;

/// Every candidate.
pub const CANDIDATES: &[&dyn Candidate] = &[&FusedGeglu];

/// A candidate by its id.
pub fn candidate(id: &str) -> Option<&'static dyn Candidate> {
    CANDIDATES.iter().copied().find(|candidate| candidate.spec().id == id)
}
