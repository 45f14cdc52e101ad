//! Comparisons and booleans.

use mlx_rs::Array;

use crate::error::{EngineError, op};

macro_rules! comparisons {
    ($($name:ident by $method:ident: $meaning:literal),+ $(,)?) => {$(
        #[doc = concat!("`mx.", stringify!($name), "`: ", $meaning, ".")]
        ///
        /// # Errors
        /// [`EngineError::Op`] where MLX throws, as for shapes that do not broadcast.
        pub fn $name(a: &Array, b: &Array) -> Result<Array, EngineError> {
            op(stringify!($name), a.$method(b))
        }
    )+};
}

comparisons! {
    equal by eq: "whether a is b",
    less by lt: "whether a < b",
    less_equal by le: "whether a <= b",
    greater_equal by ge: "whether a >= b",
    logical_and by logical_and: "whether both hold",
    logical_or by logical_or: "whether either holds",
}

/// `mx.logical_not`: whether a does not hold.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn logical_not(a: &Array) -> Result<Array, EngineError> {
    op("logical_not", a.logical_not())
}

/// `mx.any` along one axis: whether any holds.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for an axis that does not exist.
pub fn any(a: &Array, axis: i32) -> Result<Array, EngineError> {
    op("any", a.any_axes(&[axis], false))
}

/// `mx.all` over all axes: whether all hold.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws.
pub fn all(a: &Array) -> Result<Array, EngineError> {
    op("all", a.all(false))
}
