//! E2: errors against float64, beside the baseline's.

use mlx_parity_tensor::{Dtype, HostTensor};

use super::{place, short, spacing};

/// How many standard errors a bias must be away from the baseline's to be seen.
const SEEN: f64 = 4.0;
/// Most of the largest error, as times of the baseline's largest.
const LARGEST: f64 = 2.0;

/// The errors of one result.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorReport {
    /// Root mean square of the candidate's error over the baseline's and the floor.
    pub rmse: f64,
    /// Largest error over the baseline's largest and the floor.
    pub largest: f64,
    /// The mean error and the error of scale, in their standard errors: the larger.
    pub bias: f64,
    /// The first bound that is broken, in words.
    pub breach: Option<String>,
}

/// Holds a result to its bounds (design §5): `rmse(c,o) ≤ m·rmse(b,o) + floor` and `max(c,o) ≤ 2·max(b,o) + floor`,
/// as a whole and row by row (along the last axis), with m = 2 in f32 and 3 in half types, floor = 2 ulp of max|o|. A
/// row's baseline is its own, or twice what nine in ten rows keep to at their size, whichever is larger: the elements of
/// a row share roundings (of its scores, of its norm), so that a row is one draw, and of two right kernels one is by chance
/// more than twice as near in one row of three. And no bias: neither the mean of c − o nor its slope on o (an error of scale) is further from 0 than the
/// baseline's by more than 4 standard errors, where a row counts as one observation.
///
/// Elements where c, b or o is not finite are left to E0.
pub fn check(found: &HostTensor, baseline: &HostTensor, exact: &[f64]) -> ErrorReport {
    let (c, b) = (found.to_f64(), baseline.to_f64());
    let largest =
        exact.iter().filter(|x| x.is_finite()).fold(0.0, |most: f64, x| most.max(x.abs()));
    let dtype = found.dtype();
    let bounds = Bounds { times: times(dtype), floor: 2.0 * spacing(dtype, largest) };
    let whole = Errors::of(&c, &b, exact);
    let width = found.shape().last().copied().unwrap_or(1).max(1);
    let bias = whole.bias(spacing(dtype, largest), width as f64);
    let breach = bounds.breach(&whole).or_else(|| {
        (!(bias <= SEEN)).then(|| format!("biased: {} standard errors off", short(bias)))
    });
    let breach = breach.or_else(|| {
        let parts = c.chunks(width).zip(b.chunks(width)).zip(exact.chunks(width));
        let mut rows: Vec<Errors> = parts.map(|((c, b), o)| Errors::of(c, b, o)).collect();
        let usual = Usual::of(&rows);
        rows.iter_mut().for_each(|row| usual.raise(row));
        rows.iter().enumerate().find_map(|(row, errors)| {
            let breach = bounds.breach(errors)?;
            let at = row_place(found.shape(), row);
            Some(format!("row {at}: {breach}"))
        })
    });
    let breach = breach.map(|what| format!("{what} ({})", whole.worst(found, exact)));
    ErrorReport {
        rmse: whole.own.rmse / (whole.baseline.rmse + bounds.floor),
        largest: whole.own.largest / (whole.baseline.largest + bounds.floor),
        bias,
        breach,
    }
}

const fn times(dtype: Dtype) -> f64 {
    if matches!(dtype, Dtype::F32) { 2.0 } else { 3.0 }
}

fn row_place(shape: &[usize], row: usize) -> String {
    place(&shape[..shape.len().saturating_sub(1)], row)
}

struct Bounds {
    times: f64,
    floor: f64,
}

impl Bounds {
    fn breach(&self, errors: &Errors) -> Option<String> {
        let above = |what: &str, found: f64, bound: f64| {
            // Written so that a NaN breaks it.
            (!(found <= bound)).then(|| format!("{what} {} > {}", short(found), short(bound)))
        };
        let Errors { own, baseline, .. } = errors;
        above("rmse", own.rmse, self.times * baseline.rmse + self.floor)
            .or_else(|| above("max", own.largest, LARGEST * baseline.largest + self.floor))
    }
}

