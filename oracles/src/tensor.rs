//! The row-major tensor ref64 computes on.

use crate::error::OracleError;

/// A row-major contiguous tensor. A scalar has the empty shape and one element.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor<T> {
    shape: Vec<usize>,
    data: Vec<T>,
}

/// Values of any dtype, widened exactly.
pub type Tensor64 = Tensor<f64>;
/// Integer operands and index results.
pub type IntTensor = Tensor<i64>;
/// Conditions and boolean masks.
pub type BoolTensor = Tensor<bool>;
/// Quantized codes packed into 32-bit words.
pub type PackedTensor = Tensor<u32>;

/// Number of elements of a shape, or `None` where it overflows.
fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |n, &dim| n.checked_mul(dim))
}

/// Row-major strides, in elements.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i].max(1);
    }
    strides
}

/// The shape two operands broadcast to, by `numpy`'s rule.
pub fn broadcast_shapes(
    op: &'static str,
    a: &[usize],
    b: &[usize],
) -> Result<Vec<usize>, OracleError> {
    let ndim = a.len().max(b.len());
    let dim =
        |shape: &[usize], i: usize| (i + shape.len()).checked_sub(ndim).map_or(1, |at| shape[at]);
    (0..ndim)
        .map(|i| match (dim(a, i), dim(b, i)) {
            (x, y) if x == y || y == 1 => Ok(x),
            (1, y) => Ok(y),
            _ => Err(OracleError::shape(op, a, format!("one that broadcasts with {b:?}"))),
        })
        .collect()
}

/// A possibly negative axis as an index.
pub fn resolve_axis(op: &'static str, axis: isize, ndim: usize) -> Result<usize, OracleError> {
    let resolved = if axis < 0 { axis + ndim as isize } else { axis };
    usize::try_from(resolved).ok().filter(|&at| at < ndim).ok_or(OracleError::Axis {
        op,
        axis,
        ndim,
    })
}

/// A possibly negative index into an axis of length `size`.
pub fn resolve_index(op: &'static str, index: i64, size: usize) -> Result<usize, OracleError> {
    let resolved = if index < 0 { index + size as i64 } else { index };
    usize::try_from(resolved).ok().filter(|&at| at < size).ok_or(OracleError::Index {
        op,
        index,
        size,
    })
}

/// Offsets of every element of `shape` under `strides`, in row-major order.
fn offsets(shape: &[usize], strides: &[usize]) -> Vec<usize> {
    let mut found = vec![0];
    for (&dim, &stride) in shape.iter().zip(strides) {
        found = found.iter().flat_map(|&base| (0..dim).map(move |i| base + i * stride)).collect();
    }
    found
}

impl<T: Copy> Tensor<T> {
    /// A tensor of `data` in row-major order; fails unless the shape's product is its length.
    pub fn new(shape: impl Into<Vec<usize>>, data: Vec<T>) -> Result<Self, OracleError> {
        let shape = shape.into();
        if count(&shape) == Some(data.len()) {
            return Ok(Self { shape, data });
        }
        Err(OracleError::shape("tensor", &shape, format!("one of {} elements", data.len())))
    }

    /// For shapes this crate has just computed.
    pub(crate) fn trusted(shape: Vec<usize>, data: Vec<T>) -> Self {
        debug_assert_eq!(count(&shape), Some(data.len()), "shape {shape:?}");
        Self { shape, data }
    }

    /// One value everywhere.
    pub fn full(shape: impl Into<Vec<usize>>, value: T) -> Self {
        let shape = shape.into();
        let data = vec![value; shape.iter().product()];
        Self { shape, data }
    }

    /// A tensor of no dimensions.
    pub fn scalar(value: T) -> Self {
        Self { shape: Vec::new(), data: vec![value] }
    }

    /// A tensor of one dimension.
    pub fn vector(data: impl Into<Vec<T>>) -> Self {
        let data = data.into();
        Self { shape: vec![data.len()], data }
    }

    /// Length of each axis, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Elements in row-major order.
    pub fn data(&self) -> &[T] {
        &self.data
    }

    /// Elements in row-major order, to write to.
    pub fn data_mut(&mut self) -> &mut [T] {
        &mut self.data
    }

