//! Softmax. Arguments: `shape`, `axis` (−1).

use mlx_parity_oracles::{
    Answer, Op, Tensor64,
    ops::{self, Precision},
    tensor::resolve_axis,
};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::heavy::condition::in_float32;
use crate::ops::{Call, LayoutRule, Source, Suite, SuiteError};

/// The suite of softmax, plain and precise.
pub struct Softmax;

impl Suite for Softmax {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        Ok(vec![source.tensor(call.generator, call.dtype, &call.shape("shape")?)?])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        // In float32 there is nothing more precise to work in.
        let half = call.op == Op::SoftmaxPrecise && call.dtype != Dtype::F32;
        let precision = if half { Precision::Precise } else { Precision::Plain };
        let axis = call.int_or("axis", -1)? as isize;
        let x = Tensor64::from_host(&operands[0]);
        let terms = x.shape()[resolve_axis("softmax", axis, x.ndim())?] as f64;
        let answer = ops::softmax(&x, axis, precision)?;
        Ok(vec![in_float32(answer, call.dtype, terms.sqrt(), |_, own| own)])
    }

    fn layouts(&self, call: &Call) -> LayoutRule {
        if call.int_or("axis", -1) == Ok(-1) {
            return LayoutRule::Exact;
        }
        LayoutRule::WithinBound("over another axis than the last it is composed of reductions")
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        call: &Call,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, SuiteError> {
        let axis = call.int_or("axis", -1)? as i32;
        let precise = call.op == Op::SoftmaxPrecise;
        Ok(vec![mlx_parity_engine::ops::softmax_axis(&operands[0], axis, precise)?])
    }
}
