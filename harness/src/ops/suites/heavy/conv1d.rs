//! `conv1d`: channels last, the kernel not flipped.
//!
//! Arguments: `batch`, `length`, `in`, `out`, `taps`; `stride`, `padding`, `dilation`, `groups`.

#[cfg(feature = "engine")]
use mlx_parity_engine::{Array, ops};
use mlx_parity_oracles::{Answer, ops::Conv1d as Conv, ops::conv1d};
use mlx_parity_tensor::HostTensor;

use super::{condition::summed, operand};
use crate::ops::{Call, LayoutRule, Source, Suite, SuiteError};

/// The suite.
pub struct Conv1d;

fn parameters(call: &Call) -> Result<Conv, SuiteError> {
    Ok(Conv {
        stride: call.size_or("stride", 1)?,
        padding: call.size_or("padding", 0)?,
        dilation: call.size_or("dilation", 1)?,
        groups: call.size_or("groups", 1)?,
    })
}

/// Channels that one output reads.
fn depth(call: &Call) -> Result<usize, SuiteError> {
    Ok(call.size("in")? / call.size_or("groups", 1)?.max(1))
}

impl Suite for Conv1d {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let x = [call.size("batch")?, call.size("length")?, call.size("in")?];
        let w = [call.size("out")?, call.size("taps")?, depth(call)?];
        Ok(vec![operand::main(call, source, &x)?, operand::beside(call, source, &w)?])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let answer =
            conv1d(&operand::wide(&operands[0]), &operand::wide(&operands[1]), parameters(call)?)?;
        Ok(vec![summed(answer, call.dtype, call.size("taps")? * depth(call)?)])
    }

    fn layouts(&self, _call: &Call) -> LayoutRule {
        LayoutRule::WithinBound(
            "a view is unfolded by another copy, whose product the GEMM blocks otherwise",
        )
    }

    #[cfg(feature = "engine")]
    fn engine(&self, call: &Call, operands: &[Array]) -> Result<Vec<Array>, SuiteError> {
        let Conv { stride, padding, dilation, groups } = parameters(call)?;
        let [stride, padding, dilation, groups] =
            [stride, padding, dilation, groups].map(|v| v as i32);
        let conv = ops::Conv1d { stride, padding, dilation, groups };
        Ok(vec![ops::conv1d(&operands[0], &operands[1], conv)?])
    }
}
