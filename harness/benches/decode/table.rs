//! Medians, ratios and their spread.

use super::player::Turn;

/// The table's head.
pub const HEAD: &str = "\
| model | prefill ms, ours / mlx-lm | ratio | spread | decode ms a token, ours / mlx-lm | ratio | spread |
|---|---|---|---|---|---|---|";

/// Seconds of both sides, round by round.
#[derive(Default)]
pub struct Ratios {
    /// Ours, and theirs, to the first id.
    pub prefill: Vec<[f64; 2]>,
    /// The same for an id behind it.
    pub decode: Vec<[f64; 2]>,
}

impl Ratios {
    /// Takes a round; decode is kept by the token.
    pub fn add(&mut self, ours: &Turn, theirs: &Turn) {
        let steps = (ours.ids.len() - 1).max(1) as f64;
        self.prefill.push([ours.prefill, theirs.prefill]);
        self.decode.push([ours.decode / steps, theirs.decode / steps]);
    }
}

/// The middle of the values; the mean of the two middle ones.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.get(middle) {
        None => f64::NAN,
        Some(upper) if values.len() % 2 == 1 => *upper,
        Some(upper) => f64::midpoint(values[middle - 1], *upper),
    }
}

/// A model's line.
pub fn row(name: &str, ratios: &Ratios) -> String {
    format!("| {name} | {} | {} |", cells(&ratios.prefill), cells(&ratios.decode))
}

/// The two medians in ms, the median of the ratios, and their spread.
pub fn cells(rounds: &[[f64; 2]]) -> String {
    let ratios: Vec<f64> = rounds.iter().map(|[ours, theirs]| theirs / ours).collect();
    let (least, most) = ratios
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(least, most), x| (least.min(*x), most.max(*x)));
    let side = |at: usize| median(rounds.iter().map(|round| round[at])) * 1e3;
    format!(
        "{:.3} / {:.3} | {:.2} | {least:.2} to {most:.2}",
        side(0),
        side(1),
        median(ratios.iter().copied())
    )
}
