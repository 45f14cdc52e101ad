//! One dtype to another. Arguments: `shape`, `to`.

use mlx_parity_oracles::{Answer, IntTensor, Tensor64, ops};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::exact_integers;
use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite of cast.
pub struct Cast;

impl Suite for Cast {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        Ok(vec![source.tensor(call.generator, call.dtype, &call.shape("shape")?)?])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let to = target(call)?;
        if !call.dtype.is_float() && !to.is_float() {
            let x = IntTensor::from_host(&operands[0])?;
            return Ok(vec![exact_integers(&ops::cast_int(&x, to)?)]);
        }
        Ok(vec![Answer::exact(ops::cast(&Tensor64::from_host(&operands[0]), to)?)])
    }

    fn outputs(&self, call: &Call) -> Vec<Dtype> {
        target(call).into_iter().collect()
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        call: &Call,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, SuiteError> {
        use mlx_parity_engine::{array::mlx_dtype, ops};
        Ok(vec![ops::cast(&operands[0], mlx_dtype(target(call)?)?)?])
    }
}

fn target(call: &Call) -> Result<Dtype, SuiteError> {
    Ok(Dtype::parse(call.text_or("to", "")?).map_err(|_| call.wrong("to", "a dtype"))?)
}
