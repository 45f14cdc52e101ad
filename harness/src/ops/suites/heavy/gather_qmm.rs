//! `gather_qmm`: products with quantized matrices picked by index.
//!
//! Arguments: `m`, `k`, `n`; `a_batch`, `b_batch`, `picks`, `lhs`, `sorted` as in
//! [`gather_mm`](super::gather_mm); `transpose` and `accumulate` as in
//! [`quantized_matmul`](super::quantized_matmul).

#[cfg(feature = "engine")]
use mlx_parity_engine::{Array, ops};
use mlx_parity_oracles::{Answer, ops::gather_qmm};
use mlx_parity_tensor::HostTensor;

use super::{gather_mm::picks, operand, packed, quantized_matmul};
use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite.
pub struct GatherQmm;

impl Suite for GatherQmm {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let (a_batch, b_batch) =
            (operand::extents(call, "a_batch")?, operand::extents(call, "b_batch")?);
        let x = operand::main(
            call,
            source,
            &operand::shape(&a_batch, &[call.size("m")?, call.size("k")?]),
        )?;
        let shape = operand::shape(&b_batch, &quantized_matmul::weight_shape(call)?);
        let w = packed::pack(call, &operand::beside(call, source, &shape)?)?;
        Ok([vec![x], w, picks(call, source, &a_batch, &b_batch)?].concat())
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let mode = packed::mode(call)?;
        let (w, indices) = operands[1..].split_at(packed::parts(mode));
        let rhs = operand::whole(&indices[0])?;
        let lhs = indices.get(1).map(operand::whole).transpose()?;
        let (x, w) = (operand::wide(&operands[0]), packed::unpack(mode, w)?);
        let transpose = call.bool_or("transpose", true)?;
        let answer = gather_qmm(&x, &w, lhs.as_ref(), Some(&rhs), transpose)?;
        Ok(vec![quantized_matmul::accumulated(call, answer)?])
    }

    #[cfg(feature = "engine")]
    fn engine(&self, call: &Call, operands: &[Array]) -> Result<Vec<Array>, SuiteError> {
        let mode = packed::mode(call)?;
        let (w, indices) = operands[1..].split_at(packed::parts(mode));
        let (transpose, sorted) =
            (call.bool_or("transpose", true)?, call.bool_or("sorted", false)?);
        let (lhs, rhs) = (indices.get(1), Some(&indices[0]));
        let w = packed::engine_matrix(mode, w);
        Ok(vec![ops::packed::gather_qmm(&operands[0], &w, lhs, rhs, transpose, sorted)?])
    }
}
