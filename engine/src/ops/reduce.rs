//! Axes reduced to one value.

use mlx_rs::Array;

use crate::error::{EngineError, op};

/// Which axes are reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axes<'a> {
    /// All of them.
    All,
    /// These; negative ones count from the end.
    Of(&'a [i32]),
}

impl Axes<'_> {
    fn of(self, a: &Array) -> Vec<i32> {
        match self {
            Self::All => (0..a.ndim() as i32).collect(),
            Self::Of(axes) => axes.to_vec(),
        }
    }
}

macro_rules! reductions {
    ($($name:ident by $method:ident: $meaning:literal),+ $(,)?) => {$(
        #[doc = concat!("`mx.", stringify!($name), "`: ", $meaning, ". `keep_dims` leaves reduced axes with extent 1.")]
        ///
        /// # Errors
        /// [`EngineError::Op`] where MLX throws, as for an axis that does not exist.
        pub fn $name(a: &Array, axes: Axes, keep_dims: bool) -> Result<Array, EngineError> {
            op(stringify!($name), a.$method(&axes.of(a), keep_dims))
        }
    )+};
}

reductions! {
    sum by sum_axes: "the sum, in a's dtype for floats",
    mean by mean_axes: "the sum over the number of elements",
    max by max_axes: "the largest element",
    min by min_axes: "the smallest element",
    logsumexp by logsumexp_axes: "the logarithm of the sum of exponentials",
}

/// `mx.var`: the mean squared distance from the mean, over the number of elements less `ddof`.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for an axis that does not exist.
pub fn var(a: &Array, axes: Axes, keep_dims: bool, ddof: i32) -> Result<Array, EngineError> {
    op("var", a.var_axes(&axes.of(a), keep_dims, ddof))
}
