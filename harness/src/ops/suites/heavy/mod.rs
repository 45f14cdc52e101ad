//! Products, quantization, norms, attention, convolution and losses: one file for each op.

mod addmm;
pub(super) mod condition;
mod conv1d;
mod cross_entropy;
mod dequantize;
mod gather_mm;
mod gather_qmm;
mod group_norm;
mod layer_norm;
mod mask;
mod matmul;
mod operand;
mod packed;
mod quantize;
mod quantized_matmul;
mod quantized_sdpa;
mod rms_norm;
mod rope;
mod rope_scaling;
mod sdpa;

use mlx_parity_oracles::ops::Op;

use crate::ops::Suite;

/// The suite of one of these ops.
pub fn suite(op: Op) -> Option<&'static dyn Suite> {
    Some(match op {
        Op::Matmul => &matmul::Matmul,
        Op::Addmm => &addmm::Addmm,
        Op::GatherMm => &gather_mm::GatherMm,
        Op::Quantize => &quantize::Quantize,
        Op::Dequantize => &dequantize::Dequantize,
        Op::QuantizedMatmul => &quantized_matmul::QuantizedMatmul,
        Op::GatherQmm => &gather_qmm::GatherQmm,
        Op::RmsNorm => &rms_norm::RmsNorm,
        Op::LayerNorm => &layer_norm::LayerNorm,
        Op::GroupNorm => &group_norm::GroupNorm,
        Op::Rope => &rope::Rope,
        Op::Sdpa => &sdpa::Sdpa,
        Op::QuantizedSdpa => &quantized_sdpa::QuantizedSdpa,
        Op::Conv1d => &conv1d::Conv1d,
        Op::CrossEntropy => &cross_entropy::CrossEntropy,
        _ => return None,
    })
}
