//! From draws to values: every number is an integer of few bits times a power of two, so that no
//! rounding is asked of anybody.

use mlx_parity_tensor::{Dtype, HostTensor, TensorError};
use serde::Deserialize;

use super::hash::Stream;

/// What a tensor is for, which decides where its values lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Init {
    /// A matrix applied to its last axis: ±a, with a the power of two of [`amplitude`].
    Linear,
    /// A depthwise or plain convolution `[out, …]`: as `linear`, over all axes but the first.
    Conv,
    /// Rows looked up by token, and often the head as well: as `linear`.
    Embedding,
    /// A norm's weight: 1 ± 1/4.
    Norm,
    /// The weight of a norm that adds one to it: ±1/4.
    NormOffset,
    /// A bias: ±1/8.
    Bias,
    /// A multiplier, of a layer or of each channel: 1 ± 1/4.
    Scalar,
    /// The correction of a router's scores: ±1/8.
    RouterBias,
    /// The logarithm of a decay: ±1.
    ALog,
    /// The bias of a time step before softplus: −1 ± 1/2.
    DtBias,
    /// Attention sinks: ±1.
    Sinks,
}

/// Bits of the fraction a draw gives: with its sign and the largest centre it fits f32's 24.
const FRACTION: u32 = 23;

/// Values are `(centre · 2^23 + (draw >> narrow)) · 2^(exponent − 23)`, a draw having 24 signed bits.
struct Range {
    centre: i32,
    narrow: u32,
    exponent: i32,
}

/// The exponent of the largest power of two at which `fan_in` uniform values of that amplitude keep
/// the size of what they are applied to: −e for the smallest e ≥ 0 with 4^(e + 1) ≥ `fan_in`.
pub fn amplitude(fan_in: usize) -> i32 {
    let mut e = 0;
    while 4_usize.saturating_pow(e + 1) < fan_in {
        e += 1;
    }
    -(e as i32)
}

impl Init {
    /// Log2 of the amplitude of a tensor whose values lie around zero.
    pub(super) fn exponent(self, shape: &[usize]) -> i32 {
        match self {
            Self::Linear | Self::Embedding => amplitude(shape.last().copied().unwrap_or(1)),
            Self::Conv => amplitude(shape.iter().skip(1).product()),
            _ => 0,
        }
    }

    fn range(self, shape: &[usize]) -> Range {
        let exponent = self.exponent(shape);
        let (centre, narrow) = match self {
            Self::Linear | Self::Conv | Self::Embedding | Self::ALog | Self::Sinks => (0, 0),
            Self::Norm | Self::Scalar => (1, 2),
            Self::NormOffset => (0, 2),
            Self::Bias | Self::RouterBias => (0, 3),
            Self::DtBias => (-1, 1),
        };
        Range { centre, narrow, exponent }
    }
}

/// 2^`exponent`, made of its bits.
pub(super) fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << FRACTION)
}

/// The tensor of a name, in f32 or bf16.
///
/// A bf16 value is the f32 one cut (toward zero) to its eight leading bits.
///
/// # Errors
/// [`TensorError::ShapeOverflow`].
pub fn tensor(
    name: &str,
    init: Init,
    shape: &[usize],
    dtype: Dtype,
) -> Result<HostTensor, TensorError> {
    let (stream, range) = (Stream::named(name), init.range(shape));
    let count = shape.iter().product::<usize>() as u64;
    let values = (0..count).map(|index| range.value(stream.draw(index)));
    if dtype == Dtype::Bf16 {
        let bits: Vec<_> = values.map(|value| (value.to_bits() >> 16) as u16).collect();
        return HostTensor::from_bf16_bits(shape, &bits);
    }
    HostTensor::from_f32(shape, &values.collect::<Vec<_>>())
}

impl Range {
    /// The value of a draw, exact: its integer has at most 24 bits.
    fn value(&self, draw: u64) -> f32 {
        let signed = (draw >> 40) as i32 - (1 << FRACTION);
        let integer = (self.centre << FRACTION) + (signed >> self.narrow);
        integer as f32 * power_of_two(self.exponent - FRACTION as i32)
    }
}
