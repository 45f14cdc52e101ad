//! Sixteen numbers at a time, from one source, on whichever instructions there are.
//!
//! A loop is written once, as a [`Task`] over any [`Simd`], and compiled three times; [`Width::choose`] picks
//! at run time. Every path has the same sixteen lanes and the same order of sums, so AVX2 and AVX-512 give the
//! same bits; the portable path does too wherever the target's baseline has a fused multiply-add.
//!
//! ```ignore
//! struct Sum<'a>(&'a [f32]);
//! impl Task for Sum<'_> {
//!     type Out = f32;
//!     #[inline(always)]
//!     fn run<S: Simd>(self, simd: S) -> f32 {
//!         let (chunks, rest) = self.0.as_chunks();
//!         let whole = chunks.iter().fold(simd.splat(0.0), |sum, chunk| sum + simd.load(chunk));
//!         (whole + simd.load_first(rest)).sum()
//!     }
//! }
//! let sum = Width::choose("sum", how.path)?.run(Sum(&numbers));
//! ```
//! Whatever a task calls must be `#[inline(always)]` (closures that the compiler inlines are fine): a function
//! of its own is compiled for the baseline. Threads go outside: one task per piece of work.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
#[cfg(test)]
mod tests;

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Shl, Shr, Sub};

use crate::error::KernelError;
use crate::how::Path;

/// Numbers in a vector, on every path.
pub(crate) const LANES: usize = 16;

/// Sixteen `f32`.
pub(crate) trait F32s:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// Sixteen `u32`.
    type U: U32s<F = Self, M = Self::M>;
    /// Sixteen choices.
    type M: Mask<F = Self, U = Self::U>;

    /// Writes them.
    fn store(self, to: &mut [f32; LANES]);
    /// `self * by + plus`, rounded once where the target has a fused multiply-add.
    fn mul_add(self, by: Self, plus: Self) -> Self;
    /// The larger one, lane by lane; `other` where either is NaN.
    fn max(self, other: Self) -> Self;
    /// The smaller one, lane by lane; `other` where either is NaN.
    fn min(self, other: Self) -> Self;
    /// Their bits.
    fn bits(self) -> Self::U;
    /// The nearest integers (ties to even) as `i32` bits; anything outside of `i32` is unspecified.
    fn round_to_int(self) -> Self::U;
    /// Where `self < other`; false where either is NaN.
    fn lt(self, other: Self) -> Self::M;
    /// Where `self <= other`; false where either is NaN.
    fn le(self, other: Self) -> Self::M;
    /// The sum, by halves: lanes `i` and `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
    fn sum(self) -> f32;
    /// The largest; unspecified with a NaN among them.
    fn largest(self) -> f32;
    /// Writes them as float16, rounded to nearest, ties to even.
    fn store_f16(self, to: &mut [u16; LANES]);
    /// Lane `index[i] % 8` of the first eight lanes, in lane `i`.
    fn lookup(self, index: Self::U) -> Self;

    /// Bits of the nearest bfloat16 in the low half of each lane, ties to even; NaN becomes `0x7fc0`.
    #[inline(always)]
    fn bits_bf16(self) -> Self::U {
        let bits = self.bits();
        let odd = (bits >> 16) & bits.same(1);
        let rounded = (bits + bits.same(0x7fff) + odd) >> 16;
        self.le(self).select_bits(rounded, bits.same(0x7fc0))
    }
    /// Rounded to bfloat16 and back.
    #[inline(always)]
    fn round_bf16(self) -> Self {
        (self.bits_bf16() << 16).floats()
    }
    /// The first of them, as many as `to` takes.
    #[inline(always)]
    fn store_first(self, to: &mut [f32]) {
        let mut all = [0.0; LANES];
        self.store(&mut all);
        let len = to.len().min(LANES);
        to[..len].copy_from_slice(&all[..len]);
    }
}

/// Sixteen `u32`; sums and differences wrap.
pub(crate) trait U32s:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
{
    /// Sixteen `f32`.
    type F: F32s<U = Self, M = Self::M>;
    /// Sixteen choices.
    type M: Mask<F = Self::F, U = Self>;

    /// One number in every lane.
    fn same(self, of: u32) -> Self;
    /// Writes them.
    fn store(self, to: &mut [u32; LANES]);
    /// The floats that have these bits.
    fn floats(self) -> Self::F;
    /// The numbers, as `i32`, in floats.
    fn to_f32(self) -> Self::F;
    /// Each lane shifted right by its own count, below 32.
    fn shift_right(self, by: Self) -> Self;
    /// The low four bits of each lane, in floats.
    #[inline(always)]
    fn low_nibbles(self) -> Self::F {
        (self & self.same(15)).to_f32()
    }
    /// The low eight bits of each lane, in floats.
    #[inline(always)]
    fn low_bytes(self) -> Self::F {
        (self & self.same(255)).to_f32()
    }
    /// The low four bits of each lane, less 8, in floats.
    #[inline(always)]
    fn centred_nibbles(self) -> Self::F {
        self.low_nibbles() - self.same(8).to_f32()
    }
    /// Byte `index` of each lane as its lowest one, with zeros above.
    #[inline(always)]
    fn bytes(self, index: usize) -> Self {
        (self >> (8 * index) as u32) & self.same(255)
    }
    /// Byte `index` of each lane as its highest one, with zeros below.
    #[inline(always)]
    fn top_bytes(self, index: usize) -> Self {
        (self << (24 - 8 * index) as u32) & self.same(0xff00_0000)
    }
}