/// The baseline's errors in rows, as parts of the largest value of each: what nine in ten rows keep to.
struct Usual {
    rmse: f64,
    largest: f64,
}

impl Usual {
    fn of(rows: &[Errors]) -> Self {
        let over = |size: fn(&Size) -> f64| {
            let parts = rows.iter().filter(|row| row.most > 0.0);
            let mut parts: Vec<f64> = parts.map(|row| size(&row.baseline) / row.most).collect();
            parts.sort_by(f64::total_cmp);
            parts.get(parts.len() * 9 / 10).copied().unwrap_or(0.0)
        };
        Self { rmse: over(|size| size.rmse), largest: over(|size| size.largest) }
    }

    fn raise(&self, row: &mut Errors) {
        let usual = |part: f64| 2.0 * part * row.most;
        row.baseline.rmse = row.baseline.rmse.max(usual(self.rmse));
        row.baseline.largest = row.baseline.largest.max(usual(self.largest));
    }
}

/// Size of some errors.
struct Size {
    rmse: f64,
    largest: f64,
    mean: f64,
    /// Σ e·o / Σ o²: the error of scale.
    slope: f64,
}

struct Errors {
    own: Size,
    baseline: Size,
    count: f64,
    /// max|o|
    most: f64,
    /// Σ o²
    squares: f64,
    /// The element whose own error is largest.
    at: usize,
}

impl Errors {
    fn of(c: &[f64], b: &[f64], o: &[f64]) -> Self {
        let finite = |at: &usize| c[*at].is_finite() && b[*at].is_finite() && o[*at].is_finite();
        let kept: Vec<usize> = (0..o.len()).filter(finite).collect();
        let squares: f64 = kept.iter().map(|&at| o[at] * o[at]).sum();
        let size = |of: &[f64]| Size::of(kept.iter().map(|&at| (of[at] - o[at], o[at])), squares);
        let error = |at: usize| (c[at] - o[at]).abs();
        let at = kept.iter().copied().max_by(|&x, &y| error(x).total_cmp(&error(y)));
        Self {
            own: size(c),
            baseline: size(b),
            count: kept.len() as f64,
            most: kept.iter().fold(0.0, |most: f64, &at| most.max(o[at].abs())),
            squares,
            at: at.unwrap_or_default(),
        }
    }

    /// How far mean and slope are beyond the baseline's, in standard errors of as many errors like the baseline's, or
    /// like one rounding at the largest value where that is more. The elements of a row, `width` of them, share roundings
    /// (of a norm, of a sum of weights), so that a row counts once.
    fn bias(&self, ulp: f64, width: f64) -> f64 {
        if self.count == 0.0 {
            return 0.0;
        }
        let spread = self.baseline.rmse.max(ulp) * width.sqrt();
        let beyond = |own: f64, baseline: f64, error: f64| {
            if error > 0.0 { ((own.abs() - baseline.abs()) / error).max(0.0) } else { 0.0 }
        };
        let mean = beyond(self.own.mean, self.baseline.mean, spread / self.count.sqrt());
        let slope = if self.squares > 0.0 {
            beyond(self.own.slope, self.baseline.slope, spread / self.squares.sqrt())
        } else {
            0.0
        };
        mean.max(slope)
    }

    fn worst(&self, found: &HostTensor, exact: &[f64]) -> String {
        if found.is_empty() {
            String::new()
        } else {
            super::got_want(found, self.at, exact[self.at])
        }
    }
}

impl Size {
    fn of(errors: impl Iterator<Item = (f64, f64)>, squares_of_o: f64) -> Self {
        let (mut count, mut sum, mut squares, mut along, mut largest) =
            (0.0, 0.0, 0.0, 0.0, 0.0f64);
        for (error, o) in errors {
            count += 1.0;
            sum += error;
            squares += error * error;
            along += error * o;
            largest = largest.max(error.abs());
        }
        let of = |total: f64| if count > 0.0 { total / count } else { 0.0 };
        let slope = if squares_of_o > 0.0 { along / squares_of_o } else { 0.0 };
        Self { rmse: of(squares).sqrt(), largest, mean: of(sum), slope }
    }
}
