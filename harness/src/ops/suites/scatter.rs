//! Scattered addition. Arguments: `shape`; `axis` (0); `indices`, their number; `distinct`, how many
//! different places they name, all where it is not given.

use mlx_parity_oracles::{Answer, IntTensor, Tensor64, ops, tensor::resolve_axis};
use mlx_parity_tensor::HostTensor;

use crate::ops::{Call, LayoutRule, Source, Suite, SuiteError};

/// The suite of `scatter_add`.
pub struct ScatterAdd;

impl Suite for ScatterAdd {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let shape = call.shape("shape")?;
        let axis = resolve_axis("scatter_add", call.int_or("axis", 0)? as isize, shape.len())?;
        let count = call.size("indices")?;
        let places = call.size_or("distinct", shape[axis])?;
        let mut updates = shape.clone();
        updates[axis] = count;
        Ok(vec![
            source.tensor(call.generator, call.dtype, &shape)?,
            source.indices(&[count], places)?,
            source.tensor(call.generator, call.dtype, &updates)?,
        ])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let (x, updates) = (Tensor64::from_host(&operands[0]), Tensor64::from_host(&operands[2]));
        let indices = IntTensor::from_host(&operands[1])?;
        Ok(vec![ops::scatter_add(&x, &indices, &updates, call.int_or("axis", 0)? as isize)?])
    }

    fn layouts(&self, _call: &Call) -> LayoutRule {
        LayoutRule::Exact
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        call: &Call,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, SuiteError> {
        let axis = call.int_or("axis", 0)? as i32;
        let [x, indices, updates] = operands else {
            return Err(super::unsupported(call, "wants three operands"));
        };
        Ok(vec![mlx_parity_engine::ops::scatter_add(x, indices, updates, axis)?])
    }
}
