//! Quantized matrices as operands: packed words, scales, and biases where the mode has them.
//!
//! Arguments: `mode` = `"affine"` (default), `"mxfp4"`, `"mxfp8"`, `"nvfp4"`; `bits` (4) and
//! `group` (64) for affine.

#[cfg(feature = "engine")]
use mlx_parity_engine::{
    Array,
    ops::{Affine, packed},
};
use mlx_parity_oracles::ops::{Mode, QuantizeRule, Quantized, Scales, quantize};
use mlx_parity_oracles::{PackedTensor, Tensor};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::operand;
use crate::ops::{Call, SuiteError};

/// The quantization mode of a call.
pub fn mode(call: &Call) -> Result<Mode, SuiteError> {
    Ok(match call.text_or("mode", "affine")? {
        "affine" => {
            let bits = call.size_or("bits", 4)? as u32;
            Mode::Affine { bits, group_size: call.size_or("group", 64)? }
        }
        "mxfp4" => Mode::Mxfp4,
        "mxfp8" => Mode::Mxfp8,
        "nvfp4" => Mode::Nvfp4 { global_scale: None },
        _ => return Err(call.wrong("mode", "affine, mxfp4, mxfp8 or nvfp4").into()),
    })
}

/// How many operands a matrix of this mode is.
pub fn parts(mode: Mode) -> usize {
    if matches!(mode, Mode::Affine { .. }) { 3 } else { 2 }
}

/// Quantizes with ref64: words (u32), then scales and biases in the call's dtype, or scale codes
/// (u8).
pub fn pack(call: &Call, w: &HostTensor) -> Result<Vec<HostTensor>, SuiteError> {
    let packed = quantize(&operand::wide(w), mode(call)?, QuantizeRule::MLX)?;
    let words = HostTensor::from_u32(packed.words().shape(), packed.words().data())?;
    Ok(match packed.scales() {
        Scales::Affine { scales, biases } => {
            vec![
                words,
                operand::rounded(call.dtype, scales)?,
                operand::rounded(call.dtype, biases)?,
            ]
        }
        Scales::Codes(codes) => {
            vec![words, HostTensor::new(Dtype::U8, codes.shape(), codes.data().to_vec())?]
        }
    })
}

/// The matrix that operands stand for.
pub fn unpack(mode: Mode, parts: &[HostTensor]) -> Result<Quantized, SuiteError> {
    let words = PackedTensor::from_host(&parts[0])?;
    let scales = match parts.get(2) {
        Some(biases) if matches!(mode, Mode::Affine { .. }) => {
            Scales::Affine { scales: operand::wide(&parts[1]), biases: operand::wide(biases) }
        }
        _ => Scales::Codes(Tensor::<u8>::from_host(&parts[1])?),
    };
    Ok(Quantized::new(mode, words, scales)?)
}

/// The mode as the engine names it.
#[cfg(feature = "engine")]
pub fn engine_mode(mode: Mode) -> packed::Mode {
    match mode {
        Mode::Affine { bits, group_size } => {
            packed::Mode::Affine(Affine { group_size: group_size as i32, bits: bits as i32 })
        }
        Mode::Mxfp4 => packed::Mode::Mxfp4,
        Mode::Mxfp8 => packed::Mode::Mxfp8,
        Mode::Nvfp4 { .. } => packed::Mode::Nvfp4,
    }
}

/// The matrix that a call's arrays stand for, as the engine takes it.
#[cfg(feature = "engine")]
pub fn engine_matrix(mode: Mode, parts: &[Array]) -> packed::Packed {
    let biases = parts.get(2).filter(|_| self::parts(mode) == 3).cloned();
    let (words, scales) = (parts[0].clone(), parts[1].clone());
    packed::Packed { words, scales, biases, mode: engine_mode(mode) }
}
