//! Root-mean-square normalization (Zhang and Sennrich, 2019; `mlx.core.fast.rms_norm`).

use crate::answer::Answer;
use crate::error::OracleError;
use crate::sum::sum_by;
use crate::tensor::Tensor64;

/// How the weight enters.
#[derive(Clone, Copy, Debug)]
pub enum NormWeight<'a> {
    /// Not at all.
    None,
    /// As it is.
    Plain(&'a Tensor64),
    /// One plus it, as Gemma stores it (`mlx_lm.models.gemma3_text`).
    OnePlus(&'a Tensor64),
}

impl NormWeight<'_> {
    /// Factor of column `i` and the magnitudes of its terms.
    fn at(self, i: usize) -> (f64, f64) {
        match self {
            Self::None => (1.0, 1.0),
            Self::Plain(w) => (w.data()[i], w.data()[i].abs()),
            Self::OnePlus(w) => (1.0 + w.data()[i], 1.0 + w.data()[i].abs()),
        }
    }

    fn check(self, op: &'static str, width: usize) -> Result<(), OracleError> {
        match self {
            Self::Plain(w) | Self::OnePlus(w) if w.shape() != [width] => {
                Err(OracleError::shape(op, w.shape(), format!("[{width}]")))
            }
            _ => Ok(()),
        }
    }
}

/// x / √(mean x² + ε) · weight over the last axis.
pub fn rms_norm(x: &Tensor64, weight: NormWeight, eps: f64) -> Result<Answer, OracleError> {
    weight.check("rms_norm", x.last_dim())?;
    let pairs = x.rows().flat_map(|row| {
        let scale = 1.0 / (sum_by(row, |v| v * v) / row.len() as f64 + eps).sqrt();
        row.iter().enumerate().map(move |(i, v)| {
            let (factor, terms) = weight.at(i);
            (v * scale * factor, (v * scale).abs() * terms)
        })
    });
    Ok(Answer::from_pairs(x.shape().to_vec(), pairs.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_unit_mean_square_and_weights_scale_columns() {
        let x = Tensor64::new([2, 2], vec![3.0, 4.0, -1e-30, 1e-30]).unwrap();
        let plain = rms_norm(&x, NormWeight::None, 0.0).unwrap().value;
        assert!((plain.data()[0] - 3.0 / 12.5_f64.sqrt()).abs() <= 2e-16);
        assert_eq!(plain.data()[2..], [-1.0, 1.0]);
        let w = Tensor64::vector([0.5, -2.0]);
        let weighted = rms_norm(&x, NormWeight::Plain(&w), 0.0).unwrap().value;
        assert_eq!(weighted.data()[2..], [-0.5, -2.0]);
        let one_plus = rms_norm(&x, NormWeight::OnePlus(&w), 0.0).unwrap();
        assert_eq!(one_plus.value.data()[2..], [-1.5, -1.0]);
        assert_eq!(one_plus.condition.data()[2..], [1.5, 3.0]);
        assert!(rms_norm(&x, NormWeight::Plain(&Tensor64::vector([1.0; 3])), 0.0).is_err());
    }

    #[test]
    fn eps_is_inside_the_root() {
        let zero = rms_norm(&Tensor64::vector([0.0, 0.0]), NormWeight::None, 1e-6).unwrap().value;
        assert_eq!(zero.data(), [0.0, 0.0]);
        let x = rms_norm(&Tensor64::vector([1.0, 1.0]), NormWeight::None, 3.0).unwrap().value;
        assert_eq!(x.data(), [0.5, 0.5]);
    }
}
