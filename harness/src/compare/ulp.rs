//! Distance in units in the last place: how many representable values lie between two numbers.
//!
//! Signs are compared before any distance is taken, the largest finite value is not near infinity, and NaN is near
//! nothing. A zero has a value and no sign here: `-0` and `+0` are 0 apart, and each is 1 from the smallest number of
//! either sign.

use half::{bf16, f16};
use mlx_parity_tensor::Dtype;
use serde::{Deserialize, Serialize};

/// How far apart two numbers are. Orders from near to far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distance {
    /// This many steps from one representable value to the next. Zero for equal values.
    Ulps(u64),
    /// Opposite signs, neither of them zero.
    Sign,
    /// One is infinite, or both are with opposite signs.
    Infinite,
    /// At least one is NaN.
    Nan,
}

impl Distance {
    /// Whether the numbers are within `bound` steps. Nothing but [`Distance::Ulps`] ever is.
    pub fn within(self, bound: u64) -> bool {
        matches!(self, Self::Ulps(ulps) if ulps <= bound)
    }
}

impl std::fmt::Display for Distance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ulps(ulps) => write!(f, "{ulps} ulp"),
            Self::Sign => f.write_str("other sign"),
            Self::Infinite => f.write_str("infinite"),
            Self::Nan => f.write_str("NaN"),
        }
    }
}

/// Where a float format keeps its sign, infinity and NaNs. Magnitudes order like their bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The sign bit; zero where the format has none.
    pub sign: u64,
    /// Magnitude of infinity; `None` where the format has none.
    pub infinity: Option<u64>,
    /// Magnitudes above this are NaN.
    pub last: u64,
}

impl Layout {
    /// A format with the IEEE 754 layout.
    pub const fn ieee(exponent_bits: u32, mantissa_bits: u32) -> Self {
        let infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
        Self {
            sign: 1 << (exponent_bits + mantissa_bits),
            infinity: Some(infinity),
            last: infinity,
        }
    }

    /// The layout of a dtype; `None` for integers and booleans.
    pub const fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F64 => Some(Self::ieee(11, 52)),
            Dtype::F32 => Some(Self::ieee(8, 23)),
            Dtype::Bf16 => Some(Self::ieee(8, 7)),
            Dtype::F16 => Some(Self::ieee(5, 10)),
            Dtype::F8E5M2 => Some(Self::ieee(5, 2)),
            Dtype::F8E4M3 => Some(Self { sign: 0x80, infinity: None, last: 0x7e }),
            Dtype::F8E8M0 => Some(Self { sign: 0, infinity: None, last: 0xfe }),
            _ => None,
        }
    }

    /// Distance between two bit patterns.
    pub const fn distance(self, a: u64, b: u64) -> Distance {
        let (m, n) = (a & !self.sign, b & !self.sign);
        if m > self.last || n > self.last {
            return Distance::Nan;
        }
        let opposite = (a ^ b) & self.sign != 0;
        if let Some(infinity) = self.infinity
            && (m == infinity || n == infinity)
        {
            let same = m == n && !opposite;
            return if same { Distance::Ulps(0) } else { Distance::Infinite };
        }
        match (opposite, m == 0 || n == 0) {
            (false, _) => Distance::Ulps(m.abs_diff(n)),
            // One magnitude is zero, so the sum is the other one.
            (true, true) => Distance::Ulps(m + n),
            (true, false) => Distance::Sign,
        }
    }
}

/// A float whose bits order like its magnitude.
pub trait Float: Copy {
    /// Where the format keeps what.
    const LAYOUT: Layout;

    /// The bits, zero-extended.
    fn bits(self) -> u64;
}

impl Float for f64 {
    const LAYOUT: Layout = Layout::ieee(11, 52);

    fn bits(self) -> u64 {
        self.to_bits()
    }
}

