//! Lanes in two AVX2 registers.

#![cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "most names are intrinsics"))]

use std::arch::x86_64::*;
use std::mem::transmute;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Shl, Shr, Sub};

use super::{F32s, LANES, Mask, Simd, Task, U32s};

/// AVX2, FMA and F16C, and what comes before them. One exists only where the processor has them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(());

#[derive(Debug, Clone, Copy)]
pub(crate) struct F([__m256; 2]);

#[derive(Debug, Clone, Copy)]
pub(crate) struct U([__m256i; 2]);

/// All bits set where it holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct M([__m256i; 2]);

/// Calls intrinsics.
macro_rules! simd {
    ($($body:tt)*) => {
        // SAFETY: an `Avx2` exists only where the processor has these instructions, and vectors and masks
        // come from one. What is transmuted has the size of its vectors, and every bit pattern is one.
        unsafe { $($body)* }
    };
}

/// An intrinsic on both halves of each operand.
macro_rules! both {
    ($into:ident, $intrinsic:ident $(::<$imm:ident>)?, $a:expr $(, $more:expr)*) => {
        $into([
            simd!($intrinsic$(::<$imm>)?($a[0] $(, $more[0])*)),
            simd!($intrinsic$(::<$imm>)?($a[1] $(, $more[1])*)),
        ])
    };
}

impl Avx2 {
    /// The instructions, where this processor has them.
    pub(crate) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        has.then_some(Self(()))
    }

    /// Does a task on them.
    pub(crate) fn enter<T: Task>(self, task: T) -> T::Out {
        simd!(with_features(self, task))
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn with_features<T: Task>(simd: Avx2, task: T) -> T::Out {
    task.run(simd)
}

macro_rules! binary {
    ($on:ident, $trait:ident, $method:ident, $intrinsic:ident) => {
        impl $trait for $on {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                both!(Self, $intrinsic, self.0, other.0)
            }
        }
    };
}

binary!(F, Add, add, _mm256_add_ps);
binary!(F, Sub, sub, _mm256_sub_ps);
binary!(F, Mul, mul, _mm256_mul_ps);
binary!(F, Div, div, _mm256_div_ps);
binary!(U, Add, add, _mm256_add_epi32);
binary!(U, Sub, sub, _mm256_sub_epi32);
binary!(U, BitAnd, bitand, _mm256_and_si256);
binary!(U, BitOr, bitor, _mm256_or_si256);
binary!(U, BitXor, bitxor, _mm256_xor_si256);

impl Neg for F {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        let bits = self.bits();
        (bits ^ bits.same(1 << 31)).floats()
    }
}

impl Shl<u32> for U {
    type Output = Self;
    #[inline(always)]
    fn shl(self, by: u32) -> Self {
        both!(Self, _mm256_sllv_epi32, self.0, self.same(by).0)
    }
}

impl Shr<u32> for U {
    type Output = Self;
    #[inline(always)]
    fn shr(self, by: u32) -> Self {
        self.shift_right(self.same(by))
    }
}

/// Folds halves onto each other.
macro_rules! halve {
    ($of:expr, $wide:ident, $narrow:ident) => {{
        let eight = $wide($of[0], $of[1]);
        let four = $narrow(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
        let two = $narrow(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32($narrow(two, _mm_shuffle_ps::<1>(two, two)))
    }};
}

impl F32s for F {
    type U = U;
    type M = M;

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES]) {
        *to = simd!(transmute(self.0));
    }
    #[inline(always)]
    fn mul_add(self, by: Self, plus: Self) -> Self {
        both!(Self, _mm256_fmadd_ps, self.0, by.0, plus.0)
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        both!(Self, _mm256_max_ps, self.0, other.0)
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        both!(Self, _mm256_min_ps, self.0, other.0)
    }
    #[inline(always)]
    fn bits(self) -> U {
        both!(U, _mm256_castps_si256, self.0)
    }
    #[inline(always)]
    fn round_to_int(self) -> U {
        both!(U, _mm256_cvtps_epi32, self.0)
    }
    #[inline(always)]
    fn lt(self, other: Self) -> M {
        both!(F, _mm256_cmp_ps::<_CMP_LT_OQ>, self.0, other.0).mask()
    }
    #[inline(always)]
    fn le(self, other: Self) -> M {
        both!(F, _mm256_cmp_ps::<_CMP_LE_OQ>, self.0, other.0).mask()
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        simd!(halve!(self.0, _mm256_add_ps, _mm_add_ps))
    }
    #[inline(always)]
    fn largest(self) -> f32 {
        simd!(halve!(self.0, _mm256_max_ps, _mm_max_ps))
    }
    #[inline(always)]
    fn store_f16(self, to: &mut [u16; LANES]) {
        let halves = simd!([_mm256_cvtps_ph::<0>(self.0[0]), _mm256_cvtps_ph::<0>(self.0[1])]);
        *to = simd!(transmute(halves));
    }
    #[inline(always)]
    fn lookup(self, index: U) -> Self {
        both!(Self, _mm256_permutevar8x32_ps, [self.0[0], self.0[0]], index.0)
    }
}

