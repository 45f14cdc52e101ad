//! `quantized_matmul`: x·wᵀ or x·w with w quantized along its last axis.
//!
//! Arguments: `m`, `k`, `n`; `batch` (leading axes of x), `w_batch`; `transpose` (true);
//! `accumulate`; and those of [`packed`](super::packed).
//!
//! `accumulate` says what is asked of sums in a half dtype. `"f32"` (the default): as the dense
//! product, which sums in float32 and rounds once. `"output"`: as much as sums kept in the output
//! dtype can give. MLX's CPU fails the first and keeps the second, which still tells a wrong code,
//! group or column.

#[cfg(feature = "engine")]
use mlx_parity_engine::{Array, ops};
use mlx_parity_oracles::{Answer, ops::quantized_matmul};
use mlx_parity_tensor::HostTensor;

use super::{
    condition::{summed, summed_in_output},
    operand, packed,
};
use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite.
pub struct QuantizedMatmul;

/// The condition of a product under the call's `accumulate`.
pub fn accumulated(call: &Call, answer: Answer) -> Result<Answer, SuiteError> {
    match call.text_or("accumulate", "f32")? {
        "f32" => Ok(summed(answer, call.dtype, call.size("k")?)),
        "output" => Ok(summed_in_output(answer)),
        _ => Err(call.wrong("accumulate", "f32 or output").into()),
    }
}

/// `[n, k]` with `transpose`, else `[k, n]`.
pub fn weight_shape(call: &Call) -> Result<[usize; 2], SuiteError> {
    let (k, n) = (call.size("k")?, call.size("n")?);
    Ok(if call.bool_or("transpose", true)? { [n, k] } else { [k, n] })
}

impl Suite for QuantizedMatmul {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let batch = operand::extents(call, "batch")?;
        let x = operand::main(
            call,
            source,
            &operand::shape(&batch, &[call.size("m")?, call.size("k")?]),
        )?;
        let shape = operand::shape(&operand::extents(call, "w_batch")?, &weight_shape(call)?);
        let w = operand::beside(call, source, &shape)?;
        Ok([vec![x], packed::pack(call, &w)?].concat())
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let w = packed::unpack(packed::mode(call)?, &operands[1..])?;
        let transpose = call.bool_or("transpose", true)?;
        let answer = quantized_matmul(&operand::wide(&operands[0]), &w, transpose)?;
        Ok(vec![accumulated(call, answer)?])
    }

    #[cfg(feature = "engine")]
    fn engine(&self, call: &Call, operands: &[Array]) -> Result<Vec<Array>, SuiteError> {
        let w = packed::engine_matrix(packed::mode(call)?, &operands[1..]);
        let transpose = call.bool_or("transpose", true)?;
        Ok(vec![ops::packed::quantized_matmul(&operands[0], &w, transpose)?])
    }
}
