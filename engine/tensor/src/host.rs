//! A tensor that owns its bytes.

use std::ops::Range;

use crate::cast::{bf16_from_f64, f8_e4m3_from_f64, f8_e5m2_from_f64, f16_from_f64};
use crate::view::byte_length;
use crate::{Dtype, TensorError, TensorView};

/// The only tensor that crosses from engine to harness: row-major, contiguous, little-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTensor {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl HostTensor {
    /// Takes `bytes` as a tensor.
    ///
    /// # Errors
    /// [`TensorError::ShapeOverflow`] or [`TensorError::WrongLength`] when shape and bytes disagree.
    pub fn new(
        dtype: Dtype,
        shape: impl Into<Vec<usize>>,
        bytes: Vec<u8>,
    ) -> Result<Self, TensorError> {
        let shape = shape.into();
        TensorView::new(dtype, &shape, &bytes)?;
        Ok(Self { dtype, shape, bytes })
    }

    pub(crate) fn from_view(view: TensorView<'_>) -> Self {
        let (shape, bytes) = (view.shape().to_vec(), view.bytes().to_vec());
        Self { dtype: view.dtype(), shape, bytes }
    }

    /// An `f32` tensor with these values.
    pub fn from_f32(shape: impl Into<Vec<usize>>, values: &[f32]) -> Result<Self, TensorError> {
        Self::from_elements(Dtype::F32, shape, values, |v| v.to_le_bytes())
    }

    /// An `f64` tensor with these values.
    pub fn from_f64(shape: impl Into<Vec<usize>>, values: &[f64]) -> Result<Self, TensorError> {
        Self::from_elements(Dtype::F64, shape, values, |v| v.to_le_bytes())
    }

    /// An `i32` tensor with these values.
    pub fn from_i32(shape: impl Into<Vec<usize>>, values: &[i32]) -> Result<Self, TensorError> {
        Self::from_elements(Dtype::I32, shape, values, |v| v.to_le_bytes())
    }

    /// A `u32` tensor with these values.
    pub fn from_u32(shape: impl Into<Vec<usize>>, values: &[u32]) -> Result<Self, TensorError> {
        Self::from_elements(Dtype::U32, shape, values, |v| v.to_le_bytes())
    }

    /// An `f16` tensor with these bit patterns.
    pub fn from_f16_bits(shape: impl Into<Vec<usize>>, bits: &[u16]) -> Result<Self, TensorError> {
        Self::from_elements(Dtype::F16, shape, bits, |v| v.to_le_bytes())
    }

    /// A `bf16` tensor with these bit patterns.
    pub fn from_bf16_bits(shape: impl Into<Vec<usize>>, bits: &[u16]) -> Result<Self, TensorError> {
        Self::from_elements(Dtype::Bf16, shape, bits, |v| v.to_le_bytes())
    }

    /// Values rounded once to `dtype`, to nearest even.
    ///
    /// Floats overflow to infinity (`f8_e4m3`, which has none, to NaN).
    ///
    /// # Errors
    /// [`TensorError::NotRepresentable`] where an integer, boolean or `f8_e8m0` cannot hold the value exactly:
    /// those have no rounding that all references share. Otherwise as [`HostTensor::new`].
    pub fn from_f64_as(
        dtype: Dtype,
        shape: impl Into<Vec<usize>>,
        values: &[f64],
    ) -> Result<Self, TensorError> {
        let mut bytes = Vec::with_capacity(values.len() * dtype.size());
        for (index, &value) in values.iter().enumerate() {
            let bits = bits_from_f64(dtype, value).ok_or(TensorError::NotRepresentable {
                dtype,
                index,
                value,
            })?;
            bytes.extend_from_slice(&bits.to_le_bytes()[..dtype.size()]);
        }
        Self::new(dtype, shape, bytes)
    }

    fn from_elements<T, const N: usize>(
        dtype: Dtype,
        shape: impl Into<Vec<usize>>,
        values: &[T],
        element: impl Fn(&T) -> [u8; N],
    ) -> Result<Self, TensorError> {
        let mut bytes = Vec::with_capacity(values.len() * N);
        for value in values {
            bytes.extend_from_slice(&element(value));
        }
        Self::new(dtype, shape, bytes)
    }

    /// A tensor whose bytes are all zero.
    ///
    /// # Errors
    /// [`TensorError::ShapeOverflow`].
    pub fn zeros(dtype: Dtype, shape: impl Into<Vec<usize>>) -> Result<Self, TensorError> {
        let shape = shape.into();
        let bytes = vec![0; byte_length(dtype, &shape)?];
        Ok(Self { dtype, shape, bytes })
    }

    /// Borrows the whole tensor.
    pub fn view(&self) -> TensorView<'_> {
        TensorView::new(self.dtype, &self.shape, &self.bytes)
            .expect("shape and bytes agree since construction")
    }

    /// Element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Dimensions, outermost first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements, row-major and little-endian.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Gives the bytes away.
    pub fn into_bytes(self) -> Vec<u8> {
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

    /// See [`TensorView::to_f64`].
    pub fn to_f64(&self) -> Vec<f64> {
        self.view().to_f64()
    }

    /// See [`TensorView::bits_at`].
    pub fn bits_at(&self, index: usize) -> u64 {
        self.view().bits_at(index)
    }

    /// See [`TensorView::value_at`].
    pub fn value_at(&self, index: usize) -> f64 {
        self.view().value_at(index)
    }

    /// See [`TensorView::coords`].
    pub fn coords(&self, index: usize) -> Vec<usize> {
        self.view().coords(index)
    }

    /// See [`TensorView::rows`].
    #[must_use]
    pub fn rows(&self, range: Range<usize>) -> Self {
        self.view().rows(range)
    }

    /// See [`TensorView::digest`].
    pub fn digest(&self) -> String {
        self.view().digest()
    }
}

