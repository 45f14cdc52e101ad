//! The exponential function, in a form that compilers turn into vector code.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is compiled for the narrowest registers"
)]

use std::f64::consts::{LN_2, LOG2_E};

/// Adding it to a number below 2⁵¹ rounds that to a whole one, which the lowest bits of the sum then hold.
const ROUND: f64 = 6_755_399_441_055_744.0;
/// What ln 2 has beyond its nearest float64.
const LN_2_TAIL: f64 = 2.319_046_813_846_299_6e-17;
/// Below it the power would be no normal number.
const LOWEST: f64 = -708.0;

/// Coefficients of r², r³, … in eʳ − 1 − r for |r| ≤ ½ ln 2, interpolated at Chebyshev nodes; together they are within
/// 2e-17 of eʳ, relatively.
const TERMS: [f64; 10] = [
    0.500_000_000_000_000_1,
    0.166_666_666_666_666_69,
    0.041_666_666_666_624_13,
    0.008_333_333_333_330_062,
    0.001_388_888_891_721_371_7,
    0.000_198_412_698_630_536_18,
    2.480_152_129_595_437_6e-5,
    2.755_726_845_999_706_4e-6,
    2.762_008_844_540_974_6e-7,
    2.510_038_549_551_032e-8,
];

/// eˣ for −708 ≤ x ≤ 709, within one unit in the last place; e⁻⁷⁰⁸ = 3e-308 for any x below, and for a NaN.
///
/// x = k ln 2 + r, and eˣ = 2ᵏ eʳ (Muller, "Elementary functions", 3rd edition, §11). The steps are the same on all
/// machines, and so is the result.
#[inline(always)]
pub(super) fn exp(x: f64) -> f64 {
    let x = if x > LOWEST { x } else { LOWEST };
    let rounded = x.mul_add(LOG2_E, ROUND);
    let k = rounded - ROUND;
    let r = k.mul_add(-LN_2_TAIL, k.mul_add(-LN_2, x));
    // Estrin's scheme: few steps wait for the one before.
    let [c2, c3, c4, c5, c6, c7, c8, c9, c10, c11] = TERMS;
    let square = r * r;
    let fourth = square * square;
    let low = c5.mul_add(r, c4).mul_add(square, c3.mul_add(r, c2));
    let middle = c9.mul_add(r, c8).mul_add(square, c7.mul_add(r, c6));
    let sum = c11.mul_add(r, c10).mul_add(fourth, middle).mul_add(fourth, low);
    let sum = 1.0 + sum.mul_add(square, r);
    let scaled = sum.to_bits().wrapping_add(rounded.to_bits() << 52);
    f64::from_bits(scaled)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ulps(x: f64) -> u64 {
        exp(x).to_bits().abs_diff(x.exp().to_bits())
    }

    #[test]
    fn known_values_are_exact() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!([-708.1, -1e38, f64::NEG_INFINITY, f64::NAN].map(exp), [exp(-708.0); 4]);
        assert!(ulps(1.0) <= 1 && ulps(-708.0) <= 1 && ulps(700.0) <= 1);
    }

    #[test]
    fn the_edges_of_each_reduction_are_close() {
        for half_turns in -2040..2000 {
            let x = f64::from(half_turns) * LN_2 / 2.0;
            for x in [x.next_down(), x, x.next_up()] {
                assert!(ulps(x) <= 1, "{x}: {} ulp", ulps(x));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn it_is_within_one_ulp_of_the_platforms(x in -708.0f64..709.0) {
            prop_assert!(ulps(x) <= 1);
        }

        #[test]
        fn it_is_within_one_ulp_near_zero(x in -1e-3f64..1e-3) {
            prop_assert!(ulps(x) <= 1);
        }
    }
}
