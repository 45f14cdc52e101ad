//! Reductions. Arguments: `shape`; `axis`, without which every axis is reduced; `keep-dims`; `ddof` of
//! the variance.

use std::slice;

use mlx_parity_oracles::{
    Answer, Convention, Op, Tensor64,
    ops::{self, Axes},
};
use mlx_parity_tensor::HostTensor;

use super::{
    heavy::condition::{float32_share, in_float32, summed},
    unsupported,
};
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
    Ok(match call.op {
        Op::Logsumexp => rounded_sum_of_powers(answer, call, terms as f64)?,
        Op::Var => with_rounded_mean(summed(answer, call.dtype, terms), x, axes)?,
        _ => summed(answer, call.dtype, terms),
    })
}

/// The logarithm turns a relative error of the sum, which is at least one, into an absolute one. Over
/// the last axis the sum is kept in float32; over others the op is composed in the operands' dtype.
fn rounded_sum_of_powers(answer: Answer, call: &Call, terms: f64) -> Result<Answer, SuiteError> {
    let last = axis(call)? == Some(-1);
    let share = if last { float32_share(call.dtype) } else { 1.0 };
    let own = |_, old: f64| old + share * terms.sqrt();
    Ok(in_float32(answer, call.dtype, terms.sqrt(), own))
}

/// A mean off by δ adds δ² to the variance, whatever the spread. In float32 δ is a unit of the mean's
/// condition for each √n terms; δ² weighs as much as one unit at δ²/ε.
fn with_rounded_mean(mut answer: Answer, x: &Tensor64, axes: Axes) -> Result<Answer, SuiteError> {
    let magnitudes = ops::mean(x, axes, false)?.condition;
    let terms = x.len() as f64 / magnitudes.len().max(1) as f64;
    let wider = answer.condition.data_mut().iter_mut().zip(magnitudes.data());
    wider.for_each(|(own, mean)| *own += terms * mean * mean * f64::from(f32::EPSILON));
    Ok(answer)
}
