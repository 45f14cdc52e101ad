//! Joining. Arguments: the shapes `a` and `b`, `axis` (0).

use mlx_parity_oracles::{Answer, Tensor64, ops};
use mlx_parity_tensor::HostTensor;

use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite of concat.
pub struct Concat;

impl Suite for Concat {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        Ok(vec![
            source.tensor(call.generator, call.dtype, &call.shape("a")?)?,
            source.tensor(call.generator, call.dtype, &call.shape("b")?)?,
        ])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let (a, b) = (Tensor64::from_host(&operands[0]), Tensor64::from_host(&operands[1]));
        Ok(vec![ops::concat(&[&a, &b], call.int_or("axis", 0)? as isize)?])
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        call: &Call,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, SuiteError> {
        let parts: Vec<_> = operands.iter().collect();
        Ok(vec![mlx_parity_engine::ops::concatenate(&parts, call.int_or("axis", 0)? as i32)?])
    }
}
