//! Between the engine's host tensors and ref64's.

use mlx_parity_tensor::{Dtype, HostTensor};

use crate::error::OracleError;
use crate::tensor::{BoolTensor, IntTensor, PackedTensor, Tensor, Tensor64};

impl Tensor64 {
    /// Exact widening of every element.
    pub fn from_host(host: &HostTensor) -> Self {
        Self::trusted(host.shape().to_vec(), host.to_f64())
    }

    /// Rounded to nearest, ties to even, by the tensor crate's casts.
    pub fn to_host(&self, dtype: Dtype) -> Result<HostTensor, OracleError> {
        Ok(HostTensor::from_f64_as(dtype, self.shape(), self.data())?)
    }
}

fn wrong_dtype(found: Dtype, wanted: &str) -> OracleError {
    OracleError::parameter("tensor dtype", found.name(), wanted)
}

impl IntTensor {
    /// Elements of an integer or boolean tensor; `u64` values past `i64` are an error.
    pub fn from_host(host: &HostTensor) -> Result<Self, OracleError> {
        let read: fn(u64) -> i64 = match host.dtype() {
            Dtype::I8 => |bits| i64::from(bits as u8 as i8),
            Dtype::I16 => |bits| i64::from(bits as u16 as i16),
            Dtype::I32 => |bits| i64::from(bits as u32 as i32),
            Dtype::Bool | Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::I64 => |bits| bits as i64,
            Dtype::U64 if (0..host.len()).all(|i| host.bits_at(i) >> 63 == 0) => |bits| bits as i64,
            other => return Err(wrong_dtype(other, "an integer dtype that fits i64")),
        };
        let data = (0..host.len()).map(|i| read(host.bits_at(i))).collect();
        Self::new(host.shape(), data)
    }
}

impl BoolTensor {
    /// Elements of a boolean tensor.
    pub fn from_host(host: &HostTensor) -> Result<Self, OracleError> {
        match host.dtype() {
            Dtype::Bool => Self::new(host.shape(), host.bytes().iter().map(|&b| b != 0).collect()),
            other => Err(wrong_dtype(other, "bool")),
        }
    }
}

impl PackedTensor {
    /// Words of a `u32` tensor.
    pub fn from_host(host: &HostTensor) -> Result<Self, OracleError> {
        match host.dtype() {
            Dtype::U32 => {
                let words = host.bytes().as_chunks::<4>().0;
                Self::new(host.shape(), words.iter().map(|&b| u32::from_le_bytes(b)).collect())
            }
            other => Err(wrong_dtype(other, "u32")),
        }
    }
}

impl Tensor<u8> {
    /// Codes of a `u8`, E4M3 or E8M0 tensor.
    pub fn from_host(host: &HostTensor) -> Result<Self, OracleError> {
        match host.dtype() {
            Dtype::U8 | Dtype::F8E4M3 | Dtype::F8E8M0 => {
                Self::new(host.shape(), host.bytes().to_vec())
            }
            other => Err(wrong_dtype(other, "u8")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_go_out_rounded_and_come_back_exact() {
        let x = Tensor64::vector([1.0, -2.5, 1.003_906_25]);
        let host = x.to_host(Dtype::Bf16).unwrap();
        assert_eq!(Tensor64::from_host(&host).data(), [1.0, -2.5, 1.0]);
    }

    #[test]
    fn integers_keep_their_sign() {
        let host = HostTensor::from_i32([2], &[-1, i32::MAX]).unwrap();
        assert_eq!(IntTensor::from_host(&host).unwrap().data(), [-1, i64::from(i32::MAX)]);
        assert!(BoolTensor::from_host(&host).is_err());
        assert!(PackedTensor::from_host(&host).is_err());
        let words = HostTensor::from_u32([2], &[1, u32::MAX]).unwrap();
        assert_eq!(PackedTensor::from_host(&words).unwrap().data(), [1, u32::MAX]);
        let float = HostTensor::from_f32([1], &[1.0]).unwrap();
        assert!(IntTensor::from_host(&float).is_err());
        let big = HostTensor::new(Dtype::U64, [1], u64::MAX.to_le_bytes().to_vec()).unwrap();
        assert!(IntTensor::from_host(&big).is_err());
    }
}