impl Float for f32 {
    const LAYOUT: Layout = Layout::ieee(8, 23);

    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Float for f16 {
    const LAYOUT: Layout = Layout::ieee(5, 10);

    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Float for bf16 {
    const LAYOUT: Layout = Layout::ieee(8, 7);

    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
}

/// Distance between two numbers of one format.
pub fn ulp_distance<F: Float>(a: F, b: F) -> Distance {
    F::LAYOUT.distance(a.bits(), b.bits())
}

/// Distance between two elements of one dtype, given by their bits.
///
/// For integers, and the bytes of booleans, it is the absolute difference.
pub fn distance_of_bits(dtype: Dtype, a: u64, b: u64) -> Distance {
    if let Some(layout) = Layout::of(dtype) {
        return layout.distance(a, b);
    }
    Distance::Ulps(match dtype {
        Dtype::I8 => u64::from((a as i8).abs_diff(b as i8)),
        Dtype::I16 => u64::from((a as i16).abs_diff(b as i16)),
        Dtype::I32 => u64::from((a as i32).abs_diff(b as i32)),
        Dtype::I64 => a.cast_signed().abs_diff(b.cast_signed()),
        _ => a.abs_diff(b),
    })
}

/// Spacing of `dtype`'s values at magnitude `|x|`: the unit that tolerances count in.
///
/// At least the smallest subnormal, at most the spacing below the largest finite value; 1 for integers and booleans,
/// NaN for NaN. For the power-of-two scale `f8_e8m0` it is the value itself, the step up.
pub fn unit_in_last_place(dtype: Dtype, x: f64) -> f64 {
    let Some(Spacing { lowest, highest, mantissa_bits }) = Spacing::of(dtype) else {
        return 1.0;
    };
    if x.is_nan() {
        return f64::NAN;
    }
    let field = (x.abs().to_bits() >> 52) as i32;
    let exponent = (field - 1023).clamp(lowest, highest) - mantissa_bits;
    power_of_two(exponent)
}

/// Exponents of the smallest and largest normal binade, and the width of the mantissa.
struct Spacing {
    lowest: i32,
    highest: i32,
    mantissa_bits: i32,
}

impl Spacing {
    const fn of(dtype: Dtype) -> Option<Self> {
        let (lowest, highest, mantissa_bits) = match dtype {
            Dtype::F64 => (-1022, 1023, 52),
            Dtype::F32 => (-126, 127, 23),
            Dtype::Bf16 => (-126, 127, 7),
            Dtype::F16 => (-14, 15, 10),
            Dtype::F8E5M2 => (-14, 15, 2),
            Dtype::F8E4M3 => (-6, 8, 3),
            Dtype::F8E8M0 => (-127, 127, 0),
            _ => return None,
        };
        Some(Self { lowest, highest, mantissa_bits })
    }
}

/// `2^exponent`, subnormals of f64 included.
fn power_of_two(exponent: i32) -> f64 {
    if exponent >= -1022 {
        f64::from_bits(((exponent + 1023) as u64) << 52)
    } else {
        f64::from_bits(1 << (exponent + 1074))
    }
}

#[cfg(test)]
mod tests {
    use mlx_parity_tensor::{f8_e4m3_to_f64, f8_e5m2_to_f64, f8_e8m0_to_f64};
    use proptest::prelude::*;

    use super::*;

    /// An 8-bit float with 4 exponent and 3 mantissa bits and the IEEE layout: small enough to test all pairs.
    #[derive(Debug, Clone, Copy)]
    struct F8(u8);

    impl Float for F8 {
        const LAYOUT: Layout = Layout::ieee(4, 3);

        fn bits(self) -> u64 {
            u64::from(self.0)
        }
    }

    /// The value, from the definition of the format.
    fn f8_value(bits: u8) -> f64 {
        let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
        let (field, fraction) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
        sign * match (field, bits & 7) {
            (15, 0) => f64::INFINITY,
            (15, _) => f64::NAN,
            (0, _) => fraction / 8.0 * 2f64.powi(-6),
            _ => (1.0 + fraction / 8.0) * 2f64.powi(field - 7),
        }
    }

    /// Walks from one value to the other, one of the sorted `values` at a time. Knows nothing of bits.
    fn walk(values: &[f64], a: f64, b: f64) -> Distance {
        if a.is_nan() || b.is_nan() {
            return Distance::Nan;
        }
        if a.is_infinite() || b.is_infinite() {
            return if a == b { Distance::Ulps(0) } else { Distance::Infinite };
        }
        if (a > 0.0 && b < 0.0) || (a < 0.0 && b > 0.0) {
            return Distance::Sign;
        }
        let (low, high) = (a.min(b), a.max(b));
        let mut above = values.iter().skip_while(|v| **v != low);
        let mut steps = 0;
        while above.next().is_some_and(|v| *v != high) {
            steps += 1;
        }
        Distance::Ulps(steps)
    }

    fn check_all_pairs(layout: Layout, value: impl Fn(u8) -> f64) {
        let mut values: Vec<f64> = (0..=255).map(&value).filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        // The two zeros are one value.
        values.dedup();
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let wanted = walk(&values, value(a), value(b));
                let found = layout.distance(u64::from(a), u64::from(b));
                assert_eq!(found, wanted, "{a:#04x} ({}) and {b:#04x} ({})", value(a), value(b));
            }
        }
    }

    #[test]
    fn all_pairs_of_every_8_bit_float_agree_with_a_walk() {
        check_all_pairs(F8::LAYOUT, f8_value);
        check_all_pairs(Layout::of(Dtype::F8E5M2).unwrap(), f8_e5m2_to_f64);
        check_all_pairs(Layout::of(Dtype::F8E4M3).unwrap(), f8_e4m3_to_f64);
        check_all_pairs(Layout::of(Dtype::F8E8M0).unwrap(), f8_e8m0_to_f64);
    }

    #[test]
    fn the_generic_function_is_the_layout() {
        for (a, b) in [(0x01, 0x81), (0x00, 0x80), (0x77, 0x78), (0x79, 0x79), (0x10, 0x13)] {
            let layout = F8::LAYOUT.distance(u64::from(a), u64::from(b));
            assert_eq!(ulp_distance(F8(a), F8(b)), layout);
        }
    }

