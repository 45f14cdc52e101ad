//! One dtype to another.

use mlx_parity_tensor::Dtype;

use crate::error::OracleError;
use crate::format::{BF16, E4M3, E5M2, F16, F32, FloatFormat};
use crate::tensor::{IntTensor, Tensor64};

/// The float format of a dtype, where ref64 rounds to it itself.
pub fn float_format(dtype: Dtype) -> Option<FloatFormat> {
    Some(match dtype {
        Dtype::F32 => F32,
        Dtype::F16 => F16,
        Dtype::Bf16 => BF16,
        Dtype::F8E4M3 => E4M3,
        Dtype::F8E5M2 => E5M2,
        _ => return None,
    })
}

/// Range of an integer dtype, as −2ᵃ (or zero) and 2ᵇ, the first value past it.
fn range(dtype: Dtype) -> Option<(f64, f64)> {
    let bits = 8 * dtype.size() as i32;
    match dtype {
        Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => Some((0.0, 2.0_f64.powi(bits))),
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => {
            Some((-(2.0_f64.powi(bits - 1)), 2.0_f64.powi(bits - 1)))
        }
        _ => None,
    }
}

/// Values of `x` after a cast to `dtype`: floats round to nearest, ties to even, overflowing to
/// infinity or NaN; integers truncate towards zero; a boolean is whether the value is not zero.
///
/// NaN in an integer result marks a value whose cast is undefined (NaN, infinity, out of range):
/// any answer is right.
pub fn cast(x: &Tensor64, dtype: Dtype) -> Result<Tensor64, OracleError> {
    if let Some(format) = float_format(dtype) {
        return Ok(x.map(|v| format.round(v)));
    }
    if let Some((low, past)) = range(dtype) {
        let fits = |v: f64| v >= low && v < past;
        return Ok(x.map(|v| if fits(v.trunc()) { v.trunc() + 0.0 } else { f64::NAN }));
    }
    match dtype {
        Dtype::F64 => Ok(x.clone()),
        Dtype::Bool => Ok(x.map(|v| f64::from(v != 0.0))),
        _ => Err(OracleError::parameter("cast", dtype.name(), "a dtype values are cast to")),
    }
}

/// Integers after a cast to another integer dtype: the low bits, as two's complement keeps them.
pub fn cast_int(x: &IntTensor, dtype: Dtype) -> Result<IntTensor, OracleError> {
    Ok(match dtype {
        Dtype::U8 => x.map(|v| i64::from(v as u8)),
        Dtype::I8 => x.map(|v| i64::from(v as i8)),
        Dtype::U16 => x.map(|v| i64::from(v as u16)),
        Dtype::I16 => x.map(|v| i64::from(v as i16)),
        Dtype::U32 => x.map(|v| i64::from(v as u32)),
        Dtype::I32 => x.map(|v| i64::from(v as i32)),
        Dtype::I64 => x.clone(),
        Dtype::Bool => x.map(|v| i64::from(v != 0)),
        _ => {
            return Err(OracleError::parameter(
                "cast",
                dtype.name(),
                "an integer dtype of up to 63 bits",
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(dtype: Dtype, x: &[f64]) -> Vec<f64> {
        cast(&Tensor64::vector(x), dtype).unwrap().into_data()
    }

    #[test]
    fn floats_round_to_even_and_overflow() {
        assert_eq!(
            to(Dtype::Bf16, &[1.003_906_25, 1.011_718_75, 3.4e38]),
            [1.0, 1.015_625, f64::INFINITY]
        );
        assert_eq!(
            to(Dtype::F16, &[2049.0, 2051.0, 1e-9, 65520.0]),
            [2048.0, 2052.0, 0.0, f64::INFINITY]
        );
        assert_eq!(to(Dtype::F8E4M3, &[17.0, 19.0, 0.001]), [16.0, 20.0, 0.001_953_125]);
        assert!(to(Dtype::F8E4M3, &[500.0])[0].is_nan());
        assert_eq!(to(Dtype::F64, &[0.1]), [0.1]);
    }

    #[test]
    fn integers_truncate_and_undefined_casts_are_marked() {
        assert_eq!(to(Dtype::I8, &[-3.9, 127.9, -128.5]), [-3.0, 127.0, -128.0]);
        assert!(to(Dtype::I8, &[128.0, -129.0, f64::NAN]).iter().all(|v| v.is_nan()));
        assert_eq!(to(Dtype::U8, &[-0.9, 255.5]), [0.0, 255.0]);
        assert!(to(Dtype::U8, &[-1.0])[0].is_nan());
        assert_eq!(to(Dtype::Bool, &[0.0, -0.0, 0.1, f64::NAN]), [0.0, 0.0, 1.0, 1.0]);
        assert!(cast(&Tensor64::scalar(1.0), Dtype::F8E8M0).is_err());
    }

    #[test]
    fn integers_keep_their_low_bits() {
        let x = IntTensor::vector([-1, 256, 128]);
        assert_eq!(cast_int(&x, Dtype::U8).unwrap().data(), [255, 0, 128]);
        assert_eq!(cast_int(&x, Dtype::I8).unwrap().data(), [-1, 0, -128]);
        assert_eq!(cast_int(&x, Dtype::U32).unwrap().data(), [4_294_967_295, 256, 128]);
        assert!(cast_int(&x, Dtype::F32).is_err());
    }
}
