//! Elements as people read them.

use mlx_parity_tensor::{Dtype, TensorView};

/// Bits as `0x…`, as many digits as the dtype has.
pub(super) fn hex(dtype: Dtype, bits: u64) -> String {
    format!("{bits:#0width$x}", width = 2 + 2 * dtype.size())
}

/// Shortest decimal that names the element among values of its kind.
pub(super) fn decimal(tensor: &TensorView<'_>, index: usize) -> String {
    let (dtype, bits) = (tensor.dtype(), tensor.bits_at(index));
    match dtype {
        Dtype::U64 => bits.to_string(),
        Dtype::I64 => bits.cast_signed().to_string(),
        Dtype::F32 | Dtype::F16 | Dtype::Bf16 => float(tensor.value_at(index) as f32),
        // Exact in f64: the smaller integers, and the 8-bit floats.
        _ => float(tensor.value_at(index)),
    }
}

/// Plain notation where it is short, scientific elsewhere.
fn float<F: Copy + Into<f64> + std::fmt::Display + std::fmt::LowerExp>(x: F) -> String {
    let magnitude = x.into().abs();
    let plain = magnitude == 0.0 || (1e-5..1e16).contains(&magnitude) || !magnitude.is_finite();
    if plain { x.to_string() } else { format!("{x:e}") }
}

#[cfg(test)]
mod tests {
    use mlx_parity_tensor::HostTensor;

    use super::*;

    #[test]
    fn elements_read_as_people_write_them() {
        let read = |dtype, bytes: &[u8]| {
            let tensor = HostTensor::new(dtype, [1], bytes.to_vec()).unwrap();
            format!("{} {}", hex(dtype, tensor.bits_at(0)), decimal(&tensor.view(), 0))
        };
        assert_eq!(read(Dtype::Bf16, &[0xa3, 0x41]), "0x41a3 20.375");
        assert_eq!(read(Dtype::F32, &0.1f32.to_le_bytes()), "0x3dcccccd 0.1");
        assert_eq!(read(Dtype::F32, &(-1e-30f32).to_le_bytes()), "0x8da24260 -1e-30");
        assert_eq!(read(Dtype::F64, &(-0.0f64).to_le_bytes()), "0x8000000000000000 -0");
        assert_eq!(read(Dtype::F16, &[0, 0xfc]), "0xfc00 -inf");
        assert_eq!(
            read(Dtype::U64, &u64::MAX.to_le_bytes()),
            "0xffffffffffffffff 18446744073709551615"
        );
        assert_eq!(read(Dtype::I8, &[0xff]), "0xff -1");
        assert_eq!(read(Dtype::I32, &16_777_217i32.to_le_bytes()), "0x01000001 16777217");
    }
}
