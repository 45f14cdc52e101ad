//! Strided slices, read, written and scaled.

use std::ffi::c_int;

use mlx_rs::Array;
use mlx_sys::{mlx_array, mlx_stream};

use super::{raw, refused};
use crate::error::EngineError;

/// Positions `start`, `start + step`, .. along one axis, while before `stop`, or after it for a
/// negative step. Positions count from 0; a `stop` of -1 is the bound before position 0, not the last
/// element as in Python.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceAxis {
    /// First position.
    pub start: i32,
    /// Bound not reached.
    pub stop: i32,
    /// Not zero.
    pub step: i32,
}

impl SliceAxis {
    /// All of an axis of extent `n`.
    pub fn full(n: i32) -> Self {
        Self::range(0, n)
    }

    /// From `start` up to but not including `stop`.
    pub fn range(start: i32, stop: i32) -> Self {
        Self { start, stop, step: 1 }
    }
}

/// Starts, stops and steps as mlx-c takes them.
struct Bounds {
    starts: Vec<i32>,
    stops: Vec<i32>,
    steps: Vec<i32>,
}

impl Bounds {
    fn new(op: &'static str, a: &Array, axes: &[SliceAxis]) -> Result<Self, EngineError> {
        if axes.len() != a.ndim() {
            return Err(refused(op, &format!("{} axes", axes.len()), &format!("{}", a.ndim())));
        }
        for (axis, &extent) in axes.iter().zip(a.shape()) {
            let low = if axis.step < 0 { -1 } else { 0 };
            let inside = (0..=extent).contains(&axis.start) && (low..=extent).contains(&axis.stop);
            if axis.step == 0 || !inside {
                return Err(refused(op, &format!("{axis:?}"), &format!("positions in {extent}")));
            }
        }
        // MLX counts negative bounds from the end; far below 0 it clamps to the bound before 0.
        let stop = |(axis, &extent): (&SliceAxis, &i32)| {
            if axis.stop < 0 { -extent - 1 } else { axis.stop }
        };
        Ok(Self {
            starts: axes.iter().map(|axis| axis.start).collect(),
            stops: axes.iter().zip(a.shape()).map(stop).collect(),
            steps: axes.iter().map(|axis| axis.step).collect(),
        })
    }
}

/// The signature that mlx-c's writers of slices share.
type SliceWriter = unsafe extern "C" fn(
    *mut mlx_array,
    mlx_array,
    mlx_array,
    *const c_int,
    usize,
    *const c_int,
    usize,
    *const c_int,
    usize,
    mlx_stream,
) -> c_int;

/// `a[start:stop:step, ..]` with one [`SliceAxis`] an axis: a view.
///
/// # Errors
/// [`EngineError::Op`] for another number of axes, a step of 0 or a bound outside the axis, and where
/// MLX throws.
pub fn slice(a: &Array, axes: &[SliceAxis]) -> Result<Array, EngineError> {
    let Bounds { starts, stops, steps } = Bounds::new("slice", a, axes)?;
    raw::array("slice", |result, stream| {
        // SAFETY: `a` outlives the call, and each pointer comes with the length of its vector.
        unsafe {
            mlx_sys::mlx_slice(
                result,
                a.as_ptr(),
                starts.as_ptr(),
                starts.len(),
                stops.as_ptr(),
                stops.len(),
                steps.as_ptr(),
                steps.len(),
                stream,
            )
        }
    })
}

/// `mx.slice_update`: `a` with the slice replaced by `update`, which broadcasts to it.
///
/// # Errors
/// As [`slice()`].
pub fn slice_update(a: &Array, update: &Array, axes: &[SliceAxis]) -> Result<Array, EngineError> {
    write("slice_update", mlx_sys::mlx_slice_update, a, update, axes)
}

/// `a.at[slice].multiply(factor)`: `a` with the slice multiplied by `factor`, which broadcasts to it.
///
/// # Errors
/// As [`slice()`].
pub fn slice_multiply(a: &Array, factor: &Array, axes: &[SliceAxis]) -> Result<Array, EngineError> {
    write("slice_update_prod", mlx_sys::mlx_slice_update_prod, a, factor, axes)
}

fn write(
    op: &'static str,
    writer: SliceWriter,
    a: &Array,
    update: &Array,
    axes: &[SliceAxis],
) -> Result<Array, EngineError> {
    let Bounds { starts, stops, steps } = Bounds::new(op, a, axes)?;
    raw::array(op, |result, stream| {
        // SAFETY: both arrays outlive the call, and each pointer comes with the length of its vector.
        unsafe {
            writer(
                result,
                a.as_ptr(),
                update.as_ptr(),
                starts.as_ptr(),
                starts.len(),
                stops.as_ptr(),
                stops.len(),
                steps.as_ptr(),
                steps.len(),
                stream,
            )
        }
    })
}

/// A range of the last axis of `a`: a view, as `mx.split` along it gives.
///
/// # Errors
/// As [`slice()`].
pub fn slice_last(a: &Array, range: SliceAxis) -> Result<Array, EngineError> {
    let mut axes: Vec<SliceAxis> = a.shape().iter().map(|&n| SliceAxis::full(n)).collect();
    if let Some(last) = axes.last_mut() {
        *last = range;
    }
    slice(a, &axes)
}
