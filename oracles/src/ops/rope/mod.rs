//! Rotary position embedding (Su et al., 2021; `mlx.core.fast.rope`).

mod frequencies;

pub use frequencies::{Llama3, LongRope, Proportional, RopeScaling, RopeTable, Yarn};

use crate::answer::Answer;
use crate::error::OracleError;
use crate::tensor::Tensor64;

/// Position of the first token.
#[derive(Clone, Copy, Debug)]
pub enum Offsets<'a> {
    /// The same for every item of the batch.
    One(i64),
    /// One for each item of the leading axis.
    PerItem(&'a [i64]),
}

/// Parameters of [`rope`].
#[derive(Clone, Copy, Debug)]
pub struct Rope<'a> {
    /// Leading features that are rotated; even. The rest passes through.
    pub dims: usize,
    /// Whether neighbours form a pair (2i, 2i+1), the original layout; else halves do (i, i +
    /// dims/2).
    pub traditional: bool,
    /// Periods and scales; `dims / 2` periods.
    pub table: &'a RopeTable,
    /// Position of the first token.
    pub offsets: Offsets<'a>,
}

/// Rotates each pair of `x` of shape `[batch, .., tokens, features]` by position · scale / period.
///
/// The condition sums the two rotated terms and what a relative rounding of the angle does to them.
pub fn rope(x: &Tensor64, rope: &Rope) -> Result<Answer, OracleError> {
    check(x, rope)?;
    let tokens = x.shape()[x.ndim() - 2];
    let item: usize = x.shape()[1..].iter().product();
    let mut pairs: Vec<(f64, f64)> = x.data().iter().map(|&v| (v, 0.0)).collect();
    for (at, row) in pairs.chunks_mut(x.last_dim()).enumerate() {
        let batch = at * x.last_dim() / item;
        let first = match rope.offsets {
            Offsets::One(offset) => offset,
            Offsets::PerItem(offsets) => offsets[batch],
        };
        rotate_row(row, (first + (at % tokens) as i64) as f64, rope);
    }
    Ok(Answer::from_pairs(x.shape().to_vec(), pairs))
}

fn check(x: &Tensor64, rope: &Rope) -> Result<(), OracleError> {
    let half = rope.table.periods.len();
    if rope.dims != 2 * half {
        let wanted = format!("{} dims for {half} periods", 2 * half);
        return Err(OracleError::parameter("rope", rope.dims, &wanted));
    }
    if x.ndim() < 3 || x.last_dim() < rope.dims || x.is_empty() {
        let wanted = format!("[batch, .., tokens, features] with {} features or more", rope.dims);
        return Err(OracleError::shape("rope", x.shape(), wanted));
    }
    match rope.offsets {
        Offsets::PerItem(offsets) if offsets.len() != x.shape()[0] => {
            let wanted = format!("{} offsets, one an item", x.shape()[0]);
            Err(OracleError::parameter("rope", offsets.len(), &wanted))
        }
        _ => Ok(()),
    }
}

/// `row` holds (value, condition) of one token's features.
fn rotate_row(row: &mut [(f64, f64)], position: f64, rope: &Rope) {
    let half = rope.dims / 2;
    for (i, period) in rope.table.periods.iter().enumerate() {
        let (first, second) = if rope.traditional { (2 * i, 2 * i + 1) } else { (i, i + half) };
        let angle = position * rope.table.position_scale / period;
        let (sin, cos) = libm::sincos(angle);
        let (x, y) =
            (row[first].0 * rope.table.input_scale, row[second].0 * rope.table.input_scale);
        let spread = |a: f64, b: f64| (a * cos).abs() + (b * sin).abs();
        let turned = |a: f64, b: f64| angle.abs() * ((a * sin).abs() + (b * cos).abs());
        row[first] = (x * cos - y * sin, spread(x, y) + turned(x, y));
        row[second] = (x * sin + y * cos, spread(y, x) + turned(y, x));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(dims: usize) -> RopeTable {
        RopeScaling::Default.table(dims, 10_000.0, 2048, 1).unwrap()
    }

    fn turned(x: &Tensor64, dims: usize, traditional: bool, offsets: Offsets) -> Vec<f64> {
        let table = plain(dims);
        rope(x, &Rope { dims, traditional, table: &table, offsets }).unwrap().value.into_data()
    }

    proptest! {
        #[test]
        fn norms_are_kept_and_products_depend_on_distance(
            q in prop::collection::vec(-4.0_f64..4.0, 8),
            k in prop::collection::vec(-4.0_f64..4.0, 8),
            at in 0_i64..5000, distance in 0_i64..200, shift in 0_i64..5000,
            traditional: bool,
        ) {
            let turn = |v: &[f64], at| {
                let x = Tensor64::new([1, 1, 8], v.to_vec()).unwrap();
                turned(&x, 8, traditional, Offsets::One(at))
            };
            let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
            let here = turn(&q, at);
            prop_assert!((dot(&here, &here) - dot(&q, &q)).abs() <= 1e-12);
            let near = dot(&turn(&q, at + distance), &turn(&k, at));
            let far = dot(&turn(&q, at + distance + shift), &turn(&k, at + shift));
            prop_assert!((near - far).abs() <= 1e-9, "{} {}", near, far);
        }
    }

    #[test]
    fn the_layouts_pair_different_features() {
        let x = Tensor64::new([1, 1, 4], vec![1.0, 0.0, 0.0, 0.0]).unwrap();
        let (sin, cos) = 1.0_f64.sin_cos();
        let close = |found: Vec<f64>, wanted: [f64; 4]| {
            assert!(found.iter().zip(wanted).all(|(f, w)| (f - w).abs() <= 1e-16), "{found:?}");
        };
        close(turned(&x, 4, true, Offsets::One(1)), [cos, sin, 0.0, 0.0]);
        close(turned(&x, 4, false, Offsets::One(1)), [cos, 0.0, sin, 0.0]);
    }

    #[test]
    fn positions_count_tokens_from_each_items_offset_and_the_rest_passes() {
        let x = Tensor64::full([2, 3, 2, 6], 1.0);
        let found = turned(&x, 4, false, Offsets::PerItem(&[7, -1]));
        let one =
            |position| turned(&Tensor64::full([1, 1, 6], 1.0), 4, false, Offsets::One(position));
        for (i, row) in found.chunks(6).enumerate() {
            let first = if i < 6 { 7 } else { -1 };
            assert_eq!(row, one(first + i as i64 % 2));
            assert_eq!(row[4..], [1.0, 1.0]);
        }
        assert_ne!(one(7), one(8));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let table = plain(4);
        let ask = |shape: &[usize], dims, offsets| {
            rope(
                &Tensor64::full(shape, 0.0),
                &Rope { dims, traditional: false, table: &table, offsets },
            )
        };
        assert!(ask(&[1, 2, 4], 4, Offsets::One(0)).is_ok());
        assert!(ask(&[2, 4], 4, Offsets::One(0)).is_err());
        assert!(ask(&[1, 2, 2], 4, Offsets::One(0)).is_err());
        assert!(ask(&[1, 2, 4], 2, Offsets::One(0)).is_err());
        assert!(ask(&[2, 2, 4], 4, Offsets::PerItem(&[0])).is_err());
    }
}
