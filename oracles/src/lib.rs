//! ref64: float64 references for every op of the engine, and whole-model forwards, with no MLX.
//!
//! Every function takes values already widened to `f64` (exact for all narrower dtypes) and returns
//! the value of the real function, good to a few units of `f64` relative to its
//! [`Answer::condition`]. Nothing here rounds to a narrower dtype unless a function says so, so a
//! reference never shares the accumulator faults it is there to find.
//!
//! [`ops::OPS`] is the one list of ops. [`conventions`] names the known wrong conventions, each of
//! which is a parameter of the op it concerns.

pub mod answer;
pub mod conventions;
pub mod error;
pub mod format;
pub mod interop;
pub mod models;
pub mod ops;
pub mod sum;
pub mod tensor;

pub use answer::Answer;
pub use conventions::Convention;
pub use error::OracleError;
pub use ops::{OPS, Op};
pub use tensor::{BoolTensor, IntTensor, PackedTensor, Tensor, Tensor64};
