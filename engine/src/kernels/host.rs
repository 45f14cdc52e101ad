//! Arrays lent to kernels, and memory of theirs taken as arrays.

use std::ffi::c_void;

use mlx_parity_kernels::{Buffer, Data, View};
use mlx_rs::{Array, Dtype};

use crate::array::{host_dtype, mlx_dtype, mlx_shape};
use crate::error::EngineError;
use crate::ops;

/// An evaluated array with its extents and strides as a kernel wants them.
pub(super) struct Lent {
    array: Array,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl Lent {
    /// Evaluates an array and holds on to it. Views stay views; one that runs backwards is copied.
    ///
    /// # Errors
    /// [`EngineError::NoSuchDtype`] for a dtype that kernels do not read, [`EngineError::Op`] where MLX
    /// throws.
    pub(super) fn new(array: &Array) -> Result<Self, EngineError> {
        let dtype = host_dtype(array.dtype())?;
        if Buffer::zeros(dtype, 0).is_none() {
            return Err(EngineError::NoSuchDtype { found: dtype.name().to_owned() });
        }
        ops::eval([array])?;
        let backwards = array.strides().iter().any(|&stride| isize::try_from(stride).is_err());
        let array = if backwards { ops::contiguous(array)? } else { array.clone() };
        ops::eval([&array])?;
        let shape = array.shape().iter().map(|&extent| extent as usize).collect();
        let strides = array.strides().to_vec();
        Ok(Self { array, shape, strides })
    }

    /// The array as a kernel reads it.
    pub(super) fn view(&self) -> View<'_> {
        let empty = self.shape.contains(&0);
        let reach = |(&extent, &stride): (&usize, &usize)| (extent - 1) * stride;
        let len = if empty {
            0
        } else {
            1 + self.shape.iter().zip(&self.strides).map(reach).sum::<usize>()
        };
        // SAFETY: the array is evaluated (checked when it was lent) and lives as long as `self`, so the
        // call returns the address of its first element, whatever its dtype.
        let start = unsafe { mlx_sys::mlx_array_data_uint8(self.array.as_ptr()) }.cast::<c_void>();
        let len = if start.is_null() { 0 } else { len };
        let data = match self.array.dtype() {
            Dtype::Float16 => Data::F16(elements(start, len)),
            Dtype::Bfloat16 => Data::Bf16(elements(start, len)),
            Dtype::Uint32 => Data::U32(elements(start, len)),
            Dtype::Int32 => Data::I32(elements(start, len)),
            _ => Data::F32(elements(start, len)),
        };
        View { data, shape: &self.shape, strides: &self.strides }
    }
}

/// `len` elements from `start` on.
fn elements<'a, T: Copy>(start: *const c_void, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: only called by `Lent::view` with the evaluated array's first element and the distance to
    // its last one, both of `T`'s width and alignment; MLX writes no array that is referenced elsewhere,
    // and `Lent` references it for as long as the view borrows it.
    unsafe { std::slice::from_raw_parts(start.cast::<T>(), len) }
}

/// A kernel's memory as an array: not copied, and freed by MLX.
///
/// # Errors
/// [`EngineError::ShapeTooLarge`].
pub(super) fn adopt(buffer: Buffer, shape: &[usize]) -> Result<Array, EngineError> {
    let dtype = mlx_dtype(buffer.data().dtype())?;
    let extents = mlx_shape(shape)?;
    assert_eq!(buffer.data().len(), shape.iter().product::<usize>(), "a result of its shape");
    let mut owned = Box::new(buffer);
    let start = match owned.as_mut() {
        Buffer::F32(of) => of.as_mut_ptr().cast::<c_void>(),
        Buffer::F16(of) | Buffer::Bf16(of) => of.as_mut_ptr().cast(),
        Buffer::U32(of) => of.as_mut_ptr().cast(),
        Buffer::I32(of) => of.as_mut_ptr().cast(),
    };
    let payload = Box::into_raw(owned);
    // SAFETY: `start` is the buffer's first element and holds exactly the product of `extents` elements of
    // `dtype`; the buffer stays where it is until MLX calls `free_buffer` with the payload, once.
    let array = unsafe {
        mlx_sys::mlx_array_new_data_managed_payload(
            start,
            extents.as_ptr(),
            extents.len() as i32,
            dtype as u32,
            payload.cast(),
            Some(free_buffer),
        )
    };
    // SAFETY: a new array that nothing else owns.
    Ok(unsafe { Array::from_ptr(array) })
}

/// What MLX calls when it no longer needs a buffer.
unsafe extern "C" fn free_buffer(payload: *mut c_void) {
    // SAFETY: the payload is the box that `adopt` gave away, and MLX gives it back once.
    drop(unsafe { Box::from_raw(payload.cast::<Buffer>()) });
}
