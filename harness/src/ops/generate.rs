//! Where operands come from: seeded, replayable, and the same on every platform.

use mlx_parity_oracles::format::{BF16, F16, F32, FloatFormat};
use mlx_parity_tensor::{Dtype, HostTensor, TensorError};
use serde::{Deserialize, Serialize};

/// A way to make operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Generator {
    /// Bell-shaped, mean 0, variance 1. Integers: whole numbers from -100 to 100.
    Random,
    /// Zeros, ones, powers, neighbours, subnormals, the largest, infinities and NaN, each with both
    /// signs. Binary ops meet every pair.
    Edges,
    /// [`Generator::Edges`] without infinities and NaN.
    FiniteEdges,
    /// All ones: sums that an accumulator of few bits cannot hold.
    Ones,
    /// All zeros.
    Zeros,
    /// Each row the same value throughout, another one for each row.
    Constant,
    /// Small values and one large value at the start of each row.
    NeedleFirst,
    /// Small values and one large value at the end of each row: a dropped tail loses it.
    NeedleLast,
    /// A mean far above the spread: 1e6 ± 10 in f32, 1e3 ± 10 in f16 and bf16.
    OffsetMean,
    /// All 65,536 values of f16 or bf16, in order; the shape must hold as many.
    Exhaustive,
    /// Magnitudes around 1e-36, or 2^-16 in f16, whose squares are no normal numbers.
    Tiny,
    /// Random signs and mantissas with exponents spread over the middle half of the range.
    Wide,
    /// As [`Generator::Wide`], over the whole range.
    FullRange,
    /// Whole numbers from -8 to 8: exact arithmetic, and ties.
    Integers,
    /// [`Generator::Random`] with a NaN in row r at position r modulo the row's length.
    NanEach,
    /// As [`Generator::NanEach`] with infinities, positive in even rows and negative in odd ones.
    InfEach,
    /// ±512 in turn: squares and sums of squares overflow f16.
    Checkerboard,
    /// Every bit pattern with the same chance; for codes and packed words.
    Codes,
}

impl Generator {
    /// Every generator.
    pub const ALL: [Self; 18] = [
        Self::Random,
        Self::Edges,
        Self::FiniteEdges,
        Self::Ones,
        Self::Zeros,
        Self::Constant,
        Self::NeedleFirst,
        Self::NeedleLast,
        Self::OffsetMean,
        Self::Exhaustive,
        Self::Tiny,
        Self::Wide,
        Self::FullRange,
        Self::Integers,
        Self::NanEach,
        Self::InfEach,
        Self::Checkerboard,
        Self::Codes,
    ];

    /// Its name in cases and ids.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Edges => "edges",
            Self::FiniteEdges => "finite-edges",
            Self::Ones => "ones",
            Self::Zeros => "zeros",
            Self::Constant => "constant",
            Self::NeedleFirst => "needle-first",
            Self::NeedleLast => "needle-last",
            Self::OffsetMean => "offset-mean",
            Self::Exhaustive => "exhaustive",
            Self::Tiny => "tiny",
            Self::Wide => "wide",
            Self::FullRange => "full-range",
            Self::Integers => "integers",
            Self::NanEach => "nan-each",
            Self::InfEach => "inf-each",
            Self::Checkerboard => "checkerboard",
            Self::Codes => "codes",
        }
    }
}

/// Numbers from a seed: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014) over a counter. Values are made by exact arithmetic, never by a platform's
/// maths library, so a seed gives the same bits everywhere.
#[derive(Debug, Clone)]
pub struct Source {
    seed: u64,
    counter: u64,
}

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
/// Small beside a needle, and exact in every dtype.
const STRAW: f64 = 1.0 / 64.0;
/// Exact in every dtype.
const NEEDLE: f64 = 40.0;

impl Source {
    /// A source at its start.
    pub const fn new(seed: u64) -> Self {
        Self { seed, counter: 0 }
    }

    /// 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.counter += 1;
        let mut z = self.seed.wrapping_add(self.counter.wrapping_mul(GOLDEN_GAMMA));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which must not be 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// Uniform in `[0, 1)`, a multiple of 2^-53.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Bell-shaped, mean 0, variance 1, within ±6: the sum of twelve uniform numbers less six.
    pub fn bell(&mut self) -> f64 {
        // 32-bit parts, so that the sum is exact in any order.
        let sum: u64 = (0..6)
            .map(|_| self.bits())
            .map(|bits| (bits >> 32) + (bits & u64::from(u32::MAX)))
            .sum();
        sum as f64 / (1_u64 << 32) as f64 - 6.0
    }

