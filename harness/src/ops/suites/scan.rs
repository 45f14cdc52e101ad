//! Running results. Arguments: `shape`, `axis` (−1), `reverse`, `inclusive` (true).

use mlx_parity_oracles::{
    Answer, Convention, Op, Tensor64,
    ops::{self, Scan},
    tensor::resolve_axis,
};
use mlx_parity_tensor::HostTensor;

use super::heavy::condition::summed;
use crate::ops::{Call, LayoutRule, Source, Suite, SuiteError};

/// The suite of cumsum and cummax.
pub struct Running;

impl Suite for Running {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        Ok(vec![source.tensor(call.generator, call.dtype, &call.shape("shape")?)?])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        Ok(vec![running(call, &Tensor64::from_host(&operands[0]))?])
    }

    fn conventions(
        &self,
        call: &Call,
        operands: &[HostTensor],
    ) -> Result<Vec<(Convention, Vec<Answer>)>, SuiteError> {
        if call.op != Op::Cummax {
            return Ok(Vec::new());
        }
        let x = Tensor64::from_host(&operands[0]);
        let skipped = x.map(|v| if v.is_nan() { f64::NEG_INFINITY } else { v });
        Ok(vec![(Convention::NanSkipped, vec![running(call, &skipped)?])])
    }

    fn layouts(&self, call: &Call) -> LayoutRule {
        if call.op == Op::Cummax {
            return LayoutRule::Exact;
        }
        LayoutRule::WithinBound("a scan may be cut into pieces along the order of memory")
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        call: &Call,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, SuiteError> {
        use mlx_parity_engine::ops;
        let Scan { axis, reverse, inclusive } = scan(call)?;
        let axis = axis as i32;
        let answer = match call.op {
            Op::Cumsum => ops::cumsum(&operands[0], axis, reverse, inclusive),
            _ => ops::cummax(&operands[0], axis, reverse, inclusive),
        };
        Ok(vec![answer?])
    }
}

fn scan(call: &Call) -> Result<Scan, SuiteError> {
    Ok(Scan {
        axis: call.int_or("axis", -1)? as isize,
        reverse: call.bool_or("reverse", false)?,
        inclusive: call.bool_or("inclusive", true)?,
    })
}

fn running(call: &Call, x: &Tensor64) -> Result<Answer, SuiteError> {
    let scan = scan(call)?;
    if call.op == Op::Cummax {
        return Ok(ops::cummax(x, scan)?);
    }
    let terms = x.shape()[resolve_axis("cumsum", scan.axis, x.ndim())?];
    Ok(summed(ops::cumsum(x, scan)?, call.dtype, terms))
}
