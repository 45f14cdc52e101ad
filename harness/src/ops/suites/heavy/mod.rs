//! Products, quantization, norms, attention, convolution and losses: one file for each op.

pub(super) mod addmm;
pub(super) mod condition;
pub(super) mod conv1d;
pub(super) mod cross_entropy;
pub(super) mod dequantize;
pub(super) mod gather_mm;
pub(super) mod gather_qmm;
pub(super) mod group_norm;
pub(super) mod layer_norm;
mod mask;
pub(super) mod matmul;
mod operand;
mod packed;
pub(super) mod quantize;
pub(super) mod quantized_matmul;
pub(super) mod quantized_sdpa;
pub(super) mod rms_norm;
pub(super) mod rope;
mod rope_scaling;
pub(super) mod sdpa;

#[cfg(test)]
mod tests;
