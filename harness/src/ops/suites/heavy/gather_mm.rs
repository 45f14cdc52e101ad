//! `gather_mm`: products of matrices picked by index, as expert layers use them.
//!
//! Arguments: `m`, `k`, `n`; `a_batch`, `b_batch` (leading axes); `picks` (shape of the right
//! indices); `lhs` (whether left indices of the same shape are given; else every matrix of `a` is
//! used in order); `sorted` (right indices in order, and MLX told so).

#[cfg(feature = "engine")]
use mlx_parity_engine::{Array, ops};
use mlx_parity_oracles::{Answer, ops::gather_mm};
use mlx_parity_tensor::HostTensor;

use super::{condition::summed, matmul::GEMM_PATH, operand};
use crate::ops::{Call, LayoutRule, Source, Suite, SuiteError};

/// The suite.
pub struct GatherMm;

/// The right indices, then the left ones where the call gives them.
pub fn picks(
    call: &Call,
    source: &mut Source,
    a_batch: &[usize],
    b_batch: &[usize],
) -> Result<Vec<HostTensor>, SuiteError> {
    let shape = operand::extents(call, "picks")?;
    let mut found = vec![operand::indices(source, &shape, b_batch.iter().product())?];
    if call.bool_or("sorted", false)? {
        let mut values: Vec<u32> = found[0].to_f64().iter().map(|v| *v as u32).collect();
        values.sort_unstable();
        found[0] = HostTensor::from_u32(shape.as_slice(), &values)?;
    }
    if call.bool_or("lhs", false)? {
        found.push(operand::indices(source, &shape, a_batch.iter().product())?);
    }
    Ok(found)
}

impl Suite for GatherMm {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let (m, k, n) = (call.size("m")?, call.size("k")?, call.size("n")?);
        let (a_batch, b_batch) =
            (operand::extents(call, "a_batch")?, operand::extents(call, "b_batch")?);
        let a = operand::main(call, source, &operand::shape(&a_batch, &[m, k]))?;
        let b = operand::beside(call, source, &operand::shape(&b_batch, &[k, n]))?;
        Ok([vec![a, b], picks(call, source, &a_batch, &b_batch)?].concat())
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let rhs = operand::whole(&operands[2])?;
        let lhs = operands.get(3).map(operand::whole).transpose()?;
        let (a, b) = (operand::wide(&operands[0]), operand::wide(&operands[1]));
        let answer = gather_mm(&a, &b, lhs.as_ref(), Some(&rhs))?;
        Ok(vec![summed(answer, call.dtype, call.size("k")?)])
    }

    fn layouts(&self, _call: &Call) -> LayoutRule {
        LayoutRule::WithinBound(GEMM_PATH)
    }

    #[cfg(feature = "engine")]
    fn engine(&self, call: &Call, operands: &[Array]) -> Result<Vec<Array>, SuiteError> {
        let sorted = call.bool_or("sorted", false)?;
        let (a, b, rhs, lhs) = (&operands[0], &operands[1], &operands[2], operands.get(3));
        Ok(vec![ops::gather_mm(a, b, lhs, Some(rhs), sorted)?])
    }
}
