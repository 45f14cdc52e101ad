//! Attention over quantized keys and values.

use super::attention::{Attention, Operand, attend};
use super::quantize::{Quantized, dequantize};
use crate::answer::Answer;
use crate::error::OracleError;
use crate::tensor::Tensor64;

/// [`sdpa`](super::sdpa) of the dequantized keys and values: what
/// `mlx_lm.models.base.quantized_scaled_dot_product_attention` and any tiling of it compute in real
/// numbers.
///
/// In the condition keys and values count as the terms of their dequantization, |scale·code| + |bias|.
pub fn quantized_sdpa(
    q: &Tensor64,
    k: &Quantized,
    v: &Quantized,
    attention: &Attention,
) -> Result<Answer, OracleError> {
    let (keys, values) = (dequantize(k), dequantize(v));
    attend(
        q,
        &Operand { value: &keys.value, terms: &keys.condition },
        &Operand { value: &values.value, terms: &values.condition },
        attention,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::quantize::{Mode, QuantizeRule, quantize};
    use crate::ops::{CausalAlignment, Mask, sdpa};

    #[test]
    fn eight_bits_are_near_the_plain_answer_and_two_are_not() {
        let wave = |shape: [usize; 4], pitch: f64| {
            let n: usize = shape.iter().product();
            Tensor64::new(shape, (0..n).map(|i| (i as f64 * pitch).sin()).collect()).unwrap()
        };
        let (q, k, v) =
            (wave([1, 4, 2, 32], 0.7), wave([1, 2, 9, 32], 0.3), wave([1, 2, 9, 32], 1.1));
        let attention = Attention::new(0.2, Mask::Causal(CausalAlignment::BottomRight));
        let plain = sdpa(&q, &k, &v, &attention).unwrap();
        let gap = |bits| {
            let pack =
                |x| quantize(x, Mode::Affine { bits, group_size: 32 }, QuantizeRule::MLX).unwrap();
            let found = quantized_sdpa(&q, &pack(&k), &pack(&v), &attention).unwrap();
            assert!(found.condition.data()[0] > plain.condition.data()[0]);
            let gaps =
                found.value.data().iter().zip(plain.value.data()).map(|(a, b)| (a - b).abs());
            gaps.fold(0.0, f64::max)
        };
        assert!(gap(8) < 0.01);
        assert!(gap(2) > 0.1);
    }
}