    #[test]
    fn the_traps_of_other_crates() {
        assert_eq!(ulp_distance(f32::NAN, f32::NAN), Distance::Nan);
        assert_eq!(ulp_distance(f32::from_bits(0x7f80_0001), f32::INFINITY), Distance::Nan);
        assert_eq!(ulp_distance(f32::MAX, f32::INFINITY), Distance::Infinite);
        assert_eq!(ulp_distance(f32::INFINITY, f32::NEG_INFINITY), Distance::Infinite);
        assert_eq!(ulp_distance(f32::INFINITY, f32::INFINITY), Distance::Ulps(0));
        assert_eq!(ulp_distance(0.0f32, -0.0), Distance::Ulps(0));
        assert_eq!(ulp_distance(f32::from_bits(1), -f32::from_bits(1)), Distance::Sign);
        assert_eq!(ulp_distance(0.0f32, -f32::from_bits(1)), Distance::Ulps(1));
        assert_eq!(ulp_distance(1.0f64, 1.0f64.next_up()), Distance::Ulps(1));
        assert_eq!(
            ulp_distance(f64::MAX, f64::MIN_POSITIVE),
            Distance::Ulps(0x7fdf_ffff_ffff_ffff)
        );
        assert!(!Distance::Infinite.within(u64::MAX) && !Distance::Nan.within(u64::MAX));
    }

    #[test]
    fn integers_are_their_difference_apart() {
        let distance = |dtype: Dtype, a: i64, b: i64| {
            let mask = if dtype == Dtype::I64 { u64::MAX } else { (1 << (dtype.size() * 8)) - 1 };
            distance_of_bits(dtype, a.cast_unsigned() & mask, b.cast_unsigned() & mask)
        };
        assert_eq!(distance(Dtype::I8, -128, 127), Distance::Ulps(255));
        assert_eq!(distance(Dtype::I32, -1, 1), Distance::Ulps(2));
        assert_eq!(distance(Dtype::I64, i64::MIN, i64::MAX), Distance::Ulps(u64::MAX));
        assert_eq!(distance(Dtype::U32, 5, 3), Distance::Ulps(2));
        assert_eq!(distance(Dtype::Bool, 1, 0), Distance::Ulps(1));
    }

    #[test]
    fn the_unit_is_the_gap_to_the_next_value() {
        for bits in 0..0x7e_u8 {
            let (low, high) = (f8_e4m3_to_f64(bits), f8_e4m3_to_f64(bits + 1));
            assert_eq!(unit_in_last_place(Dtype::F8E4M3, -low), high - low, "{low}");
        }
        assert_eq!(unit_in_last_place(Dtype::F32, 0.0), f64::from(f32::from_bits(1)));
        assert_eq!(unit_in_last_place(Dtype::F64, 0.0), f64::from_bits(1));
        assert_eq!(unit_in_last_place(Dtype::Bf16, 20.25), 0.125);
        assert_eq!(unit_in_last_place(Dtype::F16, 1e9), 32.0);
        assert!(unit_in_last_place(Dtype::F16, f64::NAN).is_nan());
        assert_eq!(unit_in_last_place(Dtype::I32, 1e9), 1.0);
    }

    proptest! {
        #[test]
        fn one_step_is_one_ulp(x: f32) {
            prop_assume!(x.is_finite() && x.next_up().is_finite());
            prop_assert_eq!(ulp_distance(x, x.next_up()), Distance::Ulps(1));
            let gap = f64::from(x.abs().next_up()) - f64::from(x.abs());
            prop_assume!(x.abs() < f32::MAX);
            prop_assert_eq!(unit_in_last_place(Dtype::F32, f64::from(x)), gap);
        }

        #[test]
        fn distance_is_symmetric(a: u64, b: u64) {
            let (x, y) = (f64::from_bits(a), f64::from_bits(b));
            prop_assert_eq!(ulp_distance(x, y), ulp_distance(y, x));
            let (x, y) = (f16::from_bits(a as u16), f16::from_bits(b as u16));
            prop_assert_eq!(ulp_distance(x, y), ulp_distance(y, x));
        }

        #[test]
        fn distances_add_up_on_one_side_of_zero(mut bits in proptest::array::uniform3(0u16..0x7f80)) {
            bits.sort_unstable();
            let [a, b, c] = bits.map(bf16::from_bits);
            let ulps = |x, y| match ulp_distance(x, y) {
                Distance::Ulps(ulps) => ulps,
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(ulps(a, c), ulps(a, b) + ulps(b, c));
            prop_assert_eq!(ulps(-a, -c), ulps(a, c));
        }

        #[test]
        fn different_numbers_are_never_zero_apart(a: f64, b: f64) {
            prop_assume!(a != b);
            prop_assert!(!ulp_distance(a, b).within(0));
        }
    }
}
