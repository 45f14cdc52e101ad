//! How rounding errors inside an op weigh against the unit of its output.
//!
//! A bound is a number of units of the output dtype at the condition. An op that computes in
//! float32 and rounds its result once owes half a unit at its own magnitude, and only float32's
//! share of what its terms cancel. Counting that cancellation in units of a half dtype would let a
//! half accumulator pass, which is what the check is there to find.

use mlx_parity_oracles::{Answer, Tensor64};
use mlx_parity_tensor::Dtype;

/// Spacing of float32 numbers over that of the dtype's: what one rounding in float32 is worth in
/// units of the output.
pub fn float32_share(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F16 => 2.0_f64.powi(-13),
        Dtype::Bf16 => 2.0_f64.powi(-16),
        _ => 1.0,
    }
}

/// Spacing of a floating dtype's numbers at one.
pub fn epsilon(dtype: Dtype) -> f64 {
    f64::from(f32::EPSILON) / float32_share(dtype)
}

/// The answer of an op computed in float32: its condition becomes `own(i, old) + roundings ·
/// float32_share · old`, where `old` is the reference's condition and `own` the magnitude at which
/// results are rounded to the output dtype.
pub fn in_float32(
    answer: Answer,
    dtype: Dtype,
    roundings: f64,
    own: impl Fn(usize, f64) -> f64,
) -> Answer {
    let share = roundings * float32_share(dtype);
    let widened =
        answer.condition.data().iter().enumerate().map(|(i, old)| own(i, *old) + share * old);
    let data: Vec<f64> = widened.collect();
    let mut condition = answer.condition;
    condition.data_mut().copy_from_slice(&data);
    Answer { value: answer.value, condition }
}

/// Sums of `terms` products in float32: errors of independent roundings grow as √terms (Higham and
/// Mary, "A new approach to probabilistic rounding error analysis", 2019), and the sum is rounded
/// once to the output.
pub fn summed(answer: Answer, dtype: Dtype, terms: usize) -> Answer {
    let own = magnitudes(&answer.value);
    in_float32(answer, dtype, (terms.max(1) as f64).sqrt(), |i, _| own[i])
}

/// Sums in the output's own dtype: each term is rounded three times before it is added (code times
/// scale, plus bias, times x), and the sum once, half a unit each.
pub fn summed_in_output(mut answer: Answer) -> Answer {
    for condition in answer.condition.data_mut() {
        *condition *= 2.0;
    }
    answer
}

/// |xᵢ| of each element.
pub fn magnitudes(x: &Tensor64) -> Vec<f64> {
    x.data().iter().map(|v| v.abs()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_result_owes_float32s_share_of_what_cancels() {
        let answer =
            Answer { value: Tensor64::vector([1.0]), condition: Tensor64::vector([65_536.0]) };
        assert_eq!(summed(answer.clone(), Dtype::Bf16, 4).condition.data(), [1.0 + 2.0]);
        assert_eq!(summed(answer.clone(), Dtype::F16, 1).condition.data(), [1.0 + 8.0]);
        assert_eq!(summed(answer, Dtype::F32, 1).condition.data(), [1.0 + 65_536.0]);
    }
}
