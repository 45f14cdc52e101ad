//! Sorting along an axis, ascending, NaN last as in `numpy`.

use std::cmp::Ordering;

use crate::answer::Answer;
use crate::error::OracleError;
use crate::tensor::{IntTensor, Tensor64, resolve_axis};

/// NaN after everything, all NaN equal, and the two zeros equal.
fn nan_last(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Positions that sort each row of `x`, stable, rows along `axis` moved last.
fn sorted_rows(
    op: &'static str,
    x: &Tensor64,
    axis: isize,
) -> Result<(usize, Tensor64, Vec<usize>), OracleError> {
    let axis = resolve_axis(op, axis, x.ndim())?;
    let rows = x.move_axis(axis, x.ndim() - 1);
    let order = rows.rows().flat_map(|row| {
        let mut at: Vec<usize> = (0..row.len()).collect();
        at.sort_by(|&i, &j| nan_last(row[i], row[j]));
        at
    });
    let order = order.collect();
    Ok((axis, rows, order))
}

/// Each row along `axis` in ascending order.
pub fn sort(x: &Tensor64, axis: isize) -> Result<Answer, OracleError> {
    let (axis, rows, order) = sorted_rows("sort", x, axis)?;
    let width = rows.last_dim().max(1);
    let data =
        order.iter().enumerate().map(|(i, &at)| rows.data()[i / width * width + at]).collect();
    let sorted = Tensor64::trusted(rows.shape().to_vec(), data);
    Ok(Answer::exact(sorted.move_axis(x.ndim() - 1, axis)))
}

/// Positions that sort each row along `axis`, equals in order of position.
pub fn argsort(x: &Tensor64, axis: isize) -> Result<IntTensor, OracleError> {
    let (axis, rows, order) = sorted_rows("argsort", x, axis)?;
    let order = order.into_iter().map(|at| at as i64).collect();
    Ok(IntTensor::trusted(rows.shape().to_vec(), order).move_axis(x.ndim() - 1, axis))
}

/// Where each row along `axis` parts at its `kth` smallest: the positions of that one and of all
/// before it or, for a negative `kth`, which counts from the end, of that one and of all after it, in
/// order of position. Of equals, those of lower position count as smaller. MLX leaves the order of
/// either part open: sort its answer before comparing.
pub fn argpartition(x: &Tensor64, kth: isize, axis: isize) -> Result<IntTensor, OracleError> {
    let op = "argpartition";
    let (axis, rows, order) = sorted_rows(op, x, axis)?;
    let width = rows.last_dim();
    let at = if kth < 0 { kth + width as isize } else { kth };
    if !(0..width as isize).contains(&at) {
        return Err(OracleError::parameter(op, format!("kth = {kth}"), &format!("in {width}")));
    }
    let at = at as usize;
    let part = |row: &[usize]| {
        let mut part: Vec<usize> = if kth < 0 { row[at..].to_vec() } else { row[..=at].to_vec() };
        part.sort_unstable();
        part
    };
    let data: Vec<i64> =
        order.chunks(width).flat_map(part).map(|position| position as i64).collect();
    let mut shape = rows.shape().to_vec();
    let last = x.ndim() - 1;
    shape[last] = if kth < 0 { width - at } else { at + 1 };
    Ok(IntTensor::trusted(shape, data).move_axis(last, axis))
}

/// The `k` largest of each row along `axis`, ascending; NaN counts as largest. MLX leaves their
/// order open: sort its answer before comparing.
pub fn topk(x: &Tensor64, k: usize, axis: isize) -> Result<Answer, OracleError> {
    let sorted = sort(x, axis)?.value;
    let axis = resolve_axis("topk", axis, x.ndim())?;
    let width = x.shape()[axis];
    if k > width {
        return Err(OracleError::parameter(
            "topk",
            format!("k = {k}"),
            &format!("at most {width}"),
        ));
    }
    let last = x.ndim() - 1;
    let rows = sorted.move_axis(axis, last);
    let mut shape = rows.shape().to_vec();
    shape[last] = k;
    let data = rows.rows().flat_map(|row| row[width - k..].to_vec()).collect();
    Ok(Answer::exact(Tensor64::trusted(shape, data).move_axis(last, axis)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INF: f64 = f64::INFINITY;

    #[test]
    fn nan_sorts_last_wherever_it_stands() {
        for at in 0..4 {
            let mut row = vec![3.0, -INF, INF, 1.0];
            row.insert(at, f64::NAN);
            let x = Tensor64::vector(row);
            let sorted = sort(&x, 0).unwrap().value;
            assert_eq!(sorted.data()[..4], [-INF, 1.0, 3.0, INF]);
            assert!(sorted.data()[4].is_nan());
            assert_eq!(argsort(&x, 0).unwrap().data()[4], at as i64);
        }
    }

    #[test]
    fn equals_keep_their_order() {
        let x = Tensor64::vector([1.0, 0.0, 1.0, -0.0]);
        assert_eq!(argsort(&x, 0).unwrap().data(), [1, 3, 0, 2]);
    }

    #[test]
    fn either_part_of_a_partition_in_order_of_position() {
        let x = Tensor64::vector([2.0, 1.0, 2.0, 0.0, 2.0]);
        assert_eq!(argpartition(&x, 2, 0).unwrap().data(), [0, 1, 3]);
        assert_eq!(argpartition(&x, -2, 0).unwrap().data(), [2, 4]);
        assert_eq!(argpartition(&x, -5, -1).unwrap().data(), [0, 1, 2, 3, 4]);
        assert!(argpartition(&x, 5, 0).is_err() && argpartition(&x, -6, 0).is_err());
        let x = Tensor64::new([3, 2], vec![5.0, 1.0, 3.0, 9.0, 4.0, 0.0]).unwrap();
        let found = argpartition(&x, 1, 0).unwrap();
        assert_eq!((found.shape(), found.data()), (&[2, 2][..], &[1, 0, 2, 2][..]));
    }

    #[test]
    fn another_axis_and_the_largest() {
        let x = Tensor64::new([3, 2], vec![5.0, 1.0, 3.0, 9.0, 4.0, 0.0]).unwrap();
        assert_eq!(sort(&x, 0).unwrap().value.data(), [3.0, 0.0, 4.0, 1.0, 5.0, 9.0]);
        let top = topk(&x, 2, 0).unwrap().value;
        assert_eq!((top.shape(), top.data()), (&[2, 2][..], &[4.0, 1.0, 5.0, 9.0][..]));
        assert!(topk(&x, 4, 0).is_err());
    }
}
