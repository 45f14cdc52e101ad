//! The same values, laid out in memory as views of real graphs are.

use crate::{Dtype, HostTensor};

/// How an array's elements lie in its buffer. Each layout but [`Layout::Contiguous`] and
/// [`Layout::Offset`] has strides that a row-major read would get wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layout {
    /// Row-major, from the buffer's start.
    Contiguous,
    /// The last two axes stored the other way round and transposed back.
    Transposed,
    /// Every second element of a last axis twice as long; garbage between.
    Sliced,
    /// The last axis stored backwards and read with a negative stride.
    Reversed,
    /// One row of the leading axis, repeated with stride 0.
    Broadcast,
    /// A second axis of two planes, the first holding the values and the second garbage, sliced away.
    AxisInserted,
    /// Row-major, [`Layout::OFFSET`] elements into a buffer of garbage.
    Offset,
}

impl Layout {
    /// Every layout, the contiguous one first.
    pub const ALL: [Self; 7] = [
        Self::Contiguous,
        Self::Transposed,
        Self::Sliced,
        Self::Reversed,
        Self::Broadcast,
        Self::AxisInserted,
        Self::Offset,
    ];

    /// Elements of garbage before the values of [`Layout::Offset`]; odd, so that no vector load of
    /// them is aligned.
    pub const OFFSET: usize = 3;

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Contiguous => "contiguous",
            Self::Transposed => "transposed",
            Self::Sliced => "sliced",
            Self::Reversed => "reversed",
            Self::Broadcast => "broadcast",
            Self::AxisInserted => "axis-inserted",
            Self::Offset => "offset",
        }
    }

    /// Whether an array of this shape can have the layout and would differ from a contiguous one.
    pub fn exists_for(self, shape: &[usize]) -> bool {
        let elements: usize = shape.iter().product();
        let several = |extent: Option<&usize>| extent.is_some_and(|&extent| extent > 1);
        match self {
            Self::Contiguous => true,
            Self::Offset => elements > 0,
            Self::Sliced => elements > 1 && !shape.is_empty(),
            Self::Reversed => elements > 1 && several(shape.last()),
            Self::Broadcast => elements > 0 && several(shape.first()),
            Self::AxisInserted => elements > 0 && shape.len() > 1 && several(shape.first()),
            Self::Transposed => {
                elements > 0 && matches!(shape, [.., rows, columns] if *rows > 1 && *columns > 1)
            }
        }
    }

    /// The values that an array made from `tensor` in this layout holds: `tensor` itself, but for
    /// [`Layout::Broadcast`], whose rows all equal row 0. `None` where the layout does not exist.
    pub fn logical(self, tensor: &HostTensor) -> Option<HostTensor> {
        if !self.exists_for(tensor.shape()) {
            return None;
        }
        if self != Self::Broadcast {
            return Some(tensor.clone());
        }
        let rows = tensor.shape()[0];
        let row = &tensor.bytes()[..tensor.bytes().len() / rows];
        HostTensor::new(tensor.dtype(), tensor.shape(), row.repeat(rows)).ok()
    }

    /// The row-major buffer that the layout's view looks into, garbage included:
    /// `Transposed` `[.., columns, rows]`, `Sliced` `[.., 2 * n]`, `Broadcast` `[1, ..]`,
    /// `AxisInserted` `[n, 2, ..]`, `Offset` `[OFFSET + elements]`, otherwise the tensor's own shape.
    /// `None` where the layout does not exist.
    pub fn buffer(self, tensor: &HostTensor) -> Option<HostTensor> {
        if !self.exists_for(tensor.shape()) {
            return None;
        }
        let (shape, bytes) = match self {
            Self::Contiguous => return Some(tensor.clone()),
            Self::Broadcast => return Some(tensor.rows(0..1)),
            Self::Transposed => transposed(tensor),
            Self::Sliced => sliced(tensor),
            Self::Reversed => (tensor.shape().to_vec(), reversed(tensor)),
            Self::AxisInserted => axis_inserted(tensor),
            Self::Offset => offset(tensor),
        };
        HostTensor::new(tensor.dtype(), shape, bytes).ok()
    }
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// `bytes` of elements that must not be read: every bit set, which is NaN in each float and -1 or
/// the largest value in each integer; booleans are true, since no other bits are valid.
fn garbage(dtype: Dtype, bytes: usize) -> Vec<u8> {
    vec![if dtype == Dtype::Bool { 1 } else { 0xff }; bytes]
}

fn transposed(tensor: &HostTensor) -> (Vec<usize>, Vec<u8>) {
    let size = tensor.dtype().size();
    let mut shape = tensor.shape().to_vec();
    let last = shape.len() - 1;
    let (rows, columns) = (shape[last - 1], shape[last]);
    shape.swap(last - 1, last);
    let mut bytes = Vec::with_capacity(tensor.bytes().len());
    for matrix in tensor.bytes().chunks_exact(rows * columns * size) {
        for column in 0..columns {
            for row in 0..rows {
                bytes.extend_from_slice(&matrix[(row * columns + column) * size..][..size]);
            }
        }
    }
    (shape, bytes)
}

fn sliced(tensor: &HostTensor) -> (Vec<usize>, Vec<u8>) {
    let size = tensor.dtype().size();
    let mut shape = tensor.shape().to_vec();
    if let Some(last) = shape.last_mut() {
        *last *= 2;
    }
    let between = garbage(tensor.dtype(), size);
    let elements = tensor.bytes().chunks_exact(size);
    (shape, elements.flat_map(|element| [element, &between].concat()).collect())
}

