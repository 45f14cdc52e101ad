//! Seeded operands of trials: the same numbers on every machine.

use half::{bf16, f16};
use mlx_parity_tensor::Dtype;

use crate::affine;
use crate::call::{Buffer, Operand};

/// What numbers a trial is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Normal, mean 0.
    Normal,
    /// Far from zero: a mean of 1e6 with a spread of 10 (in f16, whose range is small, a mean of 24 with a spread of 0.1).
    Offset,
    /// All ones.
    Ones,
    /// Zeros of both signs, the smallest subnormal and normal numbers, and large ones, among normal ones.
    Edge,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Normal, Self::Offset, Self::Ones, Self::Edge];

    /// Its name in the name of a trial.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Offset => "offset",
            Self::Ones => "ones",
            Self::Edge => "edge",
        }
    }
}

/// A stream of draws: `SplitMix64` (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    /// The stream of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed ^ 0x6b65_726e_656c_7321)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A whole number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (((self.bits() >> 32) * end as u64) >> 32) as usize
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / 16_777_216.0
    }

    /// Near normal, mean 0 and variance 1: the sum of twelve uniform draws, less 6 (Irwin and Hall).
    /// No transcendental function: the same bits wherever it runs.
    pub fn normal(&mut self) -> f32 {
        (0..3)
            .map(|_| self.bits())
            .flat_map(|bits| (0..4).map(move |i| bits >> (16 * i) & 0xffff))
            .map(|part| part as f32)
            .sum::<f32>()
            / 65_536.0
            - 6.0
            + 12.0 / 131_072.0
    }

    /// `len` numbers of a kind, normal ones with a standard deviation of `scale`.
    pub fn numbers(&mut self, kind: Kind, len: usize, scale: f32, dtype: Dtype) -> Vec<f32> {
        (0..len).map(|_| self.number(kind, scale, dtype)).collect()
    }

    fn number(&mut self, kind: Kind, scale: f32, dtype: Dtype) -> f32 {
        let x = self.normal();
        match (kind, dtype) {
            (Kind::Normal, _) => scale * x,
            (Kind::Offset, Dtype::F16) => 24.0 + 0.1 * x,
            (Kind::Offset, _) => 1e6 + 10.0 * x,
            (Kind::Ones, _) => 1.0,
            (Kind::Edge, _) => match self.below(8) {
                0 => 0.0,
                1 => -0.0,
                2 => smallest(dtype).0.copysign(x),
                3 => smallest(dtype).1.copysign(x),
                4 => 64.0 * x,
                _ => scale * x,
            },
        }
    }

    /// An operand of a float dtype, row-major, rounded to it.
    pub fn operand(
        &mut self,
        name: &'static str,
        shape: &[usize],
        dtype: Dtype,
        kind: Kind,
        scale: f32,
    ) -> Operand {
        let numbers = self.numbers(kind, shape.iter().product(), scale, dtype);
        Operand::new(name, shape, buffer(dtype, &numbers))
    }

    /// A packed matrix `[rows, cols]` as operands of the given names (words, scales, biases): codes
    /// uniform over their range, weights near uniform with a standard deviation of `scale`.
    pub fn packed(
        &mut self,
        names: [&'static str; 3],
        (rows, cols): (usize, usize),
        (bits, group): (u32, usize),
        dtype: Dtype,
        scale: f32,
    ) -> [Operand; 3] {
        let most = (1_u32 << bits) - 1;
        let row = |draw: &mut Self| {
            let codes: Vec<u32> = (0..cols).map(|_| draw.below(most as usize + 1) as u32).collect();
            affine::pack(&codes, bits)
        };
        let words: Vec<u32> = (0..rows).flat_map(|_| row(self)).collect();
        let (mut scales, mut biases) = (Vec::new(), Vec::new());
        for _ in 0..rows * (cols / group) {
            // A range of √12 standard deviations, its middle off zero, its direction either.
            let range = 3.464 * scale * (0.75 + 0.5 * self.unit());
            let sign = if self.bits() & 1 == 0 { 1.0 } else { -1.0 };
            scales.push(sign * range / most as f32);
            biases.push(-sign * range * (0.4 + 0.2 * self.unit()));
        }
        let of = |name, numbers: &[f32]| {
            Operand::new(name, [rows, cols / group], buffer(dtype, numbers))
        };
        let words = Operand::new(names[0], [rows, affine::words(cols, bits)], Buffer::U32(words));
        [words, of(names[1], &scales), of(names[2], &biases)]
    }
}

impl Operand {
    /// The same numbers as a view of rows (along the last axis) with three elements before the first of
    /// them and five behind each, all NaN (all bits set for integers).
    pub(crate) fn with_gaps(&self) -> Self {
        const BEFORE: usize = 3;
        const BEHIND: usize = 5;
        fn spread<T: Copy>(of: &[T], width: usize, poison: T) -> Vec<T> {
            let rows = of.chunks(width.max(1));
            let row = |row: &[T]| row.iter().copied().chain([poison; BEHIND]).collect::<Vec<_>>();
            [poison; BEFORE].into_iter().chain(rows.flat_map(row)).collect()
        }
        let width = self.shape.last().copied().unwrap_or(1);
        let buffer = match &self.buffer {
            Buffer::F32(of) => Buffer::F32(spread(of, width, f32::NAN)),
            Buffer::F16(of) => Buffer::F16(spread(of, width, f16::NAN.to_bits())),
            Buffer::Bf16(of) => Buffer::Bf16(spread(of, width, bf16::NAN.to_bits())),
            Buffer::U32(of) => Buffer::U32(spread(of, width, u32::MAX)),
            Buffer::I32(of) => Buffer::I32(spread(of, width, -1)),
        };
        let mut strides =
            Self::new(self.name, self.shape.as_slice(), Buffer::F32(Vec::new())).strides;
        let leading = strides.len().saturating_sub(1);
        strides[..leading]
            .iter_mut()
            .for_each(|stride| *stride = *stride / width * (width + BEHIND));
        Self { name: self.name, buffer, offset: BEFORE, shape: self.shape.clone(), strides }
    }
}

/// The smallest subnormal and the smallest normal number of a dtype.
fn smallest(dtype: Dtype) -> (f32, f32) {
    match dtype {
        Dtype::F16 => (f16::from_bits(1).to_f32(), f16::MIN_POSITIVE.to_f32()),
        Dtype::Bf16 => (bf16::from_bits(1).to_f32(), bf16::MIN_POSITIVE.to_f32()),
        _ => (f32::from_bits(1), f32::MIN_POSITIVE),
    }
}

/// Numbers rounded to a float dtype; float32 for the dtypes that no result has.
pub fn buffer(dtype: Dtype, numbers: &[f32]) -> Buffer {
    match dtype {
        Dtype::F16 => Buffer::F16(numbers.iter().map(|&x| f16::from_f32(x).to_bits()).collect()),
        Dtype::Bf16 => Buffer::Bf16(numbers.iter().map(|&x| bf16::from_f32(x).to_bits()).collect()),
        _ => Buffer::F32(numbers.to_vec()),
    }
}