impl F {
    #[inline(always)]
    fn mask(self) -> M {
        M(self.bits().0)
    }
}

impl U32s for U {
    type F = F;
    type M = M;

    #[inline(always)]
    fn same(self, of: u32) -> Self {
        Self([simd!(_mm256_set1_epi32(of as i32)); 2])
    }
    #[inline(always)]
    fn store(self, to: &mut [u32; LANES]) {
        *to = simd!(transmute(self.0));
    }
    #[inline(always)]
    fn floats(self) -> F {
        both!(F, _mm256_castsi256_ps, self.0)
    }
    #[inline(always)]
    fn to_f32(self) -> F {
        both!(F, _mm256_cvtepi32_ps, self.0)
    }
    #[inline(always)]
    fn shift_right(self, by: Self) -> Self {
        both!(Self, _mm256_srlv_epi32, self.0, by.0)
    }
}

impl Mask for M {
    type F = F;
    type U = U;

    #[inline(always)]
    fn select(self, yes: F, no: F) -> F {
        self.select_bits(yes.bits(), no.bits()).floats()
    }
    #[inline(always)]
    fn select_bits(self, yes: U, no: U) -> U {
        both!(U, _mm256_blendv_epi8, no.0, yes.0, self.0)
    }
}

impl Simd for Avx2 {
    type F = F;
    type U = U;
    type M = M;
    const REGISTERS: usize = 8;

    #[inline(always)]
    fn splat(self, of: f32) -> F {
        F([simd!(_mm256_set1_ps(of)); 2])
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> F {
        F(simd!(transmute(*from)))
    }
    #[inline(always)]
    fn splat_bits(self, of: u32) -> U {
        U([simd!(_mm256_set1_epi32(of as i32)); 2])
    }
    #[inline(always)]
    fn load_bits(self, from: &[u32; LANES]) -> U {
        U(simd!(transmute(*from)))
    }
    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> F {
        let halves: [__m128i; 2] = simd!(transmute(*from));
        both!(F, _mm256_cvtph_ps, halves)
    }
    #[inline(always)]
    fn transpose(self, rows: [U; LANES]) -> [U; LANES] {
        simd!(transpose(rows))
    }
    #[inline(always)]
    fn first(self, count: usize) -> M {
        let count = self.splat_bits(count as u32);
        let lane = U(simd!([
            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
            _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15),
        ]));
        both!(M, _mm256_cmpgt_epi32, count.0, lane.0)
    }
    #[inline(always)]
    fn prefetch<T>(self, from: &T) {
        simd!(_mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(from).cast()));
    }
}

/// Exchanges rows and columns, in four blocks of eight by eight.
#[expect(clippy::large_types_passed_by_value, reason = "the rows are in registers")]
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(rows: [U; LANES]) -> [U; LANES] {
    let mut columns = rows;
    for (from, to) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let block = std::array::from_fn(|row| rows[8 * from + row].0[to]);
        for (column, half) in eight(block).into_iter().enumerate() {
            columns[8 * to + column].0[from] = half;
        }
    }
    columns
}

/// Exchanges rows and columns: single numbers within halves, then the halves.
#[inline]
#[target_feature(enable = "avx2")]
fn eight(rows: [__m256i; 8]) -> [__m256i; 8] {
    let mut quads = rows;
    for four in quads.chunks_exact_mut(4) {
        let low =
            [_mm256_unpacklo_epi32(four[0], four[1]), _mm256_unpacklo_epi32(four[2], four[3])];
        let high =
            [_mm256_unpackhi_epi32(four[0], four[1]), _mm256_unpackhi_epi32(four[2], four[3])];
        four[0] = _mm256_unpacklo_epi64(low[0], low[1]);
        four[1] = _mm256_unpackhi_epi64(low[0], low[1]);
        four[2] = _mm256_unpacklo_epi64(high[0], high[1]);
        four[3] = _mm256_unpackhi_epi64(high[0], high[1]);
    }
    let mut columns = rows;
    for j in 0..4 {
        columns[j] = _mm256_permute2x128_si256::<0x20>(quads[j], quads[4 + j]);
        columns[4 + j] = _mm256_permute2x128_si256::<0x31>(quads[j], quads[4 + j]);
    }
    columns
}
