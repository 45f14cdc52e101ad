//! `matmul`: batched, broadcast, and with vectors.
//!
//! Arguments: `m`, `k`, `n`; `a_batch`, `b_batch` (`"2x1"`); `vectors` = `"none"`, `"left"`,
//! `"right"`, `"both"`.

#[cfg(feature = "engine")]
use mlx_parity_engine::{Array, ops};
use mlx_parity_oracles::{Answer, ops::matmul};
use mlx_parity_tensor::HostTensor;

use super::{condition::summed, operand};
use crate::ops::{Call, LayoutRule, Source, Suite, SuiteError};

/// Why a product of views may differ in its last bits.
pub const GEMM_PATH: &str =
    "strides decide the GEMM's transposition flags, and so its blocking and order of sums";

/// The suite.
pub struct Matmul;

impl Suite for Matmul {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let (m, k, n) = (call.size("m")?, call.size("k")?, call.size("n")?);
        let vectors = call.text_or("vectors", "none")?;
        let (left, right) = (&[m, k][..], &[k, n][..]);
        let (left, right) = match vectors {
            "none" => (left, right),
            "left" => (&left[1..], right),
            "right" => (left, &right[..1]),
            "both" => (&left[1..], &right[..1]),
            _ => return Err(call.wrong("vectors", "none, left, right or both").into()),
        };
        let a = operand::main(
            call,
            source,
            &operand::shape(&operand::extents(call, "a_batch")?, left),
        )?;
        let b = operand::beside(
            call,
            source,
            &operand::shape(&operand::extents(call, "b_batch")?, right),
        )?;
        Ok(vec![a, b])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let answer = matmul(&operand::wide(&operands[0]), &operand::wide(&operands[1]))?;
        Ok(vec![summed(answer, call.dtype, call.size("k")?)])
    }

    fn layouts(&self, _call: &Call) -> LayoutRule {
        LayoutRule::WithinBound(GEMM_PATH)
    }

    #[cfg(feature = "engine")]
    fn engine(&self, _call: &Call, operands: &[Array]) -> Result<Vec<Array>, SuiteError> {
        Ok(vec![ops::matmul(&operands[0], &operands[1])?])
    }
}
