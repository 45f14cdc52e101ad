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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amplitude_halves_where_the_fan_in_quadruples() {
        let found = [1, 4, 5, 16, 17, 32, 64, 65, 128, 256, 257].map(amplitude);
        assert_eq!(found, [0, 0, -1, -1, -2, -2, -2, -3, -3, -3, -4]);
    }

    // Worked out with fractions in Python; each is a float without rounding.
    #[rstest::rstest]
    #[case(Init::Linear, &[2, 64], [0xbe1c_2432, 0x3d4b_f120, 0x3d45_03e8])]
    #[case(Init::Embedding, &[2, 64], [0xbe1c_2432, 0x3d4b_f120, 0x3d45_03e8])]
    #[case(Init::Conv, &[8, 4, 16], [0xbe1c_2432, 0x3d4b_f120, 0x3d45_03e8])]
    #[case(Init::Norm, &[3], [0x3f58_f6f2, 0x3f86_5f89, 0x3f86_281f])]
    #[case(Init::Scalar, &[3], [0x3f58_f6f2, 0x3f86_5f89, 0x3f86_281f])]
    #[case(Init::NormOffset, &[3], [0xbe1c_2438, 0x3d4b_f120, 0x3d45_03e0])]
    #[case(Init::Bias, &[3], [0xbd9c_2440, 0x3ccb_f100, 0x3cc5_03c0])]
    #[case(Init::RouterBias, &[3], [0xbd9c_2440, 0x3ccb_f100, 0x3cc5_03c0])]
    #[case(Init::ALog, &[3], [0xbf1c_2432, 0x3e4b_f120, 0x3e45_03e8])]
    #[case(Init::Sinks, &[3], [0xbf1c_2432, 0x3e4b_f120, 0x3e45_03e8])]
    #[case(Init::DtBias, &[3], [0xbfa7_090d, 0xbf66_81dc, 0xbf67_5f84])]
    fn values_are_these(#[case] init: Init, #[case] shape: &[usize], #[case] wanted: [u32; 3]) {
        let bits = |dtype, size: usize| {
            let tensor = tensor("t", init, shape, dtype).unwrap();
            assert_eq!(tensor.shape(), shape);
            let words = tensor.bytes().chunks(size).take(3);
            words.map(|word| word.iter().rev().fold(0, |all, b| all << 8 | u32::from(*b))).collect()
        };
        let (single, half): (Vec<u32>, Vec<u32>) = (bits(Dtype::F32, 4), bits(Dtype::Bf16, 2));
        assert_eq!(single, wanted);
        assert_eq!(half, wanted.map(|bits| bits >> 16));
    }

    #[test]
    fn no_value_leaves_its_range() {
        let of = |init| tensor("range", init, &[64, 64], Dtype::F32).unwrap().view().to_f64();
        let within = |init, low: f64, high: f64| {
            let values: Vec<f64> = of(init);
            let inside = values.iter().all(|x| (low..high).contains(x));
            // The ends are nearly reached too: the range is used.
            let span = high - low;
            let reaches = values.iter().any(|x| *x < low + span / 100.0)
                && values.iter().any(|x| *x > high - span / 100.0);
            assert!(inside && reaches, "{init:?}");
        };
        within(Init::Linear, -0.25, 0.25);
        within(Init::Norm, 0.75, 1.25);
        within(Init::NormOffset, -0.25, 0.25);
        within(Init::Bias, -0.125, 0.125);
        within(Init::DtBias, -1.5, -0.5);
        within(Init::ALog, -1.0, 1.0);
    }
}
