//! The one list of kernels.

use crate::candidate::Candidate;
use crate::flash_attention::FlashAttention;
use crate::flash_attention_vjp::FlashAttentionVjp;
use crate::flash_cce::FlashCce;
use crate::flash_cce_vjp::FlashCceVjp;
use crate::fused_decode_sdpa::FusedDecodeSdpa;
use crate::fused_geglu::FusedGeglu;
use crate::fused_geglu_vjp::FusedGegluVjp;
use crate::fused_mlp::FusedMlp;
use crate::fused_qkv_rope::FusedQkvRope;
use crate::fused_swiglu::FusedSwiglu;
use crate::fused_swiglu_f32::FusedSwigluF32;

/// Every candidate.
#[rustfmt::skip]
pub const CANDIDATES: &[&dyn Candidate] = &[
    &FusedSwiglu,
    &FusedSwigluF32,
    &FusedMlp,
    &FusedGeglu,
    &FusedGegluVjp,
    &FusedQkvRope,
    &FusedDecodeSdpa,
    &FlashAttention,
    &FlashAttentionVjp,
    &FlashCce,
    &FlashCceVjp,
];

/// A candidate by its id.
pub fn candidate(id: &str) -> Option<&'static dyn Candidate> {
    CANDIDATES.iter().copied().find(|candidate| candidate.spec().id == id)
}
