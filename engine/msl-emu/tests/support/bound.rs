//! How far an output may lie from the real value.

use mlx_parity_oracles::Answer;
use mlx_parity_tensor::{Dtype, HostTensor};

use super::Expected;

/// Unit roundoff of float32, in which every kernel here accumulates.
const ROUNDOFF: f64 = 1.0 / (1_u64 << 24) as f64;

/// Spacing of a dtype's values at a magnitude.
fn spacing(dtype: Dtype, magnitude: f64) -> f64 {
    let (digits, lowest) = match dtype {
        Dtype::F16 => (10, -14),
        Dtype::Bf16 => (7, -126),
        _ => (23, -126),
    };
    let exponent = if magnitude > 0.0 { magnitude.log2().floor() as i32 } else { lowest };
    2_f64.powi(exponent.max(lowest) - digits)
}

/// What is wrong with an output, or nothing.
pub fn judge(found: &HostTensor, expected: &Expected) -> Result<(), String> {
    match expected {
        Expected::Exact(wanted) => same_bits(found, wanted),
        Expected::Near { answer, roundoffs } => near(found, answer, *roundoffs),
    }
}

/// That two tensors have the same dtype, shape and bits.
pub fn same_bits(found: &HostTensor, wanted: &HostTensor) -> Result<(), String> {
    if found.dtype() != wanted.dtype() || found.shape() != wanted.shape() {
        return Err(format!(
            "{} {:?}, wanted {} {:?}",
            found.dtype().name(),
            found.shape(),
            wanted.dtype().name(),
            wanted.shape()
        ));
    }
    match (0..found.len()).find(|&i| found.bits_at(i) != wanted.bits_at(i)) {
        None => Ok(()),
        Some(i) => {
            Err(format!("element {i} is {}, wanted {}", found.value_at(i), wanted.value_at(i)))
        }
    }
}

fn near(found: &HostTensor, answer: &Answer, roundoffs: f64) -> Result<(), String> {
    if found.shape() != answer.value.shape() {
        return Err(format!("shape {:?}, wanted {:?}", found.shape(), answer.value.shape()));
    }
    for (i, (&value, &condition)) in
        answer.value.data().iter().zip(answer.condition.data()).enumerate()
    {
        let slack = roundoffs * ROUNDOFF * condition;
        let bound = slack + 0.5 * spacing(found.dtype(), value.abs() + slack);
        let error = (found.value_at(i) - value).abs();
        let holds = error <= bound; // false for NaN
        if !holds {
            let at = found.coords(i);
            return Err(format!(
                "element {at:?} is {}, wanted {value}: off by {error:e}, bound {bound:e}",
                found.value_at(i)
            ));
        }
    }
    Ok(())
}
