//! Selection by index. Arguments: `shape`; `axis` (0); `indices`, a shape, or for `take_along_axis`
//! `picks`, a number; `negative`, to count half of the indices from the end.

use mlx_parity_oracles::{Answer, IntTensor, Op, Tensor64, ops, tensor::resolve_axis};
use mlx_parity_tensor::HostTensor;

use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite of take and `take_along_axis`.
pub struct Take;

impl Suite for Take {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let shape = call.shape("shape")?;
        let axis = resolve_axis("take", call.int_or("axis", 0)? as isize, shape.len())?;
        let x = source.tensor(call.generator, call.dtype, &shape)?;
        let wanted = if call.op == Op::Take {
            call.shape("indices")?
        } else {
            let mut wanted = shape.clone();
            wanted[axis] = call.size("picks")?;
            wanted
        };
        let mut indices = source.indices(&wanted, shape[axis])?;
        if call.bool_or("negative", false)? {
            indices = half_from_the_end(&indices, shape[axis])?;
        }
        Ok(vec![x, indices])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let (x, indices) = (Tensor64::from_host(&operands[0]), IntTensor::from_host(&operands[1])?);
        let axis = call.int_or("axis", 0)? as isize;
        Ok(vec![match call.op {
            Op::Take => ops::take(&x, &indices, axis)?,
            _ => ops::take_along_axis(&x, &indices, axis)?,
        }])
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        call: &Call,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, SuiteError> {
        use mlx_parity_engine::ops;
        let axis = call.int_or("axis", 0)? as i32;
        Ok(vec![match call.op {
            Op::Take => ops::take(&operands[0], &operands[1], axis)?,
            _ => ops::take_along_axis(&operands[0], &operands[1], axis)?,
        }])
    }
}

fn half_from_the_end(indices: &HostTensor, size: usize) -> Result<HostTensor, SuiteError> {
    let from_end = |(i, v): (usize, &f64)| if i % 2 == 0 { *v } else { *v - size as f64 };
    let values: Vec<f64> = indices.to_f64().iter().enumerate().map(from_end).collect();
    Ok(HostTensor::from_f64_as(indices.dtype(), indices.shape(), &values)?)
}
