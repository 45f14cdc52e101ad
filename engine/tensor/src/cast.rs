//! Exact widening and correctly rounded narrowing of floating-point elements.
//!
//! Narrowing goes from `f64` to the target in one step. Through `f32` it would round twice, and a value just
//! above a tie would land on the wrong side.

use half::{bf16, f16};

/// Exponent and mantissa widths of a binary format with the IEEE 754 layout.
#[derive(Clone, Copy)]
struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
}

const F16: Format = Format { exponent_bits: 5, mantissa_bits: 10 };
const BF16: Format = Format { exponent_bits: 8, mantissa_bits: 7 };
const E5M2: Format = Format { exponent_bits: 5, mantissa_bits: 2 };
const E4M3: Format = Format { exponent_bits: 4, mantissa_bits: 3 };

impl Format {
    const fn bias(self) -> i64 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// Bit pattern of infinity, or of the first code after the ordinary exponents.
    const fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.mantissa_bits
    }

    const fn sign_bit(self) -> u64 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    const fn quiet_nan(self) -> u64 {
        self.infinity() | (1 << (self.mantissa_bits - 1))
    }

    /// Magnitude bits of `|x|` rounded to nearest even, as if the exponent had no upper end.
    ///
    /// `x` must be finite. Overflow shows as a pattern at or above [`Format::infinity`].
    const fn round_magnitude(self, x: f64) -> u64 {
        let bits = x.to_bits() & (u64::MAX >> 1);
        let field = (bits >> 52) as i64;
        let fraction = bits & ((1 << 52) - 1);
        // A subnormal f64 has no hidden bit and the exponent of the smallest normal one.
        let (significand, exponent) =
            if field == 0 { (fraction, -1022) } else { (fraction | (1 << 52), field - 1023) };
        let lowest = 1 - self.bias();
        let (shift, base) = if exponent < lowest {
            ((52 - self.mantissa_bits) as i64 + (lowest - exponent), 0)
        } else {
            // The hidden bit of the rounded significand adds one to the exponent field.
            ((52 - self.mantissa_bits) as i64, (exponent + self.bias() - 1) as u64)
        };
        if shift > 54 {
            return 0;
        }
        (base << self.mantissa_bits) + shift_right_nearest_even(significand, shift as u32)
    }

    /// Bits of `x` rounded to nearest even; overflow is infinity, NaN is the quiet one with `x`'s sign.
    const fn round(self, x: f64) -> u64 {
        let sign = if x.is_sign_negative() { self.sign_bit() } else { 0 };
        if x.is_nan() {
            return sign | self.quiet_nan();
        }
        if x.is_infinite() {
            return sign | self.infinity();
        }
        let magnitude = self.round_magnitude(x);
        sign | if magnitude < self.infinity() { magnitude } else { self.infinity() }
    }

    /// Value of the magnitude bits, every exponent code taken as an ordinary number.
    const fn ordinary_value(self, magnitude: u64) -> f64 {
        let field = (magnitude >> self.mantissa_bits) as i64;
        let fraction = magnitude & ((1 << self.mantissa_bits) - 1);
        let (significand, exponent) = if field == 0 {
            (fraction, 1 - self.bias())
        } else {
            (fraction | (1 << self.mantissa_bits), field - self.bias())
        };
        significand as f64 * power_of_two(exponent - self.mantissa_bits as i64)
    }
}

const fn shift_right_nearest_even(value: u64, shift: u32) -> u64 {
    let kept = value >> shift;
    let rest = value & ((1 << shift) - 1);
    let half = 1 << (shift - 1);
    kept + (rest > half || (rest == half && kept & 1 == 1)) as u64
}

/// `2^exponent` for exponents of normal f64 numbers.
const fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// Rounds to nearest even, once; beyond the largest finite value gives infinity.
pub fn f16_from_f64(x: f64) -> f16 {
    f16::from_bits(F16.round(x) as u16)
}

/// Rounds to nearest even, once; beyond the largest finite value gives infinity.
pub fn bf16_from_f64(x: f64) -> bf16 {
    bf16::from_bits(BF16.round(x) as u16)
}

