//! Element by element functions of one operand, in its dtype.

use mlx_rs::Array;

use crate::error::{EngineError, op};

macro_rules! unary {
    ($($name:ident: $meaning:literal),+ $(,)?) => {$(
        #[doc = concat!("`mx.", stringify!($name), "`: ", $meaning, ".")]
        ///
        /// # Errors
        /// [`EngineError::Op`] where MLX throws.
        pub fn $name(a: &Array) -> Result<Array, EngineError> {
            op(stringify!($name), mlx_rs::ops::$name(a))
        }
    )+};
}

unary! {
    exp: "e to the a",
    log: "the natural logarithm",
    log1p: "the natural logarithm of 1 + a",
    expm1: "e to the a, less 1",
    sqrt: "the square root",
    rsqrt: "1 over the square root",
    sin: "the sine of radians",
    cos: "the cosine of radians",
    tanh: "the hyperbolic tangent",
    sigmoid: "1 / (1 + exp(-a))",
    erf: "the error function",
    square: "a times a",
    abs: "a without its sign",
    negative: "a with its sign flipped",
}
