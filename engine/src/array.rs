//! The border between host tensors and MLX arrays. Bits cross it unchanged, in both directions.

use std::ffi::c_void;

use half::{bf16, f16};
use mlx_parity_tensor::{Dtype, HostTensor, Layout, TensorView};
use mlx_rs::{Array, ArrayElement, Dtype as MlxDtype};

use crate::error::{EngineError, no_such_dtype, op};
use crate::ops::{self, SliceAxis, refused};

const _: () = assert!(cfg!(target_endian = "little"), "host tensors are little-endian");

/// The MLX dtype with the same values and layout as a host dtype.
///
/// # Errors
/// [`EngineError::NoSuchDtype`] for the 8-bit floats, which MLX arrays do not have.
pub fn mlx_dtype(dtype: Dtype) -> Result<MlxDtype, EngineError> {
    Ok(match dtype {
        Dtype::Bool => MlxDtype::Bool,
        Dtype::U8 => MlxDtype::Uint8,
        Dtype::I8 => MlxDtype::Int8,
        Dtype::U16 => MlxDtype::Uint16,
        Dtype::I16 => MlxDtype::Int16,
        Dtype::U32 => MlxDtype::Uint32,
        Dtype::I32 => MlxDtype::Int32,
        Dtype::U64 => MlxDtype::Uint64,
        Dtype::I64 => MlxDtype::Int64,
        Dtype::F16 => MlxDtype::Float16,
        Dtype::Bf16 => MlxDtype::Bfloat16,
        Dtype::F32 => MlxDtype::Float32,
        Dtype::F64 => MlxDtype::Float64,
        Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::F8E8M0 => return Err(no_such_dtype(dtype)),
    })
}

/// The host dtype with the same values and layout as an MLX dtype.
///
/// # Errors
/// [`EngineError::NoSuchDtype`] for `complex64`, which host tensors do not have.
pub fn host_dtype(dtype: MlxDtype) -> Result<Dtype, EngineError> {
    Ok(match dtype {
        MlxDtype::Bool => Dtype::Bool,
        MlxDtype::Uint8 => Dtype::U8,
        MlxDtype::Int8 => Dtype::I8,
        MlxDtype::Uint16 => Dtype::U16,
        MlxDtype::Int16 => Dtype::I16,
        MlxDtype::Uint32 => Dtype::U32,
        MlxDtype::Int32 => Dtype::I32,
        MlxDtype::Uint64 => Dtype::U64,
        MlxDtype::Int64 => Dtype::I64,
        MlxDtype::Float16 => Dtype::F16,
        MlxDtype::Bfloat16 => Dtype::Bf16,
        MlxDtype::Float32 => Dtype::F32,
        MlxDtype::Float64 => Dtype::F64,
        MlxDtype::Complex64 => {
            return Err(EngineError::NoSuchDtype { found: "complex64".to_owned() });
        }
    })
}

/// Copies a host tensor into a new MLX array of the same shape, dtype and bits.
///
/// # Errors
/// [`EngineError::NoSuchDtype`] for 8-bit floats, [`EngineError::ShapeTooLarge`] for an extent
/// above `i32::MAX`.
pub fn from_host(tensor: &HostTensor) -> Result<Array, EngineError> {
    from_view(&tensor.view())
}

/// [`from_host`] for a borrowed view, such as one of a mapped file: one copy in all.
///
/// # Errors
/// As [`from_host`].
pub fn from_view(view: &TensorView<'_>) -> Result<Array, EngineError> {
    let dtype = mlx_dtype(view.dtype())?;
    let shape = mlx_shape(view.shape())?;
    let bytes = view.bytes();
    if bytes.as_ptr().align_offset(view.dtype().size()) == 0 {
        return Ok(copy_in(bytes, &shape, dtype));
    }
    // A mapped file may put a tensor at any byte; MLX reads whole elements.
    let mut aligned = vec![0_u64; bytes.len().div_ceil(size_of::<u64>())];
    // SAFETY: `aligned` owns at least `bytes.len()` initialised bytes, any bit pattern is a valid
    // u64, and a fresh allocation cannot overlap `bytes`.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), aligned.as_mut_ptr().cast(), bytes.len());
    }
    // SAFETY: the same allocation, viewed as the bytes just written.
    let copy = unsafe { std::slice::from_raw_parts(aligned.as_ptr().cast(), bytes.len()) };
    Ok(copy_in(copy, &shape, dtype))
}

