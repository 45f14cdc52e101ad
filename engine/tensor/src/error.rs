//! What can be wrong with a tensor in memory.

use crate::Dtype;

/// A tensor that cannot exist, or a value its dtype cannot hold.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TensorError {
    /// The product of the dimensions, in elements or in bytes, does not fit in `usize`.
    #[error("shape {shape:?} of {} overflows the address space", dtype.name())]
    ShapeOverflow {
        /// Dtype asked for.
        dtype: Dtype,
        /// Shape asked for.
        shape: Vec<usize>,
    },
    /// The bytes, or the values, are not as many as the shape says.
    #[error(
        "shape {shape:?} of {} wants {wanted} bytes, found {found}", dtype.name()
    )]
    WrongLength {
        /// Dtype asked for.
        dtype: Dtype,
        /// Shape asked for.
        shape: Vec<usize>,
        /// Bytes given.
        found: usize,
        /// Bytes the shape needs.
        wanted: usize,
    },
    /// An integer, boolean or power-of-two dtype that cannot hold the value exactly.
    #[error("value {value} at index {index} is not representable in {}", dtype.name())]
    NotRepresentable {
        /// Dtype asked for.
        dtype: Dtype,
        /// Flat index of the value.
        index: usize,
        /// The value.
        value: f64,
    },
}