/// Rounds to nearest even, once; beyond the largest finite value gives infinity.
pub const fn f8_e5m2_from_f64(x: f64) -> u8 {
    E5M2.round(x) as u8
}

/// Rounds to nearest even, once. The format has no infinity: beyond 448 (after rounding) gives NaN,
/// the non-saturating conversion of the OCP 8-bit floating-point specification 1.0, section 5.2.
pub const fn f8_e4m3_from_f64(x: f64) -> u8 {
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    if !x.is_finite() {
        return sign | E4M3_NAN;
    }
    let magnitude = E4M3.round_magnitude(x);
    sign | if magnitude < E4M3_NAN as u64 { magnitude as u8 } else { E4M3_NAN }
}

/// Exact.
pub fn f16_to_f32(x: f16) -> f32 {
    x.to_f32()
}

/// Exact.
pub fn bf16_to_f32(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// Value of an OCP E4M3 code.
pub const fn f8_e4m3_to_f64(bits: u8) -> f64 {
    E4M3_VALUES[bits as usize]
}

/// Value of an OCP E5M2 code.
pub const fn f8_e5m2_to_f64(bits: u8) -> f64 {
    E5M2_VALUES[bits as usize]
}

/// Value of an OCP E8M0 code: `2^(bits - 127)`, NaN for 255.
pub const fn f8_e8m0_to_f64(bits: u8) -> f64 {
    if bits == u8::MAX { f64::NAN } else { power_of_two(bits as i64 - 127) }
}

/// The only magnitude of E4M3 that is not a number.
const E4M3_NAN: u8 = 0x7f;
static E4M3_VALUES: [f64; 256] = table(E4M3, E4M3_NAN as u64, E4M3_NAN as u64);
static E5M2_VALUES: [f64; 256] = table(E5M2, E5M2.infinity(), E5M2.infinity() + 1);

/// All values of an 8-bit format: numbers below `end`, NaN from `nan` on, infinity between.
const fn table(format: Format, end: u64, nan: u64) -> [f64; 256] {
    let mut values = [0.0; 256];
    let mut bits = 0;
    while bits < 256 {
        let magnitude = bits as u64 & 0x7f;
        let value = if magnitude < end {
            format.ordinary_value(magnitude)
        } else if magnitude < nan {
            f64::INFINITY
        } else {
            f64::NAN
        };
        values[bits] = if bits < 128 { value } else { -value };
        bits += 1;
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks rounding at every midpoint of a format and one f64 step to either side of it.
    ///
    /// A midpoint of neighbours has one more mantissa bit, so f64 holds it exactly.
    fn check_midpoints(finite: &[f64], round: impl Fn(f64) -> u64) {
        for (low, pair) in finite.windows(2).enumerate() {
            let (a, b) = (pair[0], pair[1]);
            let middle = f64::midpoint(a, b);
            let even = if low % 2 == 0 { low } else { low + 1 };
            assert_eq!(round(a), low as u64, "{a:e} is its own rounding");
            assert_eq!(round(middle), even as u64, "tie {middle:e}");
            assert_eq!(round(middle.next_down()), low as u64, "below the tie {middle:e}");
            assert_eq!(round(middle.next_up()), low as u64 + 1, "above the tie {middle:e}");
        }
    }

    #[test]
    fn every_f16_tie_rounds_to_even() {
        let finite: Vec<f64> = (0..0x7c00).map(|b| f16::from_bits(b).to_f64()).collect();
        check_midpoints(&finite, |x| u64::from(f16_from_f64(x).to_bits()));
        check_midpoints(&finite, |x| u64::from(f16_from_f64(-x).to_bits()) - 0x8000);
    }

    #[test]
    fn every_bf16_tie_rounds_to_even() {
        let finite: Vec<f64> =
            (0..0x7f80).map(|b: u32| f64::from(f32::from_bits(b << 16))).collect();
        check_midpoints(&finite, |x| u64::from(bf16_from_f64(x).to_bits()));
        check_midpoints(&finite, |x| u64::from(bf16_from_f64(-x).to_bits()) - 0x8000);
    }

    #[test]
    fn every_f8_tie_rounds_to_even() {
        let e4m3: Vec<f64> = (0..0x7f).map(f8_e4m3_to_f64).collect();
        check_midpoints(&e4m3, |x| u64::from(f8_e4m3_from_f64(x)));
        let e5m2: Vec<f64> = (0..0x7c).map(f8_e5m2_to_f64).collect();
        check_midpoints(&e5m2, |x| u64::from(f8_e5m2_from_f64(x)));
    }

    #[test]
    fn overflow_starts_at_half_an_ulp_above_the_largest() {
        assert_eq!(f16_from_f64(65519.999).to_bits(), 0x7bff);
        assert_eq!(f16_from_f64(65520.0), f16::INFINITY);
        assert_eq!(bf16_from_f64(-f64::MAX), bf16::NEG_INFINITY);
        assert_eq!(f8_e5m2_from_f64(61440.0), 0x7c);
        assert_eq!(f8_e4m3_from_f64(464.0), 0x7e, "tie between 448 and 480 goes to even 448");
        assert_eq!(f8_e4m3_from_f64(464.1), 0x7f);
        assert_eq!(f8_e4m3_from_f64(f64::NEG_INFINITY), 0xff);
    }

    #[test]
    fn a_value_just_above_a_tie_is_not_rounded_twice() {
        // 1 + 2^-11 is the tie between two f16; 2^-40 more is lost on the way through f32.
        let x = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(f16_from_f64(x).to_bits(), 0x3c01);
        assert_eq!(f16::from_f32(x as f32).to_bits(), 0x3c00, "the twice-rounded answer differs");
    }

    #[test]
    fn nan_keeps_its_sign_and_nothing_else() {
        assert_eq!(f16_from_f64(f64::NAN.copysign(-1.0)).to_bits(), 0xfe00);
        assert_eq!(bf16_from_f64(f64::NAN.copysign(1.0)).to_bits(), 0x7fc0);
        assert!(f8_e5m2_to_f64(f8_e5m2_from_f64(f64::NAN)).is_nan());
    }

    #[test]
    fn tables_agree_with_the_specification() {
        // OCP 8-bit floating-point specification 1.0, table 2.
        assert_eq!(f8_e4m3_to_f64(0x7e), 448.0);
        assert_eq!(f8_e4m3_to_f64(0x08), 2f64.powi(-6));
        assert_eq!(f8_e4m3_to_f64(0x07), 0.875 * 2f64.powi(-6));
        assert_eq!(f8_e4m3_to_f64(0x01), 2f64.powi(-9));
        assert!(f8_e4m3_to_f64(0x7f).is_nan() && f8_e4m3_to_f64(0xff).is_nan());
        assert_eq!(f8_e5m2_to_f64(0x7b), 57344.0);
        assert_eq!(f8_e5m2_to_f64(0x04), 2f64.powi(-14));
        assert_eq!(f8_e5m2_to_f64(0x01), 2f64.powi(-16));
        assert_eq!(f8_e5m2_to_f64(0xfc), f64::NEG_INFINITY);
        assert!((0x7d..=0x7f).all(|b| f8_e5m2_to_f64(b).is_nan()));
        // OCP microscaling specification 1.0, section 5.4.1.
        assert_eq!(f8_e8m0_to_f64(0), 2f64.powi(-127));
        assert_eq!(f8_e8m0_to_f64(127), 1.0);
        assert_eq!(f8_e8m0_to_f64(254), 2f64.powi(127));
        assert!(f8_e8m0_to_f64(255).is_nan());
    }

    #[test]
    fn negative_zero_and_underflow_keep_the_sign() {
        assert_eq!(f16_from_f64(-0.0).to_bits(), 0x8000);
        assert_eq!(bf16_from_f64(-f64::from_bits(1)).to_bits(), 0x8000);
        assert_eq!(f8_e4m3_from_f64(-1e-300), 0x80);
        assert_eq!(f8_e4m3_to_f64(0x80).to_bits(), (-0.0f64).to_bits());
    }
}