fn reversed(tensor: &HostTensor) -> Vec<u8> {
    let size = tensor.dtype().size();
    let row = tensor.shape().last().copied().unwrap_or(1) * size;
    let rows = tensor.bytes().chunks_exact(row);
    rows.flat_map(|row| row.chunks_exact(size).rev().flatten().copied()).collect()
}

fn axis_inserted(tensor: &HostTensor) -> (Vec<usize>, Vec<u8>) {
    let (leading, rest) = (tensor.shape()[0], &tensor.shape()[1..]);
    let row = tensor.bytes().len() / leading;
    let between = garbage(tensor.dtype(), row);
    let rows = tensor.bytes().chunks_exact(row);
    let bytes = rows.flat_map(|row| [row, &between].concat()).collect();
    ([&[leading, 2], rest].concat(), bytes)
}

fn offset(tensor: &HostTensor) -> (Vec<usize>, Vec<u8>) {
    let before = garbage(tensor.dtype(), Layout::OFFSET * tensor.dtype().size());
    (vec![Layout::OFFSET + tensor.len()], [&before, tensor.bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `[2, 3]`: 0 1 2 / 3 4 5.
    fn six() -> HostTensor {
        HostTensor::from_f32([2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap()
    }

    fn buffer(layout: Layout) -> (Vec<usize>, Vec<f64>) {
        let buffer = layout.buffer(&six()).unwrap();
        // NaN as -1, to compare.
        let values = buffer.to_f64().iter().map(|v| if v.is_nan() { -1.0 } else { *v }).collect();
        (buffer.shape().to_vec(), values)
    }

    #[test]
    fn buffers_hold_the_values_where_the_view_looks() {
        let plain = vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(buffer(Layout::Contiguous), (vec![2, 3], plain));
        assert_eq!(buffer(Layout::Transposed), (vec![3, 2], vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0]));
        let gaps = vec![0.0, -1.0, 1.0, -1.0, 2.0, -1.0, 3.0, -1.0, 4.0, -1.0, 5.0, -1.0];
        assert_eq!(buffer(Layout::Sliced), (vec![2, 6], gaps));
        assert_eq!(buffer(Layout::Reversed), (vec![2, 3], vec![2.0, 1.0, 0.0, 5.0, 4.0, 3.0]));
        assert_eq!(buffer(Layout::Broadcast), (vec![1, 3], vec![0.0, 1.0, 2.0]));
        let planes = vec![0.0, 1.0, 2.0, -1.0, -1.0, -1.0, 3.0, 4.0, 5.0, -1.0, -1.0, -1.0];
        assert_eq!(buffer(Layout::AxisInserted), (vec![2, 2, 3], planes));
        let late = vec![-1.0, -1.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(buffer(Layout::Offset), (vec![9], late));
    }

    #[test]
    fn a_batch_of_matrices_is_transposed_one_by_one() {
        let values: Vec<i32> = (0..12).collect();
        let batch = HostTensor::from_i32([2, 2, 3], &values).unwrap();
        let stored = Layout::Transposed.buffer(&batch).unwrap();
        assert_eq!(stored.shape(), [2, 3, 2]);
        let wanted = [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11].map(f64::from);
        assert_eq!(stored.to_f64(), wanted);
    }

    #[test]
    fn logical_values_are_those_given_unless_broadcast() {
        for layout in Layout::ALL {
            let found = layout.logical(&six()).unwrap();
            let wanted = match layout {
                Layout::Broadcast => {
                    HostTensor::from_f32([2, 3], &[0.0, 1.0, 2.0, 0.0, 1.0, 2.0]).unwrap()
                }
                _ => six(),
            };
            assert_eq!(found, wanted, "{layout}");
        }
    }

    #[test]
    fn layouts_exist_only_where_they_differ_from_a_contiguous_one() {
        use Layout::{AxisInserted, Broadcast, Contiguous, Offset, Reversed, Sliced, Transposed};
        let cases: [(&[usize], &[Layout]); 8] = [
            (&[], &[Contiguous, Offset]),
            (&[1], &[Contiguous, Offset]),
            (&[0, 4], &[Contiguous]),
            (&[4], &[Contiguous, Sliced, Reversed, Broadcast, Offset]),
            (&[1, 4], &[Contiguous, Sliced, Reversed, Offset]),
            (&[4, 1], &[Contiguous, Sliced, Broadcast, AxisInserted, Offset]),
            (&[2, 2], &Layout::ALL),
            (&[1, 2, 2], &[Contiguous, Transposed, Sliced, Reversed, Offset]),
        ];
        for (shape, wanted) in cases {
            let values = vec![0.5; shape.iter().product()];
            let tensor = HostTensor::from_f32(shape, &values).unwrap();
            for layout in Layout::ALL {
                let exists = wanted.contains(&layout);
                assert_eq!(layout.logical(&tensor).is_some(), exists, "{layout} of {shape:?}");
                assert_eq!(layout.buffer(&tensor).is_some(), exists, "{layout} of {shape:?}");
            }
        }
    }

    #[test]
    fn garbage_is_nan_in_every_float_and_a_valid_boolean() {
        for dtype in [
            Dtype::F8E4M3,
            Dtype::F8E5M2,
            Dtype::F8E8M0,
            Dtype::F16,
            Dtype::Bf16,
            Dtype::F32,
            Dtype::F64,
        ] {
            let element = HostTensor::new(dtype, [1], garbage(dtype, dtype.size())).unwrap();
            assert!(element.value_at(0).is_nan(), "{}", dtype.name());
        }
        assert_eq!(garbage(Dtype::Bool, 2), [1, 1]);
        assert_eq!(garbage(Dtype::U32, 4), u32::MAX.to_le_bytes());
    }
}