/// Sixteen choices.
pub(crate) trait Mask: Copy {
    /// Sixteen `f32`.
    type F;
    /// Sixteen `u32`.
    type U;

    /// `yes` where it holds, `no` elsewhere.
    fn select(self, yes: Self::F, no: Self::F) -> Self::F;
    /// `yes` where it holds, `no` elsewhere.
    fn select_bits(self, yes: Self::U, no: Self::U) -> Self::U;
}

/// A set of instructions that this processor has.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Sixteen `f32`.
    type F: F32s<U = Self::U, M = Self::M>;
    /// Sixteen `u32`.
    type U: U32s<F = Self::F, M = Self::M>;
    /// Sixteen choices.
    type M: Mask<F = Self::F, U = Self::U>;
    /// Vectors that fit in registers at once.
    const REGISTERS: usize;

    /// One number in every lane.
    fn splat(self, of: f32) -> Self::F;
    /// Sixteen numbers from memory.
    fn load(self, from: &[f32; LANES]) -> Self::F;
    /// One number in every lane.
    fn splat_bits(self, of: u32) -> Self::U;
    /// Sixteen numbers from memory.
    fn load_bits(self, from: &[u32; LANES]) -> Self::U;
    /// Sixteen float16 from memory.
    fn load_f16(self, from: &[u16; LANES]) -> Self::F;
    /// Lane `j` of vector `i` goes to lane `i` of vector `j`.
    fn transpose(self, rows: [Self::U; LANES]) -> [Self::U; LANES];
    /// The first `count` lanes.
    fn first(self, count: usize) -> Self::M;

    /// Asks for memory that is read soon; nothing happens where there is no such instruction.
    #[inline(always)]
    fn prefetch<T>(self, _: &T) {}

    /// As many numbers as there are, up to sixteen; zeros behind them.
    #[inline(always)]
    fn load_first(self, from: &[f32]) -> Self::F {
        self.load(&padded(from))
    }
    /// As many numbers as there are, up to sixteen; zeros behind them.
    #[inline(always)]
    fn load_bits_first(self, from: &[u32]) -> Self::U {
        self.load_bits(&padded(from))
    }
}

/// The first sixteen of `from`, with zeros behind where there are fewer.
#[inline(always)]
pub(crate) fn padded<T: Copy + Default>(from: &[T]) -> [T; LANES] {
    let mut all = [T::default(); LANES];
    let len = from.len().min(LANES);
    all[..len].copy_from_slice(&from[..len]);
    all
}

/// The sixteen elements of `of` from `at` on.
///
/// # Panics
/// Where there are fewer.
#[inline(always)]
pub(crate) fn lanes_at<T>(of: &[T], at: usize) -> &[T; LANES] {
    of[at..].first_chunk().expect("sixteen elements")
}

/// The sixteen elements of `of` from `at` on, to be written.
///
/// # Panics
/// Where there are fewer.
#[inline(always)]
pub(crate) fn lanes_at_mut<T>(of: &mut [T], at: usize) -> &mut [T; LANES] {
    of[at..].first_chunk_mut().expect("sixteen elements")
}

/// Work that is compiled once for each set of instructions.
pub(crate) trait Task {
    /// What it yields.
    type Out;

    /// Does it. Must be `#[inline(always)]`, and so must all it calls.
    fn run<S: Simd>(self, simd: S) -> Self::Out;
}

/// A set of instructions, chosen at run time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Width {
    /// The target's baseline.
    Portable(portable::Portable),
    /// AVX2 with FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    /// AVX-512 F, BW, DQ and VL.
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
}

impl Width {
    /// The instructions of a path.
    ///
    /// # Errors
    /// [`KernelError::Unsupported`] where this processor lacks those that were asked for.
    pub(crate) fn choose(kernel: &'static str, path: Path) -> Result<Self, KernelError> {
        let found = match path {
            Path::Auto => Some(Self::widest()),
            Path::Portable => Some(Self::Portable(portable::Portable)),
            Path::Avx2 => Self::avx2(),
            Path::Avx512 => Self::avx512(),
        };
        found.ok_or_else(|| KernelError::Unsupported {
            kernel,
            found: "a processor without them".into(),
            wanted: format!("the instructions of {path:?}"),
        })
    }

    /// The widest there are.
    pub(crate) fn widest() -> Self {
        Self::avx512().or_else(Self::avx2).unwrap_or(Self::Portable(portable::Portable))
    }

    #[cfg(target_arch = "x86_64")]
    fn avx2() -> Option<Self> {
        avx2::Avx2::detect().map(Self::Avx2)
    }

    #[cfg(target_arch = "x86_64")]
    fn avx512() -> Option<Self> {
        avx512::Avx512::detect().map(Self::Avx512)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn avx2() -> Option<Self> {
        None
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn avx512() -> Option<Self> {
        None
    }

    /// Does a task on them.
    pub(crate) fn run<T: Task>(self, task: T) -> T::Out {
        match self {
            Self::Portable(simd) => task.run(simd),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(simd) => simd.enter(task),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(simd) => simd.enter(task),
        }
    }
}
