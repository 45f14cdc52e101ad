//! Arrays as kernels look at them.

use std::ffi::c_void;

use mlx_parity_kernels::{Buffer, View};
use mlx_parity_tensor::Dtype;
use mlx_rs::Array;

use super::deferred::{data, reach};
use crate::array::host_dtype;
use crate::error::EngineError;
use crate::ops;

/// An array with its dtype, extents and strides as a kernel wants them.
pub(super) struct Lent {
    array: Array,
    dtype: Dtype,
    shape: Vec<usize>,
    strides: Vec<usize>,
    evaluated: bool,
}

impl Lent {
    /// Evaluates an array and holds on to it. Views stay views; one that runs backwards is copied.
    ///
    /// # Errors
    /// [`EngineError::NoSuchDtype`] for a dtype that kernels do not read, [`EngineError::Op`] where MLX
    /// throws.
    pub(super) fn new(array: &Array) -> Result<Self, EngineError> {
        ops::eval([array])?;
        let backwards = array.strides().iter().any(|&stride| isize::try_from(stride).is_err());
        let array = if backwards { ops::contiguous(array)? } else { array.clone() };
        ops::eval([&array])?;
        Ok(Self { strides: array.strides().to_vec(), evaluated: true, ..Self::planned(&array)? })
    }

    /// An array that need not be computed yet: dtype and shape, row-major, without memory.
    ///
    /// # Errors
    /// [`EngineError::NoSuchDtype`] for a dtype that kernels do not read.
    pub(super) fn planned(array: &Array) -> Result<Self, EngineError> {
        let dtype = host_dtype(array.dtype())?;
        if Buffer::zeros(dtype, 0).is_none() {
            return Err(EngineError::NoSuchDtype { found: dtype.name().to_owned() });
        }
        let shape: Vec<usize> = array.shape().iter().map(|&extent| extent as usize).collect();
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis].max(1);
        }
        Ok(Self { array: array.clone(), dtype, shape, strides, evaluated: false })
    }

    pub(super) const fn array(&self) -> &Array {
        &self.array
    }

    pub(super) const fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The array as a kernel reads it.
    pub(super) fn view(&self) -> View<'_> {
        let start = if self.evaluated {
            // SAFETY: the array is evaluated and lives as long as `self`, so the call returns the address of
            // its first element, whatever its dtype.
            unsafe { mlx_sys::mlx_array_data_uint8(self.array.as_ptr()) }.cast::<c_void>()
        } else {
            std::ptr::null()
        };
        let len = if start.is_null() { 0 } else { reach(&self.shape, &self.strides) };
        let data = data(self.dtype, start, len);
        View { data, shape: &self.shape, strides: &self.strides }
    }
}

/// `len` elements from `start` on.
pub(super) fn elements<'a, T: Copy>(start: *const c_void, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: only called with an evaluated array's first element and the distance to its last one, both of
    // `T`'s width and alignment; MLX writes no array that is referenced elsewhere, and `Lent`, or the graph for
    // a call that runs, references it for as long as the view is used.
    unsafe { std::slice::from_raw_parts(start.cast::<T>(), len) }
}
