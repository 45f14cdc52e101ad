//! Positions of extremes. Arguments: `shape`, `axis` (−1), `keep-dims`.

use mlx_parity_oracles::{Answer, Convention, Op, OracleError, Tensor64, ops};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::exact_integers;
use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite of argmax and argmin.
pub struct Argreduce;

impl Suite for Argreduce {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        Ok(vec![source.tensor(call.generator, call.dtype, &call.shape("shape")?)?])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        Ok(vec![position(call, &Tensor64::from_host(&operands[0]))?])
    }

    fn outputs(&self, _call: &Call) -> Vec<Dtype> {
        vec![Dtype::U32]
    }

    fn conventions(
        &self,
        call: &Call,
        operands: &[HostTensor],
    ) -> Result<Vec<(Convention, Vec<Answer>)>, SuiteError> {
        let neutral = if call.op == Op::Argmax { f64::NEG_INFINITY } else { f64::INFINITY };
        let x = Tensor64::from_host(&operands[0]);
        let skipped = x.map(|v| if v.is_nan() { neutral } else { v });
        Ok(vec![(Convention::NanSkipped, vec![position(call, &skipped)?])])
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        call: &Call,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, SuiteError> {
        use mlx_parity_engine::ops;
        let (axis, keep) = (call.int_or("axis", -1)? as i32, call.bool_or("keep-dims", false)?);
        let answer = match call.op {
            Op::Argmax => ops::argmax(&operands[0], axis, keep),
            _ => ops::argmin(&operands[0], axis, keep),
        };
        Ok(vec![answer?])
    }
}

fn position(call: &Call, x: &Tensor64) -> Result<Answer, SuiteError> {
    let (axis, keep) = (call.int_or("axis", -1)? as isize, call.bool_or("keep-dims", false)?);
    let found: Result<_, OracleError> = match call.op {
        Op::Argmax => ops::argmax(x, axis, keep),
        _ => ops::argmin(x, axis, keep),
    };
    Ok(exact_integers(&found?))
}
