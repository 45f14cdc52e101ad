//! Reductions. Arguments: `shape`; `axis`, without which every axis is reduced; `keep-dims`; `ddof` of
//! the variance.

use std::slice;

use mlx_parity_oracles::{
    Answer, Convention, Op, Tensor64,
    ops::{self, Axes},
};
use mlx_parity_tensor::HostTensor;

use super::{heavy::condition::summed, unsupported};
use crate::ops::{Call, LayoutRule, Source, Suite, SuiteError};

/// The suite of sum, mean, var, max, min and logsumexp.
pub struct Reduce;

impl Suite for Reduce {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        Ok(vec![source.tensor(call.generator, call.dtype, &call.shape("shape")?)?])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let x = Tensor64::from_host(&operands[0]);
        Ok(vec![reduced(call, &x, call.size_or("ddof", 0)?)?])
    }

    fn conventions(
        &self,
        call: &Call,
        operands: &[HostTensor],
    ) -> Result<Vec<(Convention, Vec<Answer>)>, SuiteError> {
        let x = Tensor64::from_host(&operands[0]);
        Ok(match call.op {
            Op::Var => {
                let other = usize::from(call.size_or("ddof", 0)? == 0);
                vec![(Convention::VarianceDdof, vec![reduced(call, &x, other)?])]
            }
            Op::Max | Op::Min => {
                let neutral = if call.op == Op::Max { f64::NEG_INFINITY } else { f64::INFINITY };
                let skipped = x.map(|v| if v.is_nan() { neutral } else { v });
                vec![(Convention::NanSkipped, vec![reduced(call, &skipped, 0)?])]
            }
            _ => Vec::new(),
        })
    }

    fn layouts(&self, call: &Call) -> LayoutRule {
        if matches!(call.op, Op::Max | Op::Min) {
            return LayoutRule::Exact;
        }
        LayoutRule::WithinBound("terms are added in the order of memory")
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        call: &Call,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, SuiteError> {
        use mlx_parity_engine::ops;
        let x = &operands[0];
        let axis = axis(call)?.map(|axis| axis as i32);
        let axes =
            axis.as_ref().map_or(ops::Axes::All, |axis| ops::Axes::Of(slice::from_ref(axis)));
        let keep = call.bool_or("keep-dims", false)?;
        let answer = match call.op {
            Op::Sum => ops::sum(x, axes, keep),
            Op::Mean => ops::mean(x, axes, keep),
            Op::Var => ops::var(x, axes, keep, call.size_or("ddof", 0)? as i32),
            Op::Max => ops::max(x, axes, keep),
            Op::Min => ops::min(x, axes, keep),
            Op::Logsumexp => ops::logsumexp(x, axes, keep),
            _ => return Err(unsupported(call, "not a reduction")),
        };
        Ok(vec![answer?])
    }
}

fn axis(call: &Call) -> Result<Option<isize>, SuiteError> {
    let given = call.arguments.contains_key("axis");
    Ok(given.then(|| call.int("axis")).transpose()?.map(|axis| axis as isize))
}

fn reduced(call: &Call, x: &Tensor64, ddof: usize) -> Result<Answer, SuiteError> {
    let axis = axis(call)?;
    let axes = axis.as_ref().map_or(Axes::All, |axis| Axes::Of(slice::from_ref(axis)));
    let keep = call.bool_or("keep-dims", false)?;
    let answer = match call.op {
        Op::Sum => ops::sum(x, axes, keep),
        Op::Mean => ops::mean(x, axes, keep),
        Op::Var => ops::var(x, axes, keep, ddof),
        Op::Max => ops::max(x, axes, keep),
        Op::Min => ops::min(x, axes, keep),
        Op::Logsumexp => ops::logsumexp(x, axes, keep),
        _ => return Err(unsupported(call, "not a reduction")),
    }?;
    if matches!(call.op, Op::Max | Op::Min) {
        return Ok(answer);
    }
    let terms = x.len() / answer.value.len().max(1);
    Ok(summed(answer, call.dtype, terms))
}
