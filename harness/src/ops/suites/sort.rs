//! Sorting. Arguments: `shape`, `axis` (−1), `k` of topk.

use mlx_parity_oracles::{Answer, Op, Tensor64, ops};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::{exact_integers, unsupported};
use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite of sort, argsort and topk.
pub struct Sort;

impl Suite for Sort {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        Ok(vec![source.tensor(call.generator, call.dtype, &call.shape("shape")?)?])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let x = Tensor64::from_host(&operands[0]);
        let axis = call.int_or("axis", -1)? as isize;
        Ok(vec![match call.op {
            Op::Sort => ops::sort(&x, axis)?,
            Op::Argsort => exact_integers(&ops::argsort(&x, axis)?),
            Op::Topk => ops::topk(&x, call.size("k")?, axis)?,
            _ => return Err(unsupported(call, "does not sort")),
        }])
    }

    fn outputs(&self, call: &Call) -> Vec<Dtype> {
        vec![if call.op == Op::Argsort { Dtype::U32 } else { call.dtype }]
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        call: &Call,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, SuiteError> {
        use mlx_parity_engine::ops;
        let (x, axis) = (&operands[0], call.int_or("axis", -1)? as i32);
        Ok(vec![match call.op {
            Op::Sort => ops::sort(x, axis)?,
            Op::Argsort => ops::argsort(x, axis)?,
            // Their order among themselves is open.
            Op::Topk => ops::sort(&ops::topk(x, call.size("k")? as i32, axis)?, axis)?,
            _ => return Err(unsupported(call, "does not sort")),
        }])
    }
}