/// Copies a host tensor into an MLX array that holds [`Layout::logical`] of it in the given layout,
/// and evaluates it: a view with exactly that layout's strides, not a copy.
///
/// # Errors
/// [`EngineError::Op`] where the layout does not exist for the tensor's shape or MLX throws; otherwise
/// as [`from_host`].
pub fn from_host_as(tensor: &HostTensor, layout: Layout) -> Result<Array, EngineError> {
    let Some(buffer) = layout.buffer(tensor) else {
        let found = format!("shape {:?}", tensor.shape());
        return Err(refused("from_host_as", &found, &format!("one that can be {layout}")));
    };
    let stored = from_host(&buffer)?;
    let view = match layout {
        Layout::Contiguous => stored,
        Layout::Transposed => ops::swap_axes(&stored, -1, -2)?,
        Layout::Sliced => along_last(&stored, |n| SliceAxis { start: 0, stop: n, step: 2 })?,
        Layout::Reversed => {
            along_last(&stored, |n| SliceAxis { start: n - 1, stop: -1, step: -1 })?
        }
        Layout::Broadcast => ops::broadcast_to(&stored, &mlx_shape(tensor.shape())?)?,
        Layout::AxisInserted => {
            let mut axes = whole(&stored);
            axes[1] = SliceAxis::full(1);
            ops::squeeze(&ops::slice(&stored, &axes)?, 1)?
        }
        Layout::Offset => {
            let tail = SliceAxis::range(Layout::OFFSET as i32, stored.dim(0));
            ops::reshape(&ops::slice(&stored, &[tail])?, &mlx_shape(tensor.shape())?)?
        }
    };
    ops::eval([&view])?;
    Ok(view)
}

fn whole(a: &Array) -> Vec<SliceAxis> {
    a.shape().iter().map(|&extent| SliceAxis::full(extent)).collect()
}

fn along_last(a: &Array, axis: impl FnOnce(i32) -> SliceAxis) -> Result<Array, EngineError> {
    let mut axes = whole(a);
    if let Some(last) = axes.last_mut() {
        *last = axis(a.dim(-1));
    }
    ops::slice(a, &axes)
}

/// A copy of an array that knows nothing of how it was made: one copy, straight from its evaluated buffer
/// into a new one, in any dtype.
///
/// # Errors
/// [`EngineError::Op`] for an array that does not lie row-major and without gaps (make it
/// [`contiguous`](ops::contiguous) first), and where MLX throws.
pub fn detach_copy(array: &Array) -> Result<Array, EngineError> {
    ops::eval([array])?;
    let (mut row_major, mut available) = (false, false);
    // SAFETY: both calls read flags of a live array into a bool that is ours.
    let status = unsafe {
        mlx_sys::_mlx_array_is_row_contiguous(&raw mut row_major, array.as_ptr())
            | mlx_sys::_mlx_array_is_available(&raw mut available, array.as_ptr())
    };
    if status != 0 || !available || !row_major {
        let found = format!("{:?} with strides {:?}", array.shape(), array.strides());
        return Err(refused("detach_copy", &found, "a row-major array without gaps"));
    }
    // SAFETY: the array is evaluated, so the call returns the start of its buffer whatever its dtype.
    let start = unsafe { mlx_sys::mlx_array_data_uint8(array.as_ptr()) };
    if start.is_null() {
        return ops::zeros(array.shape(), array.dtype());
    }
    // SAFETY: a row-major buffer without gaps holds the elements of `shape` one after the other, of the
    // array's own dtype and alignment, and MLX copies them before the call returns.
    Ok(unsafe { Array::from_raw_data(start.cast::<c_void>(), array.shape(), array.dtype()) })
}

fn copy_in(bytes: &[u8], shape: &[i32], dtype: MlxDtype) -> Array {
    // SAFETY: host tensors and views hold exactly product(shape) elements of `dtype` (checked when
    // they are made), the caller has aligned them, and MLX copies them before the call returns.
    unsafe { Array::from_raw_data(bytes.as_ptr().cast::<c_void>(), shape, dtype) }
}

/// A shape in MLX's index type.
pub(crate) fn mlx_shape(shape: &[usize]) -> Result<Vec<i32>, EngineError> {
    shape
        .iter()
        .map(|&extent| i32::try_from(extent))
        .collect::<Result<_, _>>()
        .map_err(|_| EngineError::ShapeTooLarge { shape: shape.to_vec() })
}

