//! What is checked: a function of tensors, its values in float64, and the gradients that somebody claims
//! for it.

use mlx_parity_kernels::KernelError;
use mlx_parity_tensor::{Dtype, HostTensor, Layout, TensorError};

use crate::ops::SuiteError;

/// Dtype and shape of one output, and of its cotangent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// Element type.
    pub dtype: Dtype,
    /// Extents.
    pub shape: Vec<usize>,
}

impl Form {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A function with gradients to check.
pub trait Differentiable {
    /// The operands, by position, that gradients are taken with respect to; all of a floating dtype.
    fn wrt(&self) -> &[usize];

    /// Its outputs.
    fn outputs(&self) -> &[Form];

    /// The outputs in float64, row-major, one behind the other. Operands of [`wrt`](Self::wrt) come as
    /// float64, the others as they are.
    ///
    /// # Errors
    /// [`GradError`] where the operands cannot be answered.
    fn value(&self, operands: &[HostTensor]) -> Result<Vec<f64>, GradError>;

    /// The smallest step that [`value`](Self::value) sees in full, where it reads less than float64.
    fn finest(&self) -> f64 {
        0.0
    }

    /// Σ cotangent · ∂output/∂operand for each operand of [`wrt`](Self::wrt), as the subject computes it on
    /// operands and cotangents that lie in memory as `layout` says.
    ///
    /// # Errors
    /// [`GradError`] where the subject refuses or fails.
    fn gradients(
        &self,
        operands: &[HostTensor],
        cotangents: &[HostTensor],
        layout: Layout,
    ) -> Result<Vec<HostTensor>, GradError>;

    /// The gradient of Σ tangent · [`gradients`](Self::gradients) with respect to the same operands, where
    /// a second order is claimed; `tangents` are one for each operand of [`wrt`](Self::wrt).
    ///
    /// # Errors
    /// [`GradError`] where the subject claims none, refuses or fails.
    fn second(
        &self,
        _operands: &[HostTensor],
        _cotangents: &[HostTensor],
        _tangents: &[HostTensor],
    ) -> Result<Vec<HostTensor>, GradError> {
        Err(GradError::Subject("no second order is claimed".to_owned()))
    }
}

/// A check that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum GradError {
    /// The op or its reference.
    #[error(transparent)]
    Suite(#[from] SuiteError),
    /// The kernel.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A tensor that contradicts itself.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// MLX.
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Engine(#[from] mlx_parity_engine::EngineError),
    /// The subject says something else.
    #[error("{0}")]
    Subject(String),
    /// No step resolves the derivative as finely as the bound asks.
    #[error(
        "operand {operand}: finite differences agree from step to step to {found:.1e} of the gradient, \
         wanted {wanted:.1e}; no step gives a plateau"
    )]
    NoPlateau {
        /// The operand, by position.
        operand: usize,
        /// The least relative difference between neighbouring steps.
        found: f64,
        /// The most that would do.
        wanted: f64,
    },
}
