//! A borrowed tensor.

use std::ops::Range;

use half::{bf16, f16};
use sha2::{Digest, Sha256};

use crate::cast::{bf16_to_f32, f8_e4m3_to_f64, f8_e5m2_to_f64, f8_e8m0_to_f64, f16_to_f32};
use crate::{Dtype, HostTensor, TensorError};

/// Row-major, little-endian elements that live elsewhere, of any alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorView<'a> {
    dtype: Dtype,
    shape: &'a [usize],
    bytes: &'a [u8],
}

impl<'a> TensorView<'a> {
    /// Borrows `bytes` as a tensor.
    ///
    /// # Errors
    /// [`TensorError::ShapeOverflow`] or [`TensorError::WrongLength`] when shape and bytes disagree.
    pub fn new(dtype: Dtype, shape: &'a [usize], bytes: &'a [u8]) -> Result<Self, TensorError> {
        let wanted = byte_length(dtype, shape)?;
        if bytes.len() != wanted {
            let (shape, found) = (shape.to_vec(), bytes.len());
            return Err(TensorError::WrongLength { dtype, shape, found, wanted });
        }
        Ok(Self { dtype, shape, bytes })
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Dimensions, outermost first; empty for a scalar.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// The elements, row-major and little-endian.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Raw bits of element `index`, zero-extended. Panics when out of range.
    pub fn bits_at(&self, index: usize) -> u64 {
        let size = self.dtype.size();
        let mut wide = [0; 8];
        wide[..size].copy_from_slice(&self.bytes[index * size..][..size]);
        u64::from_le_bytes(wide)
    }

    /// Value of element `index` as [`TensorView::to_f64`] gives it. Panics when out of range.
    pub fn value_at(&self, index: usize) -> f64 {
        value_of_bits(self.dtype, self.bits_at(index))
    }

    /// Coordinates of flat index `index`, one for each axis.
    pub fn coords(&self, index: usize) -> Vec<usize> {
        let mut rest = index;
        let mut coords = vec![0; self.shape.len()];
        for (coord, &dim) in coords.iter_mut().zip(self.shape).rev() {
            *coord = rest % dim;
            rest /= dim;
        }
        coords
    }

    /// All elements widened. Exact, but for 64-bit integers beyond 2⁵³, which round to nearest even.
    /// A boolean is 1 when its byte is not zero.
    pub fn to_f64(&self) -> Vec<f64> {
        let bytes = self.bytes;
        match self.dtype {
            Dtype::Bool => bytes.iter().map(|b| f64::from(u8::from(*b != 0))).collect(),
            Dtype::U8 => bytes.iter().map(|b| f64::from(*b)).collect(),
            Dtype::I8 => bytes.iter().map(|b| f64::from(b.cast_signed())).collect(),
            Dtype::F8E4M3 => bytes.iter().map(|b| f8_e4m3_to_f64(*b)).collect(),
            Dtype::F8E5M2 => bytes.iter().map(|b| f8_e5m2_to_f64(*b)).collect(),
            Dtype::F8E8M0 => bytes.iter().map(|b| f8_e8m0_to_f64(*b)).collect(),
            Dtype::U16 => widen(bytes, |b| f64::from(u16::from_le_bytes(b))),
            Dtype::I16 => widen(bytes, |b| f64::from(i16::from_le_bytes(b))),
            Dtype::F16 => widen(bytes, |b| f64::from(f16_to_f32(f16::from_le_bytes(b)))),
            Dtype::Bf16 => widen(bytes, |b| f64::from(bf16_to_f32(bf16::from_le_bytes(b)))),
            Dtype::U32 => widen(bytes, |b| f64::from(u32::from_le_bytes(b))),
            Dtype::I32 => widen(bytes, |b| f64::from(i32::from_le_bytes(b))),
            Dtype::F32 => widen(bytes, |b| f64::from(f32::from_le_bytes(b))),
            Dtype::U64 => widen(bytes, |b| u64::from_le_bytes(b) as f64),
            Dtype::I64 => widen(bytes, |b| i64::from_le_bytes(b) as f64),
            Dtype::F64 => widen(bytes, f64::from_le_bytes),
        }
    }

    /// A copy of rows `range` of the leading axis. Panics, as slicing does, when out of range or for a scalar.
    pub fn rows(&self, range: Range<usize>) -> HostTensor {
        let leading = self.shape[0];
        assert!(
            range.start <= range.end && range.end <= leading,
            "rows {range:?} are outside the leading axis of shape {:?}",
            self.shape
        );
        let row = self.bytes.len().checked_div(leading).unwrap_or(0);
        let bytes = &self.bytes[range.start * row..range.end * row];
        let shape = [&[range.len()], &self.shape[1..]].concat();
        HostTensor::from_view(TensorView { dtype: self.dtype, shape: &shape, bytes })
    }

    /// A copy that owns its bytes.
    pub fn to_host(&self) -> HostTensor {
        HostTensor::from_view(*self)
    }

    /// `sha256:<hex>` over dtype name, rank, dimensions and bytes, so that equal digests mean equal tensors.
    pub fn digest(&self) -> String {
        let mut hasher = Sha256::new();
        self.hash_into(&mut hasher);
        hex_digest(hasher)
    }

    /// Feeds the tensor to `hasher`, each part of fixed or stated length.
    pub(crate) fn hash_into(&self, hasher: &mut Sha256) {
        hash_text(hasher, self.dtype.name());
        hasher.update((self.shape.len() as u64).to_le_bytes());
        for dim in self.shape {
            hasher.update((*dim as u64).to_le_bytes());
        }
        hasher.update(self.bytes);
    }
}

/// Feeds a text and its length, so that neighbouring texts cannot run into each other.
pub(crate) fn hash_text(hasher: &mut Sha256, text: &str) {
    hasher.update((text.len() as u64).to_le_bytes());
    hasher.update(text);
}

pub(crate) fn hex_digest(hasher: Sha256) -> String {
    use std::fmt::Write;
    let mut text = String::from("sha256:");
    for byte in hasher.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Bytes a tensor of this dtype and shape takes.
pub(crate) fn byte_length(dtype: Dtype, shape: &[usize]) -> Result<usize, TensorError> {
    shape
        .iter()
        .try_fold(1usize, |product, dim| product.checked_mul(*dim))
        .and_then(|elements| elements.checked_mul(dtype.size()))
        .ok_or_else(|| TensorError::ShapeOverflow { dtype, shape: shape.to_vec() })
}

fn widen<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    bytes.as_chunks::<N>().0.iter().map(|element| value(*element)).collect()
}

fn value_of_bits(dtype: Dtype, bits: u64) -> f64 {
    match dtype {
        Dtype::Bool => f64::from(u8::from(bits != 0)),
        Dtype::U8 | Dtype::U16 | Dtype::U32 | Dtype::U64 => bits as f64,
        Dtype::I8 => f64::from(bits as i8),
        Dtype::I16 => f64::from(bits as i16),
        Dtype::I32 => f64::from(bits as i32),
        Dtype::I64 => bits.cast_signed() as f64,
        Dtype::F8E4M3 => f8_e4m3_to_f64(bits as u8),
        Dtype::F8E5M2 => f8_e5m2_to_f64(bits as u8),
        Dtype::F8E8M0 => f8_e8m0_to_f64(bits as u8),
        Dtype::F16 => f64::from(f16_to_f32(f16::from_bits(bits as u16))),
        Dtype::Bf16 => f64::from(bf16_to_f32(bf16::from_bits(bits as u16))),
        Dtype::F32 => f64::from(f32::from_bits(bits as u32)),
        Dtype::F64 => f64::from_bits(bits),
    }
}
