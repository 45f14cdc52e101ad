//! Binary floating-point formats as data, and rounding of float64 into them.
//!
//! Written from the definitions (IEEE 754-2019 section 3; OCP "8-bit floating point specification"
//! 1.0; OCP "Microscaling formats" 1.0), not from the `half` crate or the engine's casts, so that
//! it can check both.

/// What a value past the largest finite one becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The largest finite value, as MLX's `to_fp8` does.
    Saturate,
    /// Infinity, or NaN where the format has none, as IEEE 754 and the OCP's non-saturating mode
    /// do.
    Special,
}

/// How a format spends its topmost exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Top {
    /// Infinity and NaN, as in IEEE 754.
    Ieee,
    /// One NaN at all ones, the rest ordinary numbers.
    OneNan,
    /// Ordinary numbers only.
    Finite,
}

/// A signed binary format: one sign bit, then exponent, then mantissa.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatFormat {
    exponent_bits: u32,
    mantissa_bits: u32,
    top: Top,
}

/// IEEE binary32.
pub const F32: FloatFormat = FloatFormat::ieee(8, 23);
/// IEEE binary16.
pub const F16: FloatFormat = FloatFormat::ieee(5, 10);
/// bfloat16.
pub const BF16: FloatFormat = FloatFormat::ieee(8, 7);
/// OCP FP8 E5M2.
pub const E5M2: FloatFormat = FloatFormat::ieee(5, 2);
/// OCP FP8 E4M3: no infinity, NaN at `0x7f` and `0xff`, largest value 448.
pub const E4M3: FloatFormat = FloatFormat { exponent_bits: 4, mantissa_bits: 3, top: Top::OneNan };
/// OCP FP4 E2M1: no infinity, no NaN, largest value 6.
pub const E2M1: FloatFormat = FloatFormat { exponent_bits: 2, mantissa_bits: 1, top: Top::Finite };

/// `2^exponent`, exactly, down to the smallest subnormal.
pub fn exp2i(exponent: i32) -> f64 {
    libm::scalbn(1.0, exponent)
}

impl FloatFormat {
    const fn ieee(exponent_bits: u32, mantissa_bits: u32) -> Self {
        Self { exponent_bits, mantissa_bits, top: Top::Ieee }
    }

    const fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    const fn sign_mask(self) -> u64 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    /// The magnitude bits of the largest finite value.
    const fn max_bits(self) -> u64 {
        let ones = self.sign_mask() - 1;
        match self.top {
            Top::Ieee => ones - (1 << self.mantissa_bits),
            Top::OneNan => ones - 1,
            Top::Finite => ones,
        }
    }

    /// Bits of the canonical NaN, or `None` where the format has none.
    pub const fn nan_bits(self) -> Option<u64> {
        let ones = self.sign_mask() - 1;
        match self.top {
            Top::Ieee => {
                Some(ones - (1 << self.mantissa_bits) + (1 << (self.mantissa_bits - 1)) + 1)
            }
            Top::OneNan => Some(ones),
            Top::Finite => None,
        }
    }

    /// The largest finite value.
    pub fn max_value(self) -> f64 {
        self.decode(self.max_bits())
    }

    /// Relative spacing at one: `2^-mantissa_bits`.
    pub fn epsilon(self) -> f64 {
        exp2i(-(self.mantissa_bits as i32))
    }

    /// The value of a bit pattern; bits above the format's width are ignored.
    pub fn decode(self, bits: u64) -> f64 {
        let magnitude = bits & (self.sign_mask() - 1);
        let value = if magnitude > self.max_bits() {
            let infinite = self.top == Top::Ieee && magnitude == self.max_bits() + 1;
            if infinite { f64::INFINITY } else { f64::NAN }
        } else {
            self.decode_finite(magnitude)
        };
        if bits & self.sign_mask() == 0 { value } else { -value }
    }

    fn decode_finite(self, magnitude: u64) -> f64 {
        let mantissa = magnitude & ((1 << self.mantissa_bits) - 1);
        let exponent = (magnitude >> self.mantissa_bits) as i32;
        let lowest = 1 - self.bias() - self.mantissa_bits as i32;
        if exponent == 0 {
            return mantissa as f64 * exp2i(lowest);
        }
        (mantissa + (1 << self.mantissa_bits)) as f64 * exp2i(lowest + exponent - 1)
    }

    /// The bit pattern nearest to a value, ties to even. NaN becomes the canonical NaN, or the
    /// largest value where the format has none.
    pub fn encode(self, value: f64, overflow: Overflow) -> u64 {
        let sign = if value.is_sign_negative() { self.sign_mask() } else { 0 };
        if value.is_nan() {
            return sign | self.nan_bits().unwrap_or(self.max_bits());
        }
        let bits = self.encode_magnitude(value.abs());
        let past = bits > self.max_bits() || value.is_infinite();
        let special = match self.top {
            Top::Ieee => self.max_bits() + 1,
            Top::OneNan => self.sign_mask() - 1,
            Top::Finite => self.max_bits(),
        };
        match (past, overflow) {
            (false, _) => sign | bits,
            (true, Overflow::Saturate) => sign | self.max_bits(),
            (true, Overflow::Special) => sign | special,
        }
    }

    /// Rounds as if the exponent were unbounded above, so that overflow is seen after rounding.
    fn encode_magnitude(self, magnitude: f64) -> u64 {
        if magnitude.is_infinite() {
            return u64::MAX;
        }
        let lowest = 1 - self.bias();
        let exponent = if magnitude == 0.0 { lowest } else { libm::ilogb(magnitude).max(lowest) };
        // Scaled so that one unit is one step of the format: exact, since only the exponent
        // changes.
        let steps = libm::scalbn(magnitude, self.mantissa_bits as i32 - exponent).round_ties_even();
        // A carry out of the mantissa lands in the exponent, which is what rounding up to the next
        // binade means.
        let base = ((exponent - lowest) as u64) << self.mantissa_bits;
        base + steps as u64
    }