    /// A tensor of any dtype as the generator makes it; a row is a run along the last axis.
    ///
    /// # Errors
    /// [`TensorError`] where the shape overflows, or does not hold what [`Generator::Exhaustive`]
    /// makes.
    pub fn tensor(
        &mut self,
        generator: Generator,
        dtype: Dtype,
        shape: &[usize],
    ) -> Result<HostTensor, TensorError> {
        let n = shape.iter().try_fold(1_usize, |n, &dim| n.checked_mul(dim));
        let n = n.ok_or_else(|| TensorError::ShapeOverflow { dtype, shape: shape.to_vec() })?;
        if generator == Generator::Codes {
            let bytes = (0..n * dtype.size()).map(|_| self.bits() as u8);
            let bytes = bytes.map(|b| if dtype == Dtype::Bool { b & 1 } else { b }).collect();
            return HostTensor::new(dtype, shape, bytes);
        }
        if generator == Generator::Exhaustive {
            let bytes = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
            return HostTensor::new(dtype, shape, bytes);
        }
        let width = shape.last().copied().unwrap_or(1).max(1);
        let values = match Numbers::of(dtype) {
            Some(numbers) => self.floats(generator, &numbers, n, width),
            None => self.integers(generator, dtype, n, width),
        };
        HostTensor::from_f64_as(dtype, shape, &values)
    }

    /// Indices below `size`, repeats included, as i32.
    pub fn indices(&mut self, shape: &[usize], size: usize) -> Result<HostTensor, TensorError> {
        let n: usize = shape.iter().product();
        let values: Vec<i32> = (0..n).map(|_| self.below(size) as i32).collect();
        HostTensor::from_i32(shape, &values)
    }

    fn floats(
        &mut self,
        generator: Generator,
        numbers: &Numbers,
        n: usize,
        width: usize,
    ) -> Vec<f64> {
        let edges = numbers.edges();
        let finite: Vec<f64> = edges.iter().copied().filter(|x| x.is_finite()).collect();
        let mut constant = 0.0;
        (0..n)
            .map(|i| {
                let (row, at) = (i / width, i % width);
                match generator {
                    Generator::Edges => edges[(i + 4 * row) % edges.len()],
                    Generator::FiniteEdges => finite[(i + 4 * row) % finite.len()],
                    Generator::OffsetMean => {
                        let mean = if numbers.format == F32 { 1e6 } else { 1e3 };
                        mean + 20.0 * self.uniform() - 10.0
                    }
                    Generator::Tiny => self.bell() * numbers.tiny,
                    Generator::Wide => self.spread(numbers.lowest / 2, numbers.highest / 2),
                    Generator::FullRange => self.spread(numbers.lowest, numbers.highest),
                    Generator::NanEach if at == row % width => f64::NAN,
                    Generator::InfEach if at == row % width => {
                        if row.is_multiple_of(2) {
                            f64::INFINITY
                        } else {
                            f64::NEG_INFINITY
                        }
                    }
                    Generator::Constant => {
                        if at == 0 {
                            constant = self.bell();
                        }
                        constant
                    }
                    Generator::NeedleFirst if at != 0 => STRAW * self.bell(),
                    Generator::NeedleLast if at + 1 != width => STRAW * self.bell(),
                    _ => self.common(generator, i).unwrap_or_else(|| self.bell()),
                }
            })
            .collect()
    }

    fn integers(&mut self, generator: Generator, dtype: Dtype, n: usize, width: usize) -> Vec<f64> {
        let (low, high) = integer_range(dtype);
        let edges: Vec<f64> =
            [low, low + 1.0, -7.0, -2.0, -1.0, 0.0, 1.0, 2.0, 7.0, high - 1.0, high]
                .into_iter()
                .filter(|x| (low..=high).contains(x))
                .collect();
        (0..n)
            .map(|i| {
                let value = match generator {
                    Generator::Edges | Generator::FiniteEdges => {
                        edges[(i + 4 * (i / width)) % edges.len()]
                    }
                    _ => {
                        self.common(generator, i).unwrap_or_else(|| self.below(201) as f64 - 100.0)
                    }
                };
                value.clamp(low, high)
            })
            .collect()
    }

    /// Generators that make the same numbers in every dtype.
    fn common(&mut self, generator: Generator, i: usize) -> Option<f64> {
        Some(match generator {
            Generator::Ones => 1.0,
            Generator::Zeros => 0.0,
            Generator::Integers => self.below(17) as f64 - 8.0,
            Generator::NeedleFirst | Generator::NeedleLast => NEEDLE,
            Generator::Checkerboard => {
                if i.is_multiple_of(2) {
                    512.0
                } else {
                    -512.0
                }
            }
            _ => return None,
        })
    }

    /// Random sign and mantissa, exponent uniform from `low` to `high`.
    fn spread(&mut self, low: i32, high: i32) -> f64 {
        let exponent = low + self.below((high - low + 1) as usize) as i32;
        let sign = if self.bits() >> 63 == 0 { 1.0 } else { -1.0 };
        sign * (1.0 + self.uniform()) * mlx_parity_oracles::format::exp2i(exponent)
    }
}

