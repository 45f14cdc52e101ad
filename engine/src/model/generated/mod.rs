//! Networks for one config each, written by `cargo xtask gen-model`; do not edit.

mod gemma4_e5b2ff88;
mod llama_39e41511;

use super::ladder::Generated;

/// One row a network.
pub(super) const GENERATED: &[Generated] = &[gemma4_e5b2ff88::ROW, llama_39e41511::ROW];
