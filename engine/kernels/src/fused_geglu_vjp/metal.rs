//! How `kernel.metal` is launched.

use super::ID;
use crate::call::Call;
use crate::fused_geglu::Pair;
use crate::fused_geglu::metal::{HEADER, elementwise};
use crate::spec::{Metal, source};

/// The Metal source.
pub(crate) const METAL: Metal = Metal {
    header: HEADER,
    body: source!("fused_geglu_vjp/kernel.metal"),
    inputs: &["gate", "up", "cotangent"],
    outputs: &["dgate", "dup"],
    row_contiguous: true,
    atomic_outputs: false,
    launch: |call: &Call<'_>| elementwise(ID, Pair::of(ID, call)?.gate, 2),
};
