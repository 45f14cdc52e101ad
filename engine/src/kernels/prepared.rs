//! A call whose operands are arrays already: what composed ops and kernels are timed on.

use mlx_parity_kernels::{Call, How, Params, candidate};
use mlx_parity_tensor::HostTensor;
use mlx_rs::Array;

use super::baseline;
use super::launch::run;
use crate::array::to_host;
use crate::error::EngineError;
use crate::ops;

/// A call of a kernel with its operands in MLX's memory.
#[derive(Debug)]
pub struct Prepared {
    kernel: &'static str,
    operands: Vec<(&'static str, Array)>,
    params: Params,
}

/// Evaluated results.
#[derive(Debug)]
pub struct Results(Vec<Array>);

impl Results {
    /// Copies on the host.
    ///
    /// # Errors
    /// [`EngineError::Op`] where MLX throws.
    pub fn to_host(&self) -> Result<Vec<HostTensor>, EngineError> {
        self.0.iter().map(to_host).collect()
    }
}

impl Prepared {
    /// Copies a call's operands into arrays.
    ///
    /// # Errors
    /// [`EngineError::Lever`] for a kernel that does not exist, [`EngineError::Kernel`] for an operand that is no
    /// array, [`EngineError::Op`] where MLX throws.
    pub fn new(id: &str, call: &Call<'_>) -> Result<Self, EngineError> {
        let candidate = candidate(id).ok_or_else(|| EngineError::Lever {
            found: id.to_owned(),
            wanted: "a kernel that exists".to_owned(),
        })?;
        let kernel = candidate.spec().id;
        let operands = baseline::copied(kernel, call)?;
        ops::eval(operands.iter().map(|(_, array)| array))?;
        Ok(Self { kernel, operands, params: call.params.clone() })
    }

    /// The composed ops, evaluated.
    ///
    /// # Errors
    /// As [`baseline`](super::baseline).
    pub fn composed(&self) -> Result<Results, EngineError> {
        let results = baseline::compose(self.kernel, &self.operands, &self.params)?;
        ops::eval(&results)?;
        Ok(Results(results))
    }

    /// The kernel, as models run it.
    ///
    /// # Errors
    /// As [`run`].
    pub fn fused(&self, how: How) -> Result<Results, EngineError> {
        let operands: Vec<_> = self.operands.iter().map(|(name, array)| (*name, array)).collect();
        let results = run(self.kernel, &operands, self.params.clone(), how)?;
        ops::eval(&results)?;
        Ok(Results(results))
    }
}
