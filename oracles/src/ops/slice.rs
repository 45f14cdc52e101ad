//! Strided slices, read and written.

use crate::answer::Answer;
use crate::error::OracleError;
use crate::tensor::{Tensor64, strides};

/// `start..stop` by `step` along one axis: positions `start + i·step` while before `stop`, or after
/// it for negative steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceAxis {
    /// First position.
    pub start: i64,
    /// Bound not reached; −1 is the bound before position 0, not the last element.
    pub stop: i64,
    /// Not zero.
    pub step: i64,
}

impl SliceAxis {
    /// The whole of an axis of length `n`.
    pub fn full(n: usize) -> Self {
        Self { start: 0, stop: n as i64, step: 1 }
    }

    fn positions(self, size: usize) -> Result<Vec<usize>, OracleError> {
        let wrong = || {
            OracleError::parameter("slice", format!("{self:?}"), &format!("positions below {size}"))
        };
        if self.step == 0 {
            return Err(wrong());
        }
        let inside = |at: &i64| if self.step > 0 { *at < self.stop } else { *at > self.stop };
        std::iter::successors(Some(self.start), |at| at.checked_add(self.step))
            .take_while(inside)
            .map(|at| usize::try_from(at).ok().filter(|&at| at < size).ok_or_else(wrong))
            .collect()
    }
}

/// Shape of the slice and the offset of each of its elements in `x`.
fn offsets(x: &Tensor64, axes: &[SliceAxis]) -> Result<(Vec<usize>, Vec<usize>), OracleError> {
    if axes.len() != x.ndim() {
        return Err(OracleError::shape("slice", x.shape(), format!("{} axes", axes.len())));
    }
    let mut offsets = vec![0];
    let mut shape = Vec::with_capacity(axes.len());
    for ((axis, &size), stride) in axes.iter().zip(x.shape()).zip(strides(x.shape())) {
        let positions = axis.positions(size)?;
        shape.push(positions.len());
        offsets = offsets
            .iter()
            .flat_map(|&base| positions.iter().map(move |at| base + at * stride))
            .collect();
    }
    Ok((shape, offsets))
}

/// The elements at the slice's positions.
pub fn slice(x: &Tensor64, axes: &[SliceAxis]) -> Result<Answer, OracleError> {
    let (shape, offsets) = offsets(x, axes)?;
    let data = offsets.into_iter().map(|at| x.data()[at]).collect();
    Ok(Answer::exact(Tensor64::trusted(shape, data)))
}

/// `x` with the slice's positions replaced by `update`, which broadcasts to the slice.
pub fn slice_update(
    x: &Tensor64,
    update: &Tensor64,
    axes: &[SliceAxis],
) -> Result<Answer, OracleError> {
    let (shape, offsets) = offsets(x, axes)?;
    let update = update.broadcast_to(&shape)?;
    let mut out = x.clone();
    for (at, &value) in offsets.into_iter().zip(update.data()) {
        out.data_mut()[at] = value;
    }
    Ok(Answer::exact(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(start: i64, stop: i64, step: i64) -> SliceAxis {
        SliceAxis { start, stop, step }
    }

    #[test]
    fn reversed_and_strided() {
        let x = Tensor64::new([2, 5], (0..10).map(f64::from).collect()).unwrap();
        let found = slice(&x, &[axis(1, -1, -1), axis(0, 5, 2)]).unwrap().value;
        assert_eq!(
            (found.shape(), found.data()),
            (&[2, 3][..], &[5.0, 7.0, 9.0, 0.0, 2.0, 4.0][..])
        );
        assert!(slice(&x, &[axis(0, 2, 1), axis(0, 6, 1)]).is_err());
        assert!(slice(&x, &[axis(0, 2, 0), axis(0, 5, 1)]).is_err());
        assert!(slice(&x, &[axis(0, 2, 1)]).is_err());
    }

    #[test]
    fn updates_land_where_slices_read() {
        let x = Tensor64::full([2, 5], 0.0);
        let axes = [axis(1, 2, 1), axis(4, 0, -2)];
        let update = Tensor64::vector([7.0, 8.0]);
        let found = slice_update(&x, &update, &axes).unwrap().value;
        assert_eq!(found.data(), [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 8.0, 0.0, 7.0]);
        assert_eq!(slice(&found, &axes).unwrap().value.data(), update.data());
        assert!(slice_update(&x, &Tensor64::vector([1.0; 3]), &axes).is_err());
    }
}