    /// The nearest value of the format.
    pub fn round(self, value: f64) -> f64 {
        self.decode(self.encode(value, Overflow::Special))
    }
}

/// The value of an E8M0 scale code: `2^(code - 127)`, NaN at 255 (OCP Microscaling 1.0, section
/// 5.4.1).
pub fn decode_e8m0(code: u8) -> f64 {
    if code == u8::MAX { f64::NAN } else { exp2i(i32::from(code) - 127) }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn every_half_code_decodes_as_the_half_crate_decodes_it() {
        for bits in 0..=u16::MAX {
            let pairs = [
                (F16.decode(u64::from(bits)), f16::from_bits(bits).to_f64()),
                (BF16.decode(u64::from(bits)), bf16::from_bits(bits).to_f64()),
            ];
            for (ours, theirs) in pairs {
                assert!(
                    ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan()),
                    "{bits:#x}"
                );
            }
        }
    }

    #[test]
    fn every_code_encodes_to_itself() {
        for format in [F16, BF16, E5M2, E4M3, E2M1] {
            for bits in 0..2 * format.sign_mask() {
                let value = format.decode(bits);
                if !value.is_nan() {
                    assert_eq!(
                        format.encode(value, Overflow::Special),
                        bits,
                        "{format:?} {bits:#x}"
                    );
                }
            }
        }
    }

    /// Rounding by search: the nearest of all finite values, the even code of two equally near.
    fn nearest(format: FloatFormat, value: f64) -> u64 {
        let sign = if value.is_sign_negative() { format.sign_mask() } else { 0 };
        let distance = |bits: u64| (format.decode(bits) - value.abs()).abs();
        let best = (0..=format.max_bits())
            .min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a % 2).cmp(&(b % 2))));
        sign | best.unwrap()
    }

    #[test]
    fn rounding_agrees_with_a_search_between_all_neighbours() {
        for format in [E5M2, E4M3, E2M1] {
            for bits in 0..format.max_bits() {
                let (low, high) = (format.decode(bits), format.decode(bits + 1));
                let middle = f64::midpoint(low, high);
                for value in [low, middle.next_down(), middle, middle.next_up(), high, -middle] {
                    assert_eq!(
                        format.encode(value, Overflow::Saturate),
                        nearest(format, value),
                        "{format:?} {value}"
                    );
                }
            }
        }
    }

    #[test]
    fn float32_rounds_as_the_hardware_does() {
        let mut state = 7_u64;
        for _ in 0..200_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let value = f64::from_bits(state ^ (state >> 29));
            if !value.is_nan() {
                assert_eq!(
                    F32.encode(value, Overflow::Special),
                    u64::from((value as f32).to_bits()),
                    "{value:e}"
                );
            }
            // Random bits are mostly far outside float32: also draw near its range.
            let near =
                f64::from_bits((state >> 12) | (0x36A_u64.wrapping_add(state % 0x120) << 52));
            assert_eq!(
                F32.encode(near, Overflow::Special),
                u64::from((near as f32).to_bits()),
                "{near:e}"
            );
        }
    }

    #[test]
    fn half_rounding_agrees_with_the_half_crate_at_every_midpoint() {
        for bits in 0..0x7c00_u16 {
            let next = f16::from_bits(bits + 1).to_f64();
            let next = if next.is_infinite() { 65536.0 } else { next };
            let middle = f64::midpoint(f16::from_bits(bits).to_f64(), next);
            for value in [middle.next_down(), middle, middle.next_up()] {
                let found = F16.encode(value, Overflow::Special);
                // Ties to even, stated from the neighbours' codes alone.
                let up = value > middle || (value == middle && bits % 2 == 1);
                assert_eq!(found, u64::from(bits) + u64::from(up), "{value}");
            }
        }
    }

    #[test]
    fn overflow_saturates_or_is_special() {
        assert_eq!(E4M3.max_value(), 448.0);
        assert_eq!(E5M2.max_value(), 57344.0);
        assert_eq!(E2M1.max_value(), 6.0);
        assert_eq!(F16.max_value(), 65504.0);
        assert_eq!(E4M3.encode(464.0, Overflow::Special), 0x7e, "ties to the even 448");
        assert_eq!(E4M3.encode(464.1, Overflow::Special), 0x7f);
        assert_eq!(E4M3.encode(464.1, Overflow::Saturate), 0x7e);
        assert_eq!(E4M3.encode(f64::NEG_INFINITY, Overflow::Saturate), 0xfe);
        assert_eq!(E5M2.encode(1e9, Overflow::Special), 0x7c);
        assert_eq!(E2M1.encode(-1e9, Overflow::Special), 0xf);
        assert_eq!(F16.encode(65520.0, Overflow::Special), 0x7c00);
        assert_eq!(F16.encode(65519.9, Overflow::Special), 0x7bff);
        assert!(E4M3.decode(E4M3.encode(f64::NAN, Overflow::Saturate)).is_nan());
    }

    #[test]
    fn e8m0_is_a_power_of_two_or_nan() {
        assert_eq!(decode_e8m0(127), 1.0);
        assert_eq!(decode_e8m0(0), 2.0_f64.powi(-127));
        assert_eq!(decode_e8m0(254), 2.0_f64.powi(127));
        assert!(decode_e8m0(255).is_nan());
    }
}
