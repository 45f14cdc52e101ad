//! One value put at indices. Arguments: `shape`; `axis` (0); `picks`, how many along it.

use mlx_parity_oracles::{Answer, IntTensor, Tensor64, ops, tensor::resolve_axis};
use mlx_parity_tensor::HostTensor;

use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite of `put_along_axis`.
pub struct PutAlongAxis;

impl Suite for PutAlongAxis {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let shape = call.shape("shape")?;
        let axis = resolve_axis("put_along_axis", call.int_or("axis", 0)? as isize, shape.len())?;
        let mut wanted = shape.clone();
        wanted[axis] = call.size("picks")?;
        Ok(vec![
            source.tensor(call.generator, call.dtype, &shape)?,
            source.indices(&wanted, shape[axis])?,
            source.tensor(call.generator, call.dtype, &vec![1; shape.len()])?,
        ])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let (x, value) = (Tensor64::from_host(&operands[0]), operands[2].to_f64()[0]);
        let indices = IntTensor::from_host(&operands[1])?;
        Ok(vec![ops::put_along_axis(&x, &indices, value, call.int_or("axis", 0)? as isize)?])
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        call: &Call,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, SuiteError> {
        let axis = call.int_or("axis", 0)? as i32;
        let [x, indices, value] = operands else {
            return Err(super::unsupported(call, "wants three operands"));
        };
        Ok(vec![mlx_parity_engine::ops::put_along_axis(x, indices, value, axis)?])
    }
}