/// Smallest and largest whole number of a dtype that f64 and a 32-bit result hold exactly.
fn integer_range(dtype: Dtype) -> (f64, f64) {
    match dtype {
        Dtype::Bool => (0.0, 1.0),
        Dtype::U8 => (0.0, f64::from(u8::MAX)),
        Dtype::I8 => (f64::from(i8::MIN), f64::from(i8::MAX)),
        Dtype::U16 => (0.0, f64::from(u16::MAX)),
        Dtype::I16 => (f64::from(i16::MIN), f64::from(i16::MAX)),
        Dtype::U32 | Dtype::U64 => (0.0, f64::from(u32::MAX)),
        _ => (f64::from(i32::MIN), f64::from(i32::MAX)),
    }
}

/// The numbers of a float dtype that its edges are made of.
struct Numbers {
    format: FloatFormat,
    /// Exponents of the smallest normal and the largest number.
    lowest: i32,
    highest: i32,
    tiny: f64,
}

impl Numbers {
    fn of(dtype: Dtype) -> Option<Self> {
        Some(match dtype {
            Dtype::F16 => {
                Self { format: F16, lowest: -14, highest: 15, tiny: 1.0 / f64::from(1 << 16) }
            }
            Dtype::Bf16 => Self { format: BF16, lowest: -126, highest: 127, tiny: 1e-36 },
            Dtype::F32 | Dtype::F64 => {
                Self { format: F32, lowest: -126, highest: 127, tiny: 1e-36 }
            }
            _ => return None,
        })
    }

    fn edges(&self) -> Vec<f64> {
        let epsilon = self.format.epsilon();
        let normal = mlx_parity_oracles::format::exp2i(self.lowest);
        let largest = self.format.max_value();
        let positive = [
            0.0,
            normal * epsilon,
            normal * (1.0 - epsilon),
            normal,
            epsilon,
            1.0 - epsilon / 2.0,
            1.0,
            1.0 + epsilon,
            0.1,
            0.5,
            1.5,
            2.0,
            2.5,
            3.0,
            7.0,
            100.0,
            largest / 2.0,
            largest,
            f64::INFINITY,
        ];
        let both = positive.into_iter().flat_map(|x| [x, -x]);
        // Rounded here, so that a pair of operands is exactly what both sides see.
        both.map(|x| self.format.round(x)).chain([f64::NAN]).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn values(generator: Generator, dtype: Dtype, shape: &[usize]) -> Vec<f64> {
        Source::new(7).tensor(generator, dtype, shape).unwrap().to_f64()
    }

    #[test]
    fn a_seed_gives_the_same_bits_for_ever() {
        // First outputs of SplitMix64 from seed 1234567 (the algorithm's published test vector).
        let mut source = Source::new(1_234_567);
        let found: Vec<u64> = (0..3).map(|_| source.bits()).collect();
        assert_eq!(
            found,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn bells_have_mean_zero_and_variance_one() {
        let x = values(Generator::Random, Dtype::F32, &[100_000]);
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn exhaustive_holds_every_value_once() {
        let all = Source::new(0).tensor(Generator::Exhaustive, Dtype::F16, &[256, 256]).unwrap();
        let bits: BTreeSet<u64> = (0..all.len()).map(|i| all.bits_at(i)).collect();
        assert_eq!(bits.len(), 65_536);
        assert!(Source::new(0).tensor(Generator::Exhaustive, Dtype::F16, &[256]).is_err());
    }

    #[test]
    fn each_row_has_its_nan_at_another_position() {
        let x = values(Generator::NanEach, Dtype::Bf16, &[5, 5]);
        for (i, v) in x.iter().enumerate() {
            assert_eq!(v.is_nan(), i / 5 == i % 5, "{i}");
        }
    }

    #[test]
    fn needles_are_the_largest_of_their_rows() {
        for (generator, at) in [(Generator::NeedleFirst, 0), (Generator::NeedleLast, 8)] {
            for row in values(generator, Dtype::F16, &[4, 9]).chunks(9) {
                assert!(row.iter().enumerate().all(|(i, v)| (i == at) == (*v == NEEDLE)));
            }
        }
    }

    #[test]
    fn edges_are_numbers_of_their_dtype() {
        for dtype in [Dtype::F16, Dtype::Bf16, Dtype::F32] {
            let edges = Numbers::of(dtype).unwrap().edges();
            let rounded = HostTensor::from_f64_as(dtype, [edges.len()], &edges).unwrap().to_f64();
            assert!(edges.iter().zip(&rounded).all(|(a, b)| a == b || a.is_nan()), "{dtype}");
            assert!(edges.iter().any(|x| *x != 0.0 && x.abs() < 1e-4));
        }
    }

    #[test]
    fn integer_dtypes_get_whole_numbers_in_range() {
        for dtype in [Dtype::U8, Dtype::I8, Dtype::I32, Dtype::Bool] {
            for generator in [Generator::Random, Generator::Edges, Generator::Ones] {
                assert_eq!(values(generator, dtype, &[3, 50]).len(), 150);
            }
        }
    }

    #[test]
    fn names_are_what_cases_spell() {
        for generator in Generator::ALL {
            let spelled = serde_json::to_string(&generator).unwrap();
            assert_eq!(spelled, format!("\"{}\"", generator.name()));
        }
    }
}