impl<'a> From<&'a HostTensor> for TensorView<'a> {
    fn from(tensor: &'a HostTensor) -> Self {
        tensor.view()
    }
}

fn bits_from_f64(dtype: Dtype, x: f64) -> Option<u64> {
    match dtype {
        Dtype::F64 => Some(x.to_bits()),
        Dtype::F32 => Some(u64::from((x as f32).to_bits())),
        Dtype::F16 => Some(u64::from(f16_from_f64(x).to_bits())),
        Dtype::Bf16 => Some(u64::from(bf16_from_f64(x).to_bits())),
        Dtype::F8E4M3 => Some(u64::from(f8_e4m3_from_f64(x))),
        Dtype::F8E5M2 => Some(u64::from(f8_e5m2_from_f64(x))),
        Dtype::F8E8M0 => e8m0_from_f64(x),
        Dtype::Bool => integer(x, 0, 1),
        Dtype::U8 => integer(x, 0, i128::from(u8::MAX)),
        Dtype::U16 => integer(x, 0, i128::from(u16::MAX)),
        Dtype::U32 => integer(x, 0, i128::from(u32::MAX)),
        Dtype::U64 => integer(x, 0, i128::from(u64::MAX)),
        Dtype::I8 => integer(x, i128::from(i8::MIN), i128::from(i8::MAX)),
        Dtype::I16 => integer(x, i128::from(i16::MIN), i128::from(i16::MAX)),
        Dtype::I32 => integer(x, i128::from(i32::MIN), i128::from(i32::MAX)),
        Dtype::I64 => integer(x, i128::from(i64::MIN), i128::from(i64::MAX)),
    }
}

/// Two's complement bits of a whole number in range.
fn integer(x: f64, low: i128, high: i128) -> Option<u64> {
    let whole = x as i128;
    let fits = whole as f64 == x && (low..=high).contains(&whole);
    fits.then_some(whole as u64)
}

fn e8m0_from_f64(x: f64) -> Option<u64> {
    if x.is_nan() {
        return Some(0xff);
    }
    (0..0xffu8).find(|bits| crate::f8_e8m0_to_f64(*bits) == x).map(u64::from)
}