/// Evaluates an array and copies it out, row-major, with its own dtype and bits. Views (transposed,
/// sliced, broadcast) are made contiguous first.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, [`EngineError::NoSuchDtype`] for `complex64`.
pub fn to_host(array: &Array) -> Result<HostTensor, EngineError> {
    let dtype = host_dtype(array.dtype())?;
    let shape: Vec<usize> = array.shape().iter().map(|&extent| extent as usize).collect();
    let array = ops::contiguous(array)?;
    let bytes = match dtype {
        // As bytes: a file may hold a boolean that is neither 0 nor 1, which no Rust bool may be.
        Dtype::Bool => copy_out::<u8>(&op("view", array.view_dtype(MlxDtype::Uint8))?),
        Dtype::U8 => copy_out::<u8>(&array),
        Dtype::I8 => copy_out::<i8>(&array),
        Dtype::U16 => copy_out::<u16>(&array),
        Dtype::I16 => copy_out::<i16>(&array),
        Dtype::U32 => copy_out::<u32>(&array),
        Dtype::I32 => copy_out::<i32>(&array),
        Dtype::U64 => copy_out::<u64>(&array),
        Dtype::I64 => copy_out::<i64>(&array),
        Dtype::F16 => copy_out::<f16>(&array),
        Dtype::Bf16 => copy_out::<bf16>(&array),
        Dtype::F32 => copy_out::<f32>(&array),
        Dtype::F64 => copy_out::<f64>(&array),
        Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::F8E8M0 => return Err(no_such_dtype(dtype)),
    }?;
    Ok(HostTensor::new(dtype, shape, bytes)?)
}

fn copy_out<T: Element>(array: &Array) -> Result<Vec<u8>, EngineError> {
    if array.size() == 0 {
        return Ok(Vec::new());
    }
    let values = op("to_host", array.try_as_slice::<T>())?;
    // SAFETY: every `Element` is a plain number without padding, so its memory is initialised
    // bytes, and the view has exactly the length of the slice it covers.
    let bytes =
        unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) };
    Ok(bytes.to_vec())
}

/// Numbers that MLX and Rust lay out alike.
pub trait Element: ArrayElement + Copy + sealed::Sealed {
    /// The dtype's short name.
    const NAME: &'static str;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($rust:ty => $name:literal),+ $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const NAME: &'static str = $name;
        }
    )+};
}

elements! {
    u8 => "u8", i8 => "i8", u16 => "u16", i16 => "i16", u32 => "u32", i32 => "i32",
    u64 => "u64", i64 => "i64", f16 => "f16", bf16 => "bf16", f32 => "f32", f64 => "f64",
}

/// The one value of an array, of exactly its dtype. Where the array is being computed this waits for it
/// and not, as [`read`] does, for what was asked for since.
///
/// # Errors
/// As [`read`], and for another number of elements.
pub(crate) fn item<T: Element>(what: &str, array: &Array) -> Result<T, EngineError> {
    check_dtype::<T>(what, array)?;
    array.try_item_exact().map_err(|_| {
        let found = format!("{:?}", array.shape());
        refused("item", &found, "one element that MLX can compute")
    })
}

fn check_dtype<T: Element>(what: &str, array: &Array) -> Result<(), EngineError> {
    if array.dtype() == T::DTYPE {
        return Ok(());
    }
    Err(EngineError::WrongDtype {
        what: what.to_owned(),
        found: host_dtype(array.dtype())
            .map_or_else(|_| "complex64".to_owned(), |dtype| dtype.name().to_owned()),
        wanted: T::NAME,
    })
}

/// Evaluates an array and copies its values out, row-major, as exactly the dtype it has.
///
/// # Errors
/// [`EngineError::WrongDtype`] where `T` is not the array's dtype: a read never casts and never
/// reinterprets. [`EngineError::Op`] where MLX throws.
pub fn read<T: Element>(what: &str, array: &Array) -> Result<Vec<T>, EngineError> {
    check_dtype::<T>(what, array)?;
    if array.size() == 0 {
        return Ok(Vec::new());
    }
    let array = ops::contiguous(array)?;
    Ok(op("read", array.try_as_slice::<T>())?.to_vec())
}
