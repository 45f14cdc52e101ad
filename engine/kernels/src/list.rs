//! The one list of kernels.

use crate::candidate::Candidate;

/// Every candidate.
pub const CANDIDATES: &[&dyn Candidate] = &[];

/// A candidate by its id.
pub fn candidate(id: &str) -> Option<&'static dyn Candidate> {
    CANDIDATES.iter().copied().find(|candidate| candidate.spec().id == id)
}
