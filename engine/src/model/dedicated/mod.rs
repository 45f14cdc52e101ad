//! Architectures with a network of their own.

pub(super) mod diffusion_gemma;
pub(super) mod gemma4;
mod minicpm5;
mod qwen3;
pub(super) mod qwen3_5;

use super::ladder::Dedicated;

/// One row a network; those of one type stand in the order in which they are asked whether they fit.
pub(super) const DEDICATED: &[Dedicated] = &[
    diffusion_gemma::ROW,
    gemma4::ROW,
    gemma4::TEXT_ROW,
    minicpm5::ROW,
    qwen3::ROW,
    qwen3_5::ROW,
    qwen3_5::MOE_ROW,
];
