//! Products with a quantized matrix.

use super::matmul::{split_matrix, times_rows, value_only};
use super::quantize::{Quantized, dequantize};
use crate::answer::Answer;
use crate::error::OracleError;
use crate::tensor::Tensor64;

/// x·wᵀ with `transpose` (w is `[.., n, k]` of quantized rows), else x·w (w is `[.., k, n]`);
/// leading axes broadcast.
///
/// The condition is Σ|xᵢ|·(|scale·code| + |bias|): implementations sum the two terms of an affine
/// weight apart.
pub fn quantized_matmul(
    x: &Tensor64,
    w: &Quantized,
    transpose: bool,
) -> Result<Answer, OracleError> {
    let op = "quantized_matmul";
    let weight = dequantize(w);
    split_matrix(op, weight.value.shape())?;
    let rows = |w: Tensor64| if transpose { w } else { w.transpose_last() };
    let value = times_rows(op, x, &rows(weight.value), value_only)?.value;
    let condition = times_rows(op, &x.map(f64::abs), &rows(weight.condition), value_only)?.value;
    Ok(Answer { value, condition })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::quantize::{Mode, QuantizeRule, quantize};

    #[test]
    fn both_transposes_are_products_with_the_dequantized_matrix() {
        let w = Tensor64::new([32, 64], (0..2048).map(|i| f64::from(i * 7 % 101) - 50.0).collect())
            .unwrap();
        let q = quantize(&w, Mode::Affine { bits: 6, group_size: 32 }, QuantizeRule::MLX).unwrap();
        let dense = dequantize(&q).value;
        let wide = Tensor64::full([2, 3, 64], 0.5);
        let found = quantized_matmul(&wide, &q, true).unwrap();
        assert_eq!(found.value.shape(), [2, 3, 32]);
        let row: f64 = dense.data()[..64].iter().sum::<f64>() * 0.5;
        assert!((found.value.data()[0] - row).abs() <= 1e-12);
        let narrow = Tensor64::full([1, 32], 1.0);
        let found = quantized_matmul(&narrow, &q, false).unwrap();
        assert_eq!(found.value.shape(), [1, 64]);
        let column: f64 = (0..32).map(|r| dense.data()[r * 64 + 5]).sum();
        assert!((found.value.data()[5] - column).abs() <= 1e-12);
        assert!(found.condition.data()[5] > column.abs());
        assert!(quantized_matmul(&narrow, &q, true).is_err());
    }
}
