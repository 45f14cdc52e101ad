//! What launches of Metal kernels have in common.

use crate::call::{Buffer, Call, Operand, View};
use crate::error::KernelError;

/// A float literal of Metal with the value rounded to float32.
pub fn literal(value: f64) -> String {
    format!("{:?}f", value as f32)
}

/// An extent, a count or a template argument as the integer that a launch holds.
///
/// # Errors
/// [`KernelError::Unsupported`] where it does not fit 31 bits, in which the sources count.
pub fn integer(kernel: &'static str, value: usize) -> Result<i32, KernelError> {
    i32::try_from(value).map_err(|_| KernelError::Unsupported {
        kernel,
        found: format!("an extent of {value}"),
        wanted: "extents below 2^31".to_owned(),
    })
}

/// Groups of `threads` in a row that cover `count` tiles, in threads.
///
/// # Errors
/// As [`integer`].
pub fn threads(kernel: &'static str, count: usize, threads: usize) -> Result<u32, KernelError> {
    integer(kernel, count * threads).map(i32::unsigned_abs)
}

/// The extents of an operand of `N` axes whose last one is dense.
///
/// # Errors
/// [`KernelError::Malformed`] for other ranks, [`KernelError::Unsupported`] for a strided last axis.
pub fn extents<const N: usize>(
    kernel: &'static str,
    name: &str,
    view: &View<'_>,
) -> Result<[usize; N], KernelError> {
    let shape = view.shape.try_into().map_err(|_| KernelError::Malformed {
        kernel,
        what: format!("`{name}` has {} axes, wanted {N}", view.shape.len()),
    })?;
    match (view.shape.last(), view.strides.last()) {
        (Some(&extent), Some(&stride)) if extent > 1 && stride != 1 => {
            Err(KernelError::Unsupported {
                kernel,
                found: format!("`{name}` with a stride of {stride} along its last axis"),
                wanted: "a dense last axis".to_owned(),
            })
        }
        _ => Ok(shape),
    }
}

/// An operand of the call by name with its extents.
///
/// # Errors
/// As [`Call::operand`] and [`extents`].
pub fn operand<'a, const N: usize>(
    call: &Call<'a>,
    kernel: &'static str,
    name: &str,
) -> Result<(View<'a>, [usize; N]), KernelError> {
    let view = call.operand(kernel, name)?;
    Ok((view, extents(kernel, name, &view)?))
}

/// That a source may point at an operand with `device` pointers: MLX puts shorter ones in the `constant` space.
///
/// # Errors
/// [`KernelError::Unsupported`] for fewer than eight elements.
pub fn in_device_memory(
    kernel: &'static str,
    name: &str,
    view: &View<'_>,
) -> Result<(), KernelError> {
    if view.len() >= 8 {
        return Ok(());
    }
    Err(KernelError::Unsupported {
        kernel,
        found: format!("`{name}` of {} elements", view.len()),
        wanted: "at least 8".to_owned(),
    })
}

/// Two counts of a call as the input `limits`: they change from call to call, or from layer to layer, and are no
/// reason to compile again.
///
/// # Errors
/// As [`integer`].
pub fn limits(kernel: &'static str, of: [usize; 2]) -> Result<Operand, KernelError> {
    let counts = vec![integer(kernel, of[0])?, integer(kernel, of[1])?];
    Ok(Operand::new("limits", [2], Buffer::I32(counts)))
}

/// A count among the numbers of a call; `absent` where it has none.
pub fn count(call: &Call<'_>, name: &str, absent: usize) -> usize {
    call.params.get(name).map_or(absent, |value| value as usize)
}