    /// The elements alone.
    pub fn into_data(self) -> Vec<T> {
        self.data
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Number of dimensions.
    pub fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Length of the last axis; 1 for a scalar.
    pub fn last_dim(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// The rows along the last axis.
    pub fn rows(&self) -> std::slice::Chunks<'_, T> {
        self.data.chunks(self.last_dim().max(1))
    }

    /// The same elements under another shape of as many elements.
    pub fn reshape(self, shape: impl Into<Vec<usize>>) -> Result<Self, OracleError> {
        Self::new(shape, self.data)
    }

    /// Element by element.
    pub fn map<U: Copy>(&self, f: impl Fn(T) -> U) -> Tensor<U> {
        Tensor { shape: self.shape.clone(), data: self.data.iter().map(|&v| f(v)).collect() }
    }

    fn strided(&self, shape: Vec<usize>, strides: &[usize]) -> Self {
        let data = offsets(&shape, strides).into_iter().map(|at| self.data[at]).collect();
        Self { shape, data }
    }

    /// Axes reordered: axis `i` of the result is axis `axes[i]` of the input.
    ///
    /// # Panics
    /// Where `axes` is not a permutation of the axes.
    #[must_use]
    pub fn permute(&self, axes: &[usize]) -> Self {
        let mut seen = axes.to_vec();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..self.ndim()), "axes {axes:?} of shape {:?}", self.shape);
        let own = strides(&self.shape);
        let pick = |from: &[usize]| axes.iter().map(|&axis| from[axis]).collect::<Vec<_>>();
        self.strided(pick(&self.shape), &pick(&own))
    }

    /// The last two axes exchanged.
    ///
    /// # Panics
    /// With fewer than two dimensions.
    #[must_use]
    pub fn transpose_last(&self) -> Self {
        let mut shape = self.shape.clone();
        let n = shape.len();
        shape.swap(n - 2, n - 1);
        let (rows, columns) = (shape[n - 1], shape[n - 2]);
        let mut data = Vec::with_capacity(self.len());
        for matrix in self.data.chunks((rows * columns).max(1)) {
            for column in 0..columns {
                data.extend((0..rows).map(|row| matrix[row * columns + column]));
            }
        }
        Self { shape, data }
    }

    /// `axis` moved to position `to`, the others in order.
    #[must_use]
    pub(crate) fn move_axis(&self, axis: usize, to: usize) -> Self {
        if axis == to {
            return self.clone();
        }
        let mut axes: Vec<usize> = (0..self.ndim()).filter(|&i| i != axis).collect();
        axes.insert(to, axis);
        self.permute(&axes)
    }

    /// Repeated along new and length-one axes to `shape`.
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Self, OracleError> {
        if self.shape == shape {
            return Ok(self.clone());
        }
        if broadcast_shapes("broadcast", &self.shape, shape)? != shape {
            return Err(OracleError::shape(
                "broadcast",
                &self.shape,
                format!("one that broadcasts to {shape:?}"),
            ));
        }
        let own = strides(&self.shape);
        let skip = shape.len() - self.ndim();
        let strides: Vec<usize> = (0..shape.len())
            .map(|i| {
                i.checked_sub(skip).map_or(0, |at| if self.shape[at] == 1 { 0 } else { own[at] })
            })
            .collect();
        Ok(self.strided(shape.to_vec(), &strides))
    }
}

impl Tensor64 {
    /// Exact widening of float32 values.
    pub fn from_f32(shape: impl Into<Vec<usize>>, data: &[f32]) -> Result<Self, OracleError> {
        Self::new(shape, data.iter().map(|&v| f64::from(v)).collect())
    }

    /// Largest magnitude; NaN where any element is NaN.
    pub fn max_abs(&self) -> f64 {
        self.data
            .iter()
            .fold(0.0, |m: f64, v| if m.is_nan() || v.is_nan() { f64::NAN } else { m.max(v.abs()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(shape: &[usize]) -> Tensor64 {
        Tensor64::trusted(
            shape.to_vec(),
            (0..shape.iter().product()).map(|i: usize| i as f64).collect(),
        )
    }

    #[test]
    fn a_shape_must_match_its_data() {
        assert!(Tensor64::new([2, 3], vec![0.0; 6]).is_ok());
        assert!(Tensor64::new([2, 3], vec![0.0; 5]).is_err());
        assert!(Tensor64::new([usize::MAX, 2], vec![0.0; 5]).is_err());
    }

    #[test]
    fn permuting_moves_elements_where_numpy_moves_them() {
        // numpy: np.arange(6).reshape(1, 2, 3).transpose(2, 0, 1).ravel()
        let moved = counting(&[1, 2, 3]).permute(&[2, 0, 1]);
        assert_eq!(moved.shape(), [3, 1, 2]);
        assert_eq!(moved.data(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    }

    #[test]
    fn broadcasting_repeats() {
        let wide = counting(&[2, 1]).broadcast_to(&[2, 2, 3]).unwrap();
        assert_eq!(wide.data(), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
        assert!(counting(&[2, 3]).broadcast_to(&[2, 1]).is_err());
        assert!(counting(&[2]).broadcast_to(&[3]).is_err());
        assert!(broadcast_shapes("add", &[2, 3], &[2]).is_err());
        assert_eq!(broadcast_shapes("add", &[2, 1], &[3]).unwrap(), [2, 3]);
        assert_eq!(broadcast_shapes("add", &[0, 1], &[1, 3]).unwrap(), [0, 3]);
    }

    #[test]
    fn axes_and_indices_count_from_both_ends() {
        assert_eq!(resolve_axis("sum", -1, 3).unwrap(), 2);
        assert!(resolve_axis("sum", 3, 3).is_err());
        assert!(resolve_axis("sum", -4, 3).is_err());
        assert_eq!(resolve_index("take", -2, 5).unwrap(), 3);
        assert!(resolve_index("take", 5, 5).is_err());
        assert!(resolve_index("take", -6, 5).is_err());
    }

    #[test]
    fn the_largest_magnitude_does_not_lose_nan() {
        assert_eq!(Tensor64::vector([1.0, -3.0]).max_abs(), 3.0);
        assert!(Tensor64::vector([f64::NAN, 3.0]).max_abs().is_nan());
    }
}
