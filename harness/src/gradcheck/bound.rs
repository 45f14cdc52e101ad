//! How far a gradient may be from the true one: units of its dtype at its condition.
//!
//! An entry of a gradient is a sum Σⱼ cⱼ·Jⱼᵢ over the outputs, and rounding its terms costs units of
//! Σⱼ|cⱼ·Jⱼᵢ|, its condition. A projection Σᵢ ±gᵢ over random signs adds such errors as independent ones
//! do, so its condition is the root of the sum of squares, √Σⱼᵢ(cⱼ·Jⱼᵢ)²; the number of entries is not in
//! it. Row norms √Σᵢ Jⱼᵢ² come from the projections themselves, whose squares have that mean (Hutchinson,
//! "A stochastic estimator of the trace", 1990).

use mlx_parity_tensor::Dtype;

use crate::ops::Source;

/// Distance from one to the next number of a dtype; for float64 2⁻³³, as finite differences in float64
/// resolve no more.
pub fn unit(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F16 => 2_f64.powi(-10),
        Dtype::Bf16 => 2_f64.powi(-7),
        Dtype::F32 => 2_f64.powi(-23),
        _ => 2_f64.powi(-33),
    }
}

/// Mean squares of the outputs' derivatives along directions of random signs: for each output the square
/// of its row of the Jacobian.
pub fn row_squares(derivatives: &[&[f64]]) -> Vec<f64> {
    let Some(first) = derivatives.first() else { return Vec::new() };
    let count = derivatives.len() as f64;
    (0..first.len()).map(|j| derivatives.iter().map(|d| d[j] * d[j]).sum::<f64>() / count).collect()
}

/// The condition of a projection: √Σⱼ cⱼ²·|Jⱼ|².
pub fn of_projection(cotangent: &[f64], row_squares: &[f64]) -> f64 {
    let terms = cotangent.iter().zip(row_squares);
    terms.map(|(c, r)| if *c == 0.0 { 0.0 } else { c * c * r }).sum::<f64>().sqrt()
}

/// The condition of one entry: Σⱼ|cⱼ·Jⱼᵢ|, and a typical entry's share of the projections' condition.
/// Entries far below it come out of sums whose terms are as large as their neighbours'.
pub fn of_entry(cotangent: &[f64], column: &[f64], projection: f64, entries: usize) -> f64 {
    let terms = cotangent.iter().zip(column);
    let own: f64 = terms.map(|(c, j)| if *c == 0.0 { 0.0 } else { (c * j).abs() }).sum();
    own + projection / (entries.max(1) as f64).sqrt()
}

/// Σⱼ cⱼ·vⱼ; an output with no weight cannot spoil it.
pub fn weighed(cotangent: &[f64], values: &[f64]) -> f64 {
    let terms = cotangent.iter().zip(values);
    terms.map(|(c, v)| if *c == 0.0 { 0.0 } else { c * v }).sum()
}

/// A seed of its own for each operand of a check.
pub fn source(seed: u64, operand: usize) -> Source {
    Source::new(seed ^ (operand as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradcheck::Direction;

    #[test]
    fn projections_give_the_norms_of_the_jacobians_rows() {
        let mut source = Source::new(5);
        let jacobian: Vec<Vec<f64>> =
            (0..3).map(|j| (0..200).map(|_| source.bell() * f64::from(j + 1)).collect()).collect();
        let along: Vec<Vec<f64>> = (0..64)
            .map(|_| {
                let direction = Direction::signs(&mut source, 200);
                jacobian.iter().map(|row| direction.dot(row)).collect()
            })
            .collect();
        let along: Vec<&[f64]> = along.iter().map(Vec::as_slice).collect();
        for (found, row) in row_squares(&along).iter().zip(&jacobian) {
            let norm: f64 = row.iter().map(|v| v * v).sum();
            assert!((found / norm - 1.0).abs() < 0.6, "{found} {norm}");
        }
    }
}
