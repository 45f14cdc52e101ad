//! Elementwise choice. Arguments: the shapes `condition`, `a` and `b`.

use mlx_parity_oracles::{Answer, BoolTensor, Tensor64, ops};
use mlx_parity_tensor::{Dtype, HostTensor};

use crate::ops::{Call, Generator, Source, Suite, SuiteError};

/// The suite of where.
pub struct Select;

impl Suite for Select {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        Ok(vec![
            source.tensor(Generator::Codes, Dtype::Bool, &call.shape("condition")?)?,
            source.tensor(call.generator, call.dtype, &call.shape("a")?)?,
            source.tensor(call.generator, call.dtype, &call.shape("b")?)?,
        ])
    }

    fn reference(&self, _call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let condition = BoolTensor::from_host(&operands[0])?;
        let (a, b) = (Tensor64::from_host(&operands[1]), Tensor64::from_host(&operands[2]));
        Ok(vec![ops::select(&condition, &a, &b)?])
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        _call: &Call,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, SuiteError> {
        Ok(vec![mlx_parity_engine::ops::select(&operands[0], &operands[1], &operands[2])?])
    }
}
