//! `max(x, 0)` and `clip(x, −16, 2)` of whole numbers from −8 to 8. Each has one edge among them, so that the one is
//! convex and the other concave.

use mlx_parity_tensor::{Dtype, HostTensor};

use super::Composite;
use crate::{
    gradcheck::{Form, GradError},
    ops::{Generator, Source},
};

const SHAPE: [usize; 2] = [4, 12];

fn drawn(dtype: Dtype, source: &mut Source) -> Result<Vec<HostTensor>, GradError> {
    Ok(vec![source.tensor(Generator::Integers, dtype, &SHAPE)?])
}

fn form(dtype: Dtype) -> Vec<Form> {
    vec![Form { dtype, shape: SHAPE.to_vec() }]
}

/// `mx.maximum(x, 0)`.
pub(super) struct Relu;

impl Composite for Relu {
    fn operands(&self, dtype: Dtype, source: &mut Source) -> Result<Vec<HostTensor>, GradError> {
        drawn(dtype, source)
    }

    fn outputs(&self, dtype: Dtype) -> Vec<Form> {
        form(dtype)
    }

    fn value(&self, operands: &[HostTensor]) -> Result<Vec<f64>, GradError> {
        Ok(operands[0].to_f64().into_iter().map(|x| x.max(0.0)).collect())
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, mlx_parity_engine::EngineError> {
        use mlx_parity_engine::ops;
        let x = &operands[0];
        Ok(vec![ops::maximum(x, &ops::scalar(0.0, x.dtype())?)?])
    }
}

/// `mx.clip(x, -16, 2)`.
pub(super) struct Clip;

impl Composite for Clip {
    fn operands(&self, dtype: Dtype, source: &mut Source) -> Result<Vec<HostTensor>, GradError> {
        drawn(dtype, source)
    }

    fn outputs(&self, dtype: Dtype) -> Vec<Form> {
        form(dtype)
    }

    fn value(&self, operands: &[HostTensor]) -> Result<Vec<f64>, GradError> {
        Ok(operands[0].to_f64().into_iter().map(|x| x.clamp(-16.0, 2.0)).collect())
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, mlx_parity_engine::EngineError> {
        use mlx_parity_engine::ops;
        let x = &operands[0];
        let edge = |at: f64| ops::scalar(at, x.dtype());
        Ok(vec![ops::clip(x, &edge(-16.0)?, &edge(2.0)?)?])
    }
}
