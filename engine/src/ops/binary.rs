//! Element by element functions of two operands that broadcast together. Different dtypes promote as
//! in `mlx.core`.

use mlx_rs::Array;

use crate::error::{EngineError, op};

macro_rules! binary {
    ($($name:ident: $meaning:literal),+ $(,)?) => {$(
        #[doc = concat!("`mx.", stringify!($name), "`: ", $meaning, ".")]
        ///
        /// # Errors
        /// [`EngineError::Op`] where MLX throws, as for shapes that do not broadcast.
        pub fn $name(a: &Array, b: &Array) -> Result<Array, EngineError> {
            op(stringify!($name), mlx_rs::ops::$name(a, b))
        }
    )+};
}

binary! {
    add: "a + b",
    subtract: "a - b",
    multiply: "a times b",
    divide: "a / b, a float also for integers",
    floor_divide: "the quotient as MLX rounds it, an integer for integers",
    remainder: "what is left of a by b, with the sign of b",
    power: "a to the b",
    maximum: "the larger; NaN where either is NaN",
    minimum: "the smaller; NaN where either is NaN",
    logaddexp: "log(exp(a) + exp(b))",
}

/// `mx.greater`: whether a > b, in booleans.
///
/// # Errors
/// [`EngineError::Op`] where MLX throws, as for shapes that do not broadcast.
pub fn greater(a: &Array, b: &Array) -> Result<Array, EngineError> {
    op("greater", mlx_rs::ops::gt(a, b))
}
