//! What can be wrong with a question put to ref64.

use std::path::{Path, PathBuf};

/// A question that has no answer: shapes, axes, indices or parameters that do not fit, or a model
/// that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OracleError {
    /// Operands whose shapes do not fit each other or the op.
    #[error("{op}: found shape {found}, wanted {wanted}")]
    Shape {
        /// The op asked for.
        op: &'static str,
        /// The shapes given.
        found: String,
        /// What would have fitted.
        wanted: String,
    },
    /// An axis outside the tensor.
    #[error("{op}: axis {axis} is outside a tensor of {ndim} dimensions")]
    Axis {
        /// The op asked for.
        op: &'static str,
        /// The axis given; negative counts from the end.
        axis: isize,
        /// Dimensions of the tensor.
        ndim: usize,
    },
    /// An index outside its axis.
    #[error("{op}: index {index} is outside an axis of length {size}")]
    Index {
        /// The op asked for.
        op: &'static str,
        /// The index given; negative counts from the end.
        index: i64,
        /// Length of the axis.
        size: usize,
    },
    /// A parameter outside the op's domain.
    #[error("{op}: found {found}, wanted {wanted}")]
    Parameter {
        /// The op asked for.
        op: &'static str,
        /// The parameter given.
        found: String,
        /// What the op takes.
        wanted: String,
    },
    /// A file of a model folder that cannot be read or understood.
    #[error("{}: {message}", file.display())]
    Model {
        /// The file.
        file: PathBuf,
        /// What was found and what was wanted.
        message: String,
    },
    /// A tensor file or buffer that does not hold what it says.
    #[error(transparent)]
    Tensor(#[from] mlx_parity_tensor::TensorError),
}

impl OracleError {
    pub(crate) fn shape(op: &'static str, found: &[usize], wanted: impl Into<String>) -> Self {
        Self::Shape { op, found: format!("{found:?}"), wanted: wanted.into() }
    }

    pub(crate) fn model(file: &Path, message: impl Into<String>) -> Self {
        Self::Model { file: file.to_owned(), message: message.into() }
    }

    pub(crate) fn parameter(op: &'static str, found: impl std::fmt::Display, wanted: &str) -> Self {
        Self::Parameter { op, found: found.to_string(), wanted: wanted.to_owned() }
    }
}
