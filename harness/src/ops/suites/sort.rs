//! Sorting. Arguments: `shape`, `axis` (−1), `k` of topk, `kth` of argpartition.

use mlx_parity_oracles::{Answer, Op, Tensor64, ops};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::{exact_integers, unsupported};
use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite of sort, argsort, topk and argpartition.
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
            Op::Argpartition => {
                exact_integers(&ops::argpartition(&x, call.int("kth")? as isize, axis)?)
            }
            _ => return Err(unsupported(call, "does not sort")),
        }])
    }

    fn outputs(&self, call: &Call) -> Vec<Dtype> {
        let positions = matches!(call.op, Op::Argsort | Op::Argpartition);
        vec![if positions { Dtype::U32 } else { call.dtype }]
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
            Op::Argpartition => part(x, call.int("kth")? as i32, axis)?,
            _ => return Err(unsupported(call, "does not sort")),
        }])
    }
}

/// The part of `mx.argpartition` that `kth` names, in order of position: within it MLX's is open.
#[cfg(feature = "engine")]
fn part(
    x: &mlx_parity_engine::Array,
    kth: i32,
    axis: i32,
) -> Result<mlx_parity_engine::Array, SuiteError> {
    use mlx_parity_engine::ops::{self, SliceAxis};
    let order = ops::argpartition(x, kth, axis)?;
    let at = if axis < 0 { axis + order.ndim() as i32 } else { axis };
    let width = order.dim(at);
    let range =
        if kth < 0 { SliceAxis::range(width + kth, width) } else { SliceAxis::range(0, kth + 1) };
    let mut axes: Vec<_> = order.shape().iter().map(|&extent| SliceAxis::full(extent)).collect();
    axes[at as usize] = range;
    Ok(ops::sort(&ops::slice(&order, &axes)?, axis)?)
}
