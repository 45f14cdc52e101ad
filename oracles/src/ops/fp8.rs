//! FP8 E4M3 codes (`mlx.core.to_fp8`, `mlx.core.from_fp8`).

use crate::answer::Answer;
use crate::format::{E4M3, Overflow};
use crate::tensor::{Tensor, Tensor64};

/// Nearest codes, ties to even; magnitudes past 448 and infinities saturate, NaN becomes a NaN
/// code.
pub fn to_fp8(x: &Tensor64) -> Tensor<u8> {
    x.map(|v| E4M3.encode(v, Overflow::Saturate) as u8)
}

/// Values of codes; `0x7f` and `0xff` are NaN (OCP FP8 1.0, section 3.1).
pub fn from_fp8(codes: &Tensor<u8>) -> Answer {
    Answer::exact(codes.map(|code| E4M3.decode(u64::from(code))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table written from its definition in words: 4 exponent bits of bias 7, 3 mantissa bits,
    /// no infinity.
    fn by_definition(code: u8) -> f64 {
        let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
        let magnitude = match (exponent, code & 7) {
            (15, 7) => f64::NAN,
            (0, _) => mantissa / 8.0 * 2.0_f64.powi(-6),
            _ => (1.0 + mantissa / 8.0) * 2.0_f64.powi(exponent - 7),
        };
        if code >= 128 { -magnitude } else { magnitude }
    }

    #[test]
    fn all_256_codes() {
        let codes: Vec<u8> = (0..=255).collect();
        let values = from_fp8(&Tensor::vector(codes.clone())).value;
        let back = to_fp8(&values);
        for (i, &code) in codes.iter().enumerate() {
            let (found, wanted) = (values.data()[i], by_definition(code));
            assert!(
                found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan()),
                "{code}"
            );
            assert_eq!(back.data()[i] & 0x7f, code & 0x7f);
        }
        assert!(values.data()[0x7f].is_nan() && values.data()[0xff].is_nan());
        assert_eq!(values.data()[0x7e], 448.0);
    }

    #[test]
    fn large_values_saturate() {
        let x = Tensor64::vector([449.0, 1e30, f64::NEG_INFINITY, -0.0]);
        assert_eq!(to_fp8(&x).data(), [0x7e, 0x7e, 0xfe, 0x80]);
    }
}
