//! Layer normalization (Ba, Kiros and Hinton, 2016; `mlx.core.fast.layer_norm`).

use super::reduce::Moments;
use crate::answer::Answer;
use crate::error::OracleError;
use crate::tensor::Tensor64;

/// (x − mean)/√(var + ε) · weight + bias over the last axis; var without Bessel's correction.
///
/// The condition carries the cancellation of x − mean, in the element and in the variance.
pub fn layer_norm(
    x: &Tensor64,
    weight: Option<&Tensor64>,
    bias: Option<&Tensor64>,
    eps: f64,
) -> Result<Answer, OracleError> {
    let width = x.last_dim();
    for affine in weight.iter().chain(&bias) {
        if affine.shape() != [width] {
            return Err(OracleError::shape("layer_norm", affine.shape(), format!("[{width}]")));
        }
    }
    let pairs = x.rows().flat_map(|row| {
        normalize(row, eps).into_iter().enumerate().map(|(i, pair)| {
            affine(pair, weight.map_or(1.0, |w| w.data()[i]), bias.map_or(0.0, |b| b.data()[i]))
        })
    });
    Ok(Answer::from_pairs(x.shape().to_vec(), pairs.collect()))
}

/// A group normalized by its own moments, with conditions.
pub(crate) fn normalize(row: &[f64], eps: f64) -> Vec<(f64, f64)> {
    let n = row.len() as f64;
    let moments = Moments::of(row);
    let variance = moments.squares / n + eps;
    let scale = 1.0 / variance.sqrt();
    // Half the relative condition of the variance: what its error does to the scale.
    let scale_condition = 0.5 * moments.cancellation / n / variance;
    let of = |&v: &f64| {
        let value = (v - moments.mean) * scale;
        let difference = (v.abs() + moments.mean_magnitude) * scale;
        (value, difference + value.abs() * scale_condition)
    };
    row.iter().map(of).collect()
}

pub(crate) fn affine((value, condition): (f64, f64), weight: f64, bias: f64) -> (f64, f64) {
    (value * weight + bias, condition * weight.abs() + bias.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_zero_mean_and_unit_variance_at_any_offset() {
        for offset in [0.0, 1e6] {
            let x = Tensor64::vector((0..8).map(|i| offset + f64::from(i)).collect::<Vec<_>>());
            let found = layer_norm(&x, None, None, 0.0).unwrap();
            // Variance of 0..8 is 63/12.
            let first = -3.5 / (63.0_f64 / 12.0).sqrt();
            assert!((found.value.data()[0] - first).abs() <= 1e-15, "{offset}");
            assert!(found.condition.data()[0] >= offset / 3.0);
        }
    }

    #[test]
    fn weight_then_bias() {
        let x = Tensor64::vector([-1.0, 1.0]);
        let (w, b) = (Tensor64::vector([2.0, 3.0]), Tensor64::vector([10.0, 20.0]));
        let found = layer_norm(&x, Some(&w), Some(&b), 0.0).unwrap().value;
        assert_eq!(found.data(), [8.0, 23.0]);
        assert!(layer_norm(&x, Some(&Tensor64::vector([1.0])), None, 0.0).is_err());
    }
}
