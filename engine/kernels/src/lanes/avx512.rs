//! Lanes in one AVX-512 register.

#![cfg_attr(not(test), expect(clippy::wildcard_imports, reason = "most names are intrinsics"))]

use std::arch::x86_64::*;
use std::mem::transmute;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Shl, Shr, Sub};

use super::{F32s, LANES, Mask, Simd, Task, U32s};

/// AVX-512 F, BW, DQ and VL, and what comes before them. One exists only where the processor has them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512(());

#[derive(Debug, Clone, Copy)]
pub(crate) struct F(__m512);

#[derive(Debug, Clone, Copy)]
pub(crate) struct U(__m512i);

#[derive(Debug, Clone, Copy)]
pub(crate) struct M(__mmask16);

/// Calls intrinsics.
macro_rules! simd {
    ($($body:tt)*) => {
        // SAFETY: an `Avx512` exists only where the processor has these instructions, and vectors and masks
        // come from one. What is transmuted has the size of its vector, and every bit pattern is one.
        unsafe { $($body)* }
    };
}

impl Avx512 {
    /// The instructions, where this processor has them.
    pub(crate) fn detect() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        has.then_some(Self(()))
    }

    /// Does a task on them.
    pub(crate) fn enter<T: Task>(self, task: T) -> T::Out {
        simd!(with_features(self, task))
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
fn with_features<T: Task>(simd: Avx512, task: T) -> T::Out {
    task.run(simd)
}

macro_rules! binary {
    ($on:ident, $trait:ident, $method:ident, $intrinsic:ident) => {
        impl $trait for $on {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self(simd!($intrinsic(self.0, other.0)))
            }
        }
    };
}

binary!(F, Add, add, _mm512_add_ps);
binary!(F, Sub, sub, _mm512_sub_ps);
binary!(F, Mul, mul, _mm512_mul_ps);
binary!(F, Div, div, _mm512_div_ps);
binary!(U, Add, add, _mm512_add_epi32);
binary!(U, Sub, sub, _mm512_sub_epi32);
binary!(U, BitAnd, bitand, _mm512_and_si512);
binary!(U, BitOr, bitor, _mm512_or_si512);
binary!(U, BitXor, bitxor, _mm512_xor_si512);

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
        Self(simd!(_mm512_sllv_epi32(self.0, _mm512_set1_epi32(by as i32))))
    }
}

impl Shr<u32> for U {
    type Output = Self;
    #[inline(always)]
    fn shr(self, by: u32) -> Self {
        Self(simd!(_mm512_srlv_epi32(self.0, _mm512_set1_epi32(by as i32))))
    }
}

/// Folds halves onto each other.
macro_rules! halve {
    ($of:expr, $wide:ident, $narrow:ident) => {{
        let eight = $wide(_mm512_castps512_ps256($of), _mm512_extractf32x8_ps::<1>($of));
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
        Self(simd!(_mm512_fmadd_ps(self.0, by.0, plus.0)))
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self(simd!(_mm512_max_ps(self.0, other.0)))
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Self(simd!(_mm512_min_ps(self.0, other.0)))
    }
    #[inline(always)]
    fn bits(self) -> U {
        U(simd!(_mm512_castps_si512(self.0)))
    }
    #[inline(always)]
    fn round_to_int(self) -> U {
        U(simd!(_mm512_cvtps_epi32(self.0)))
    }
    #[inline(always)]
    fn lt(self, other: Self) -> M {
        M(simd!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, other.0)))
    }
    #[inline(always)]
    fn le(self, other: Self) -> M {
        M(simd!(_mm512_cmp_ps_mask::<_CMP_LE_OQ>(self.0, other.0)))
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
        *to = simd!(transmute(_mm512_cvtps_ph::<0>(self.0)));
    }
    #[inline(always)]
    fn lookup(self, index: U) -> Self {
        let index = index & index.same(7);
        Self(simd!(_mm512_permutexvar_ps(index.0, self.0)))
    }
    #[inline(always)]
    fn store_first(self, to: &mut [f32]) {
        let mask = lanes(to.len());
        // Only lanes that `to` has are written.
        simd!(_mm512_mask_storeu_ps(to.as_mut_ptr(), mask, self.0));
    }
}

/// The first `count` lanes.
#[inline(always)]
fn lanes(count: usize) -> __mmask16 {
    ((1u32 << count.min(LANES)) - 1) as __mmask16
}

impl U32s for U {
    type F = F;
    type M = M;

    #[inline(always)]
    fn same(self, of: u32) -> Self {
        Self(simd!(_mm512_set1_epi32(of as i32)))
    }
    #[inline(always)]
    fn store(self, to: &mut [u32; LANES]) {
        *to = simd!(transmute(self.0));
    }
    #[inline(always)]
    fn floats(self) -> F {
        F(simd!(_mm512_castsi512_ps(self.0)))
    }
    #[inline(always)]
    fn to_f32(self) -> F {
        F(simd!(_mm512_cvtepi32_ps(self.0)))
    }
    #[inline(always)]
    fn shift_right(self, by: Self) -> Self {
        Self(simd!(_mm512_srlv_epi32(self.0, by.0)))
    }
    #[inline(always)]
    fn low_nibbles(self) -> F {
        // A permutation looks at the low four bits of an index alone.
        F(simd!({
            let table = _mm512_setr_ps(
                0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0,
                15.0,
            );
            _mm512_permutexvar_ps(self.0, table)
        }))
    }
    #[inline(always)]
    fn centred_nibbles(self) -> F {
        F(simd!({
            let table = _mm512_setr_ps(
                -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0,
                7.0,
            );
            _mm512_permutexvar_ps(self.0, table)
        }))
    }
    #[inline(always)]
    fn bytes(self, index: usize) -> Self {
        self.shuffled(|lane| NO_BYTES << 8 | (4 * lane + index) as u32)
    }
    #[inline(always)]
    fn top_bytes(self, index: usize) -> Self {
        self.shuffled(|lane| NO_BYTES | ((4 * lane + index) as u32) << 24)
    }
}

