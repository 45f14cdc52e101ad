//! `quantize`: words, scales and biases of affine groups; scale codes and values of the small-float
//! modes.
//!
//! Arguments: `rows`, `columns`, and those of [`packed`](super::packed).
//!
//! Affine codes are compared as packed words: MLX computes them in float32, step by step as the
//! reference does. Small-float codes are compared by the values they stand for, where the two codes
//! next to a tie both count (MLX's CPU takes the first of a table, its Metal kernel the even one).

#[cfg(feature = "engine")]
use mlx_parity_engine::{Array, array, ops};
use mlx_parity_oracles::format::{E2M1, E4M3, FloatFormat};
use mlx_parity_oracles::ops::{Mode, QuantizeRule, Scales, dequantize, quantize};
use mlx_parity_oracles::{Answer, Tensor64};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::{operand, packed};
use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite.
pub struct Quantize;

/// Half the relative distance at which two quotients in float32 are told apart.
const NUDGE: f64 = 1.0 / (1_u64 << 26) as f64;

/// Whether `x` (in units of its group's scale) lies halfway between two codes, or so near that
/// float32 cannot tell.
fn is_tie(element: FloatFormat, x: f64) -> bool {
    element.round(x * (1.0 + NUDGE)) != element.round(x * (1.0 - NUDGE))
}

/// Distance between the codes around `x`.
fn step(element: FloatFormat, x: f64) -> f64 {
    (element.round(x * (1.0 + NUDGE)) - element.round(x * (1.0 - NUDGE))).abs()
}

/// The least power of two that is not below a positive normal number.
fn power_of_two_from(x: f64) -> f64 {
    let floor = f64::from_bits(x.to_bits() & !((1 << 52) - 1));
    if floor < x { 2.0 * floor } else { floor }
}

/// Values exact, except that at a tie half a unit of the condition reaches the other code.
fn values(dtype: Dtype, w: &Tensor64, back: &Answer, codes: &Scales, mode: Mode) -> Answer {
    let Scales::Codes(codes) = codes else { return back.clone() };
    let element = if mode == Mode::Mxfp8 { E4M3 } else { E2M1 };
    let decode = |code: u8| match mode {
        Mode::Nvfp4 { .. } => E4M3.decode(u64::from(code)),
        _ => mlx_parity_oracles::format::decode_e8m0(code),
    };
    let epsilon = super::condition::epsilon(dtype);
    let condition = w.data().iter().enumerate().map(|(i, w)| {
        let scale = decode(codes.data()[i / mode.group_size()]);
        let x = w / scale;
        if scale == 0.0 || !is_tie(element, x) {
            return 0.0;
        }
        // A unit of the condition is a power of two: two steps or more, and less than four.
        let steps = 2.0 * scale * step(element, x);
        power_of_two_from(steps) / epsilon
    });
    let condition: Vec<f64> = condition.collect();
    let mut answer = Answer::exact(back.value.clone());
    answer.condition.data_mut().copy_from_slice(&condition);
    answer
}

impl Suite for Quantize {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        Ok(vec![operand::main(call, source, &[call.size("rows")?, call.size("columns")?])?])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let (mode, w) = (packed::mode(call)?, operand::wide(&operands[0]));
        let found = quantize(&w, mode, QuantizeRule::MLX)?;
        Ok(match found.scales() {
            Scales::Affine { scales, biases } => vec![
                Answer::exact(found.words().map(f64::from)),
                Answer::relative(scales.clone()),
                Answer::relative(biases.clone()),
            ],
            Scales::Codes(codes) => vec![
                Answer::exact(codes.map(f64::from)),
                values(call.dtype, &w, &dequantize(&found), found.scales(), mode),
            ],
        })
    }

    fn outputs(&self, call: &Call) -> Vec<Dtype> {
        match packed::mode(call) {
            Ok(mode) if packed::parts(mode) == 2 => vec![Dtype::U8, call.dtype],
            _ => vec![Dtype::U32, call.dtype, call.dtype],
        }
    }

    #[cfg(feature = "engine")]
    fn engine(&self, call: &Call, operands: &[Array]) -> Result<Vec<Array>, SuiteError> {
        let mode = packed::engine_mode(packed::mode(call)?);
        let found = ops::packed::quantize(&operands[0], mode, None)?;
        if let Some(biases) = found.biases {
            return Ok(vec![found.words, found.scales, biases]);
        }
        let back = ops::packed::dequantize(&found, None, Some(array::mlx_dtype(call.dtype)?))?;
        Ok(vec![found.scales, back])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_are_the_midpoints_of_codes() {
        // E2M1 holds 0, 0.5, 1, 1.5, 2, 3, 4, 6.
        for (x, tie) in [
            (0.25, true),
            (0.75, true),
            (2.5, true),
            (-5.0, true),
            (0.26, false),
            (2.0, false),
            (0.0, false),
        ] {
            assert_eq!(is_tie(E2M1, x), tie, "{x}");
        }
        assert_eq!((step(E2M1, 2.5), step(E2M1, 5.0)), (1.0, 2.0));
        assert_eq!([3.0, 4.0, 0.75].map(power_of_two_from), [4.0, 4.0, 1.0]);
    }
}
