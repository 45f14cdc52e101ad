//! What a suite says of its op: operands, reference, outputs, conventions, layouts, and how the
//! engine is asked.

use mlx_parity_oracles::{Answer, Convention, OracleError, ops::Op};
use mlx_parity_tensor::{Dtype, HostTensor, TensorError};

use super::{ArgumentError, Call, Source, suites};
use crate::compare::error::LengthMismatch;

/// How the answer on operands in another layout relates to that on contiguous ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutRule {
    /// The same bits.
    Exact,
    /// Within the op's bound of the reference, because a layout legitimately takes another path;
    /// the text says which.
    WithinBound(&'static str),
    /// Not asked: the op takes only contiguous operands.
    Contiguous,
}

/// One op, or a family whose ops differ only in the function.
pub trait Suite: Sync {
    /// The operands of a call, from its generator and arguments.
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError>;

    /// The float64 reference, one answer for each output.
    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError>;

    /// Dtype of each output.
    fn outputs(&self, call: &Call) -> Vec<Dtype> {
        vec![call.dtype]
    }

    /// The known wrong conventions and what each would answer.
    fn conventions(
        &self,
        _call: &Call,
        _operands: &[HostTensor],
    ) -> Result<Vec<(Convention, Vec<Answer>)>, SuiteError> {
        Ok(Vec::new())
    }

    /// What other layouts of the operands may do to the answer.
    fn layouts(&self, _call: &Call) -> LayoutRule {
        LayoutRule::Exact
    }

    /// Asks the engine. The arrays hold the operands, perhaps in another layout.
    #[cfg(feature = "engine")]
    fn engine(
        &self,
        call: &Call,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, SuiteError>;
}

/// The suite of an op.
pub fn suite(op: Op) -> &'static dyn Suite {
    suites::suite(op)
}

/// A call that could not be made or answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SuiteError {
    /// An argument of the case.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// The reference refuses the operands.
    #[error("ref64: {0}")]
    Oracle(#[from] OracleError),
    /// Operands that contradict themselves.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// The engine refuses or fails.
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Engine(#[from] mlx_parity_engine::EngineError),
    /// An output and a reference of different lengths.
    #[error(transparent)]
    Length(#[from] LengthMismatch),
    /// A dtype or generator that the op does not have.
    #[error("{op}: {what}")]
    Unsupported {
        /// The op.
        op: Op,
        /// What it does not have.
        what: String,
    },
}

impl SuiteError {
    /// Whether the engine refused, rather than the question being wrong.
    pub fn is_engine(&self) -> bool {
        #[cfg(feature = "engine")]
        if matches!(self, Self::Engine(_)) {
            return true;
        }
        false
    }
}