/// Places of no bytes in the lowest three.
const NO_BYTES: u32 = 0x80_8080;

impl U {
    /// The bytes at the given places of the quarter that a lane of it is in; zeros where there is no place.
    #[inline(always)]
    fn shuffled(self, places: impl Fn(usize) -> u32) -> Self {
        let [a, b, c, d] = [0, 1, 2, 3].map(|lane| places(lane) as i32);
        Self(simd!(_mm512_shuffle_epi8(self.0, _mm512_broadcast_i32x4(_mm_setr_epi32(a, b, c, d)))))
    }
}

impl Mask for M {
    type F = F;
    type U = U;

    #[inline(always)]
    fn select(self, yes: F, no: F) -> F {
        F(simd!(_mm512_mask_blend_ps(self.0, no.0, yes.0)))
    }
    #[inline(always)]
    fn select_bits(self, yes: U, no: U) -> U {
        U(simd!(_mm512_mask_blend_epi32(self.0, no.0, yes.0)))
    }
}

impl Simd for Avx512 {
    type F = F;
    type U = U;
    type M = M;
    const REGISTERS: usize = 32;

    #[inline(always)]
    fn splat(self, of: f32) -> F {
        F(simd!(_mm512_set1_ps(of)))
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> F {
        F(simd!(transmute(*from)))
    }
    #[inline(always)]
    fn splat_bits(self, of: u32) -> U {
        U(simd!(_mm512_set1_epi32(of as i32)))
    }
    #[inline(always)]
    fn load_bits(self, from: &[u32; LANES]) -> U {
        U(simd!(transmute(*from)))
    }
    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> F {
        F(simd!(_mm512_cvtph_ps(transmute(*from))))
    }
    #[inline(always)]
    fn transpose(self, rows: [U; LANES]) -> [U; LANES] {
        simd!(transpose(rows))
    }
    #[inline(always)]
    fn first(self, count: usize) -> M {
        M(lanes(count))
    }
    #[inline(always)]
    fn prefetch<T>(self, from: &T) {
        simd!(_mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(from).cast()));
    }
    #[inline(always)]
    fn load_first(self, from: &[f32]) -> F {
        // Only lanes that `from` has are read.
        F(simd!(_mm512_maskz_loadu_ps(lanes(from.len()), from.as_ptr())))
    }
    #[inline(always)]
    fn load_bits_first(self, from: &[u32]) -> U {
        // Only lanes that `from` has are read.
        let from = (lanes(from.len()), from.as_ptr().cast());
        U(simd!(_mm512_maskz_loadu_epi32(from.0, from.1)))
    }
}

/// Exchanges rows and columns: single numbers within quarters, then the quarters.
#[expect(clippy::large_types_passed_by_value, reason = "the rows are in registers")]
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose(rows: [U; LANES]) -> [U; LANES] {
    // `quads[4 * i + j]` holds, in its quarter q, rows 4i..4i+4 of column 4q+j.
    let mut quads = rows.map(|row| row.0);
    for four in quads.chunks_exact_mut(4) {
        let low =
            [_mm512_unpacklo_epi32(four[0], four[1]), _mm512_unpacklo_epi32(four[2], four[3])];
        let high =
            [_mm512_unpackhi_epi32(four[0], four[1]), _mm512_unpackhi_epi32(four[2], four[3])];
        four[0] = _mm512_unpacklo_epi64(low[0], low[1]);
        four[1] = _mm512_unpackhi_epi64(low[0], low[1]);
        four[2] = _mm512_unpacklo_epi64(high[0], high[1]);
        four[3] = _mm512_unpackhi_epi64(high[0], high[1]);
    }
    let mut columns = rows;
    for j in 0..4 {
        let [a, b, c, d] = [quads[j], quads[4 + j], quads[8 + j], quads[12 + j]];
        let [ab02, ab13] = [
            _mm512_shuffle_i32x4::<0b10_00_10_00>(a, b),
            _mm512_shuffle_i32x4::<0b11_01_11_01>(a, b),
        ];
        let [cd02, cd13] = [
            _mm512_shuffle_i32x4::<0b10_00_10_00>(c, d),
            _mm512_shuffle_i32x4::<0b11_01_11_01>(c, d),
        ];
        columns[j] = U(_mm512_shuffle_i32x4::<0b10_00_10_00>(ab02, cd02));
        columns[4 + j] = U(_mm512_shuffle_i32x4::<0b10_00_10_00>(ab13, cd13));
        columns[8 + j] = U(_mm512_shuffle_i32x4::<0b11_01_11_01>(ab02, cd02));
        columns[12 + j] = U(_mm512_shuffle_i32x4::<0b11_01_11_01>(ab13, cd13));
    }
    columns
}
