//! The bytes of each buffer of the generated function.

use std::borrow::Cow;

use mlx_parity_tensor::{Dtype, HostTensor};

use crate::check::reach;
use crate::kernel::row_major;
use crate::wrapper::{Buffer, Holds};
use crate::{EmuError, Input, Kernel, Launch};

/// Inputs as the kernel gets them: copied to row-major order where the kernel asks for it.
pub(crate) fn contiguous<'a>(kernel: &Kernel, launch: &Launch<'a>) -> Vec<Placed<'a>> {
    launch.inputs.iter().map(|input| Placed::new(input, kernel.ensure_row_contiguous)).collect()
}

/// An input's bytes from its first element on, and its strides.
pub(crate) struct Placed<'a> {
    bytes: Cow<'a, [u8]>,
    shape: Vec<usize>,
    strides: Vec<i64>,
}

impl<'a> Placed<'a> {
    fn new(input: &Input<'a>, copy: bool) -> Self {
        let shape = input.shape.clone();
        let natural = row_major(&shape);
        let size = input.storage.dtype().size();
        let bytes: &'a [u8] = input.storage.bytes();
        let is_natural = shape
            .iter()
            .zip(natural.iter().zip(&input.strides))
            .all(|(&extent, (a, b))| extent == 1 || a == b);
        let (low, high) = reach(input).unwrap_or((0, -1));
        // A negative stride reaches below the first element, which no buffer can hold: MLX copies, too, then.
        if (copy && !is_natural) || low < input.offset as i128 {
            return Self { bytes: Cow::Owned(gather(input, size)), shape, strides: natural };
        }
        let from = input.offset * size;
        let to = (high + 1) as usize * size;
        Self {
            bytes: Cow::Borrowed(&bytes[from.min(to)..to]),
            shape,
            strides: input.strides.clone(),
        }
    }

    fn integers<const N: usize, T: Copy>(values: &[T], element: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        values.iter().flat_map(|&value| element(value)).collect()
    }

    /// What `buffer`, which is not an output, holds.
    pub(crate) fn bytes_for(&self, buffer: &Buffer) -> Cow<'_, [u8]> {
        match buffer.holds {
            Holds::Input(_) | Holds::Output(_) => Cow::Borrowed(&self.bytes),
            Holds::Shape(_) => {
                Cow::Owned(Self::integers(&self.shape, |extent| (extent as i32).to_le_bytes()))
            }
            Holds::Strides(_) => Cow::Owned(Self::integers(&self.strides, i64::to_le_bytes)),
            Holds::Ndim(_) => Cow::Owned((self.shape.len() as i32).to_le_bytes().to_vec()),
        }
    }
}

/// The elements of a view in row-major order.
fn gather(input: &Input<'_>, size: usize) -> Vec<u8> {
    let count = input.shape.iter().product::<usize>();
    let bytes = input.storage.bytes();
    let mut out = Vec::with_capacity(count * size);
    let mut index = vec![0_usize; input.shape.len()];
    for _ in 0..count {
        let steps =
            index.iter().zip(&input.strides).map(|(&i, &stride)| i as i64 * stride).sum::<i64>();
        let at = (input.offset as i64 + steps) as usize * size;
        out.extend_from_slice(&bytes[at..at + size]);
        for axis in (0..index.len()).rev() {
            index[axis] += 1;
            if index[axis] < input.shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    out
}

/// An output full of its initial value, rounded to its dtype as MLX converts a float.
pub(crate) fn filled(
    name: &str,
    dtype: Dtype,
    shape: &[usize],
    value: f32,
) -> Result<HostTensor, EmuError> {
    let value = match dtype {
        Dtype::Bool => f64::from(u8::from(value != 0.0)),
        _ if dtype.is_float() => f64::from(value),
        _ => f64::from(value.trunc()),
    };
    let count = shape.iter().product();
    let made = HostTensor::from_f64_as(dtype, shape.to_vec(), &vec![value; count]);
    made.map_err(|source| EmuError::Output { name: name.to_owned(), source })
}
