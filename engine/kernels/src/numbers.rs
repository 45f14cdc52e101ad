//! The formats of activations, and how MLX's CPU backend goes between them and f32.

mod exp;

use mlx_parity_tensor::Dtype;

pub(crate) use exp::exp;

use crate::call::{Data, Out};

/// A floating-point format as arrays hold it. MLX computes each op in f32 and rounds the result to the
/// format of its operands, to nearest, ties to even.
pub trait Format: Copy + Send + Sync + 'static {
    /// One element in memory.
    type Bits: Copy + Default + PartialEq + Send + Sync + std::fmt::Debug + 'static;
    /// The dtype.
    const DTYPE: Dtype;

    /// The value, which f32 holds exactly.
    fn widen(bits: Self::Bits) -> f32;
    /// The nearest value, ties to even; NaN becomes MLX's own of the format.
    fn narrow(value: f32) -> Self::Bits;
    /// The elements, where they have this format.
    fn data(data: Data<'_>) -> Option<&[Self::Bits]>;
    /// The memory, where it has this format.
    fn out<'a>(out: &'a mut Out<'_>) -> Option<&'a mut [Self::Bits]>;

    /// A value of f32 rounded to the format and back.
    #[inline(always)]
    fn round(value: f32) -> f32 {
        Self::widen(Self::narrow(value))
    }
}

/// IEEE binary32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct F32;

/// IEEE binary16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct F16;

/// The upper half of binary32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bf16;

impl Format for F32 {
    type Bits = f32;
    const DTYPE: Dtype = Dtype::F32;

    #[inline(always)]
    fn widen(bits: f32) -> f32 {
        bits
    }

    #[inline(always)]
    fn narrow(value: f32) -> f32 {
        value
    }

    fn data(data: Data<'_>) -> Option<&[f32]> {
        if let Data::F32(of) = data { Some(of) } else { None }
    }

    fn out<'a>(out: &'a mut Out<'_>) -> Option<&'a mut [f32]> {
        if let Out::F32(of) = out { Some(of) } else { None }
    }
}

impl Format for Bf16 {
    type Bits = u16;
    const DTYPE: Dtype = Dtype::Bf16;

    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }

    /// NaN becomes 0x7fc0 (`mlx/types/bf16.h`).
    #[inline(always)]
    fn narrow(value: f32) -> u16 {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add((bits >> 16 & 1) + 0x7fff) >> 16;
        (if value.is_nan() { 0x7fc0 } else { rounded }) as u16
    }

    fn data(data: Data<'_>) -> Option<&[u16]> {
        if let Data::Bf16(of) = data { Some(of) } else { None }
    }

    fn out<'a>(out: &'a mut Out<'_>) -> Option<&'a mut [u16]> {
        if let Out::Bf16(of) = out { Some(of) } else { None }
    }
}

/// 2^112: from the exponent of binary16 to that of binary32.
const REBIAS: f32 = f32::from_bits(0x7780_0000);

impl Format for F16 {
    type Bits = u16;
    const DTYPE: Dtype = Dtype::F16;

    /// Branch-free: normal numbers by a shift and a product with 2^112, which also makes infinity of the
    /// largest exponent; subnormal ones by a difference in which the exponent cancels.
    #[inline(always)]
    fn widen(bits: u16) -> f32 {
        let bits = u32::from(bits);
        let (sign, magnitude) = ((bits & 0x8000) << 16, bits & 0x7fff);
        let subnormal = f32::from_bits(0x3f00_0000 | magnitude) - 0.5;
        let normal = f32::from_bits((magnitude << 13) + 0x7000_0000) * f32::from_bits(0x0780_0000);
        let value = if magnitude < 0x400 { subnormal } else { normal };
        f32::from_bits(sign | value.to_bits())
    }

    /// NaN becomes 0x7d00 under its sign (`mlx/types/fp16.h`). The sum with a power of two 13 bits above
    /// the last that stays does the rounding.
    #[inline(always)]
    fn narrow(value: f32) -> u16 {
        let bits = value.to_bits();
        let sign = bits >> 16 & 0x8000;
        let exponent = (bits & 0x7f80_0000).max(0x3880_0000) + (15 << 23);
        let scaled = value.abs() * REBIAS * f32::from_bits(0x0880_0000);
        let sum = (f32::from_bits(exponent) + scaled).to_bits();
        let rounded = (sum >> 13 & 0x7c00) + (sum & 0x0fff);
        (sign | if value.is_nan() { 0x7d00 } else { rounded }) as u16
    }

    fn data(data: Data<'_>) -> Option<&[u16]> {
        if let Data::F16(of) = data { Some(of) } else { None }
    }

    fn out<'a>(out: &'a mut Out<'_>) -> Option<&'a mut [u16]> {
        if let Out::F16(of) = out { Some(of) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use mlx_parity_tensor::{bf16_from_f64, f16_from_f64};

    use super::*;

    /// Values around every rounding boundary of both halves, and a spread of all of f32.
    fn values() -> impl Iterator<Item = f32> {
        let ties = (0..=u16::MAX).flat_map(|bits| {
            [F16::widen(bits), Bf16::widen(bits)]
                .into_iter()
                .flat_map(|v| {
                    [0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001].map(|d| (v, d))
                })
                .map(|(v, d)| f32::from_bits(v.to_bits().wrapping_add(d)))
        });
        ties.chain((0..1_u32 << 20).map(|i| f32::from_bits(i.wrapping_mul(0x9e37_79b1))))
    }

    #[test]
    fn halves_widen_to_the_values_they_stand_for() {
        for bits in 0..=u16::MAX {
            let known = half::f16::from_bits(bits).to_f32();
            let found = F16::widen(bits);
            assert!(found.to_bits() == known.to_bits() || known.is_nan() && found.is_nan());
            assert_eq!(Bf16::widen(bits).to_bits() >> 16, u32::from(bits));
        }
    }

    #[test]
    fn halves_narrow_to_nearest_even() {
        for value in values().filter(|value| !value.is_nan()) {
            let wide = f64::from(value);
            assert_eq!(F16::narrow(value), f16_from_f64(wide).to_bits(), "{value:e}");
            assert_eq!(Bf16::narrow(value), bf16_from_f64(wide).to_bits(), "{value:e}");
        }
    }

    #[test]
    fn nan_narrows_to_the_one_of_mlx() {
        for nan in [f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001)] {
            assert_eq!(Bf16::narrow(nan), 0x7fc0);
            let sign = if nan.is_sign_negative() { 0x8000 } else { 0 };
            assert_eq!(F16::narrow(nan), sign | 0x7d00);
        }
    }
}
