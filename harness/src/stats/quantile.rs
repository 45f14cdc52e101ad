//! Quantiles of a sample.

/// The quantile `q` of values in ascending order, as NumPy's `linear` has it (type 7 of Hyndman and Fan, "Sample
/// quantiles in statistical packages", 1996): linear between the two values around position `q·(n − 1)`. NaN without
/// values.
pub fn of_sorted(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let (at, part) = place(last, q);
    between(sorted[at], sorted[(at + 1).min(last)], part)
}

/// The position before quantile `q` among positions `0..=last`, and how far it is on the way to the next.
pub(super) fn place(last: usize, q: f64) -> (usize, f64) {
    let place = q.clamp(0.0, 1.0) * last as f64;
    let at = (place as usize).min(last);
    (at, place - at as f64)
}

/// The value at `part` of the way from `low` to `high`, exact at both ends.
pub(super) fn between(low: f64, high: f64, part: f64) -> f64 {
    if part == 0.0 || low == high { low } else { low + part * (high - low) }
}
