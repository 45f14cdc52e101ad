//! `addmm`: β·c + α·(a·b).
//!
//! Arguments: `m`, `k`, `n`, `batch`; `c` = `"row"` (`[n]`), `"column"` (`[m, 1]`) or `"full"`;
//! `alpha`, `beta`.

#[cfg(feature = "engine")]
use mlx_parity_engine::{Array, ops};
use mlx_parity_oracles::{Answer, ops::addmm};
use mlx_parity_tensor::HostTensor;

use super::{condition::in_float32, matmul::GEMM_PATH, operand};
use crate::ops::{Call, LayoutRule, Source, Suite, SuiteError};

/// The suite.
pub struct Addmm;

fn factors(call: &Call) -> Result<(f64, f64), SuiteError> {
    Ok((call.float_or("alpha", 1.0)?, call.float_or("beta", 1.0)?))
}

impl Suite for Addmm {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let (m, k, n) = (call.size("m")?, call.size("k")?, call.size("n")?);
        let batch = operand::extents(call, "batch")?;
        let c = match call.text_or("c", "full")? {
            "row" => vec![n],
            "column" => vec![m, 1],
            "full" => operand::shape(&batch, &[m, n]),
            _ => return Err(call.wrong("c", "row, column or full").into()),
        };
        Ok(vec![
            operand::beside(call, source, &c)?,
            operand::main(call, source, &operand::shape(&batch, &[m, k]))?,
            operand::beside(call, source, &operand::shape(&batch, &[k, n]))?,
        ])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let (alpha, beta) = factors(call)?;
        let [c, a, b] = [0, 1, 2].map(|i| operand::wide(&operands[i]));
        let answer = addmm(&c, &a, &b, alpha, beta)?;
        // The scaled product and the scaled c are each rounded before they are added.
        let c = c.broadcast_to(answer.value.shape())?.map(|v| beta * v);
        let terms = answer.value.data().iter().zip(c.data());
        let own: Vec<f64> = terms.map(|(sum, c)| c.abs() + (sum - c).abs()).collect();
        let roundings = (call.size("k")? as f64).sqrt();
        Ok(vec![in_float32(answer, call.dtype, roundings, |i, _| own[i])])
    }

    fn layouts(&self, _call: &Call) -> LayoutRule {
        LayoutRule::WithinBound(GEMM_PATH)
    }

    #[cfg(feature = "engine")]
    fn engine(&self, call: &Call, operands: &[Array]) -> Result<Vec<Array>, SuiteError> {
        let (alpha, beta) = factors(call)?;
        let (alpha, beta) = (alpha as f32, beta as f32);
        Ok(vec![ops::addmm_scaled(&operands[0], &operands[1], &operands[2], alpha, beta)?])
    }
}
