//! Lanes as arrays, which the compiler turns into what vectors the target's baseline has.

use std::array::from_fn;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Shl, Shr, Sub};

use half::f16;

use super::{F32s, LANES, Mask, Simd, U32s};

/// The target's baseline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portable;

#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct F([f32; LANES]);

#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct U([u32; LANES]);

/// All bits set where it holds.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct M([u32; LANES]);

macro_rules! binary {
    ($on:ident, $trait:ident, $method:ident, |$a:ident, $b:ident| $value:expr) => {
        impl $trait for $on {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self(from_fn(|lane| {
                    let ($a, $b) = (self.0[lane], other.0[lane]);
                    $value
                }))
            }
        }
    };
}

binary!(F, Add, add, |a, b| a + b);
binary!(F, Sub, sub, |a, b| a - b);
binary!(F, Mul, mul, |a, b| a * b);
binary!(F, Div, div, |a, b| a / b);
binary!(U, Add, add, |a, b| a.wrapping_add(b));
binary!(U, Sub, sub, |a, b| a.wrapping_sub(b));
binary!(U, BitAnd, bitand, |a, b| a & b);
binary!(U, BitOr, bitor, |a, b| a | b);
binary!(U, BitXor, bitxor, |a, b| a ^ b);

impl Neg for F {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self(self.0.map(|of| -of))
    }
}

impl Shl<u32> for U {
    type Output = Self;
    #[inline(always)]
    fn shl(self, by: u32) -> Self {
        Self(self.0.map(|of| of << by))
    }
}

impl Shr<u32> for U {
    type Output = Self;
    #[inline(always)]
    fn shr(self, by: u32) -> Self {
        Self(self.0.map(|of| of >> by))
    }
}

/// `a * b + c`, fused where that is an instruction and not a call; elsewhere through float64, in which the product is
/// exact, so that results are as good as the fused ones (and differ from them only where the sum was rounded twice).
#[inline(always)]
fn mul_add(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
        a.mul_add(b, c)
    } else {
        (f64::from(a) * f64::from(b) + f64::from(c)) as f32
    }
}

#[inline(always)]
fn mask(of: impl Fn(usize) -> bool) -> M {
    M(from_fn(|lane| 0u32.wrapping_sub(u32::from(of(lane)))))
}

/// Folds halves onto each other.
#[inline(always)]
fn halve(mut of: [f32; LANES], by: impl Fn(f32, f32) -> f32) -> f32 {
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            of[lane] = by(of[lane], of[lane + half]);
        }
    }
    of[0]
}

#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

impl F32s for F {
    type U = U;
    type M = M;

    #[inline(always)]
    fn store(self, to: &mut [f32; LANES]) {
        *to = self.0;
    }
    #[inline(always)]
    fn mul_add(self, by: Self, plus: Self) -> Self {
        Self(from_fn(|lane| mul_add(self.0[lane], by.0[lane], plus.0[lane])))
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self(from_fn(|lane| larger(self.0[lane], other.0[lane])))
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        let smaller = |a: f32, b: f32| if a < b { a } else { b };
        Self(from_fn(|lane| smaller(self.0[lane], other.0[lane])))
    }
    #[inline(always)]
    fn bits(self) -> U {
        U(self.0.map(f32::to_bits))
    }
    #[inline(always)]
    fn round_to_int(self) -> U {
        // Adding 1.5 * 2^23 leaves the nearest integer in the low bits, for anything below 2^22.
        let shifted = |of: f32| (of + 12_582_912.0).to_bits().wrapping_sub(0x4b40_0000);
        let plain = |of: f32| of.round_ties_even() as i32 as u32;
        let small = self.0.iter().all(|of| of.abs() < 4_194_304.0);
        U(if small { self.0.map(shifted) } else { self.0.map(plain) })
    }
    #[inline(always)]
    fn lt(self, other: Self) -> M {
        mask(|lane| self.0[lane] < other.0[lane])
    }
    #[inline(always)]
    fn le(self, other: Self) -> M {
        mask(|lane| self.0[lane] <= other.0[lane])
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        halve(self.0, |a, b| a + b)
    }
    #[inline(always)]
    fn largest(self) -> f32 {
        halve(self.0, larger)
    }
    #[inline(always)]
    fn store_f16(self, to: &mut [u16; LANES]) {
        *to = self.0.map(|of| f16::from_f32(of).to_bits());
    }
    #[inline(always)]
    fn lookup(self, index: U) -> Self {
        Self(from_fn(|lane| self.0[index.0[lane] as usize % 8]))
    }
}

impl U32s for U {
    type F = F;
    type M = M;

    #[inline(always)]
    fn same(self, of: u32) -> Self {
        Self([of; LANES])
    }
    #[inline(always)]
    fn store(self, to: &mut [u32; LANES]) {
        *to = self.0;
    }
    #[inline(always)]
    fn floats(self) -> F {
        F(self.0.map(f32::from_bits))
    }
    #[inline(always)]
    fn to_f32(self) -> F {
        F(self.0.map(|of| of as i32 as f32))
    }
    #[inline(always)]
    fn shift_right(self, by: Self) -> Self {
        Self(from_fn(|lane| self.0[lane] >> (by.0[lane] & 31)))
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
        U(from_fn(|lane| (yes.0[lane] & self.0[lane]) | (no.0[lane] & !self.0[lane])))
    }
}

impl Simd for Portable {
    type F = F;
    type U = U;
    type M = M;
    const REGISTERS: usize = 4;

    #[inline(always)]
    fn splat(self, of: f32) -> F {
        F([of; LANES])
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> F {
        F(*from)
    }
    #[inline(always)]
    fn splat_bits(self, of: u32) -> U {
        U([of; LANES])
    }
    #[inline(always)]
    fn load_bits(self, from: &[u32; LANES]) -> U {
        U(*from)
    }
    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> F {
        F(from.map(|of| f16::from_bits(of).to_f32()))
    }
    #[inline(always)]
    fn transpose(self, rows: [U; LANES]) -> [U; LANES] {
        from_fn(|column| U(from_fn(|row| rows[row].0[column])))
    }
    #[inline(always)]
    fn first(self, count: usize) -> M {
        mask(|lane| lane < count)
    }
}
