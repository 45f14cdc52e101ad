//! How decode steps are run, and whether this machine can.

use std::cell::Cell;
use std::rc::Rc;

use mlx_rs::Array;
use mlx_rs::error::Exception;
use mlx_rs::transforms::compile::compile;

use crate::error::{EngineError, op};

/// How a [`Decoder`](crate::Decoder) runs the steps behind a prompt. Prompts always run eagerly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DecodeMode {
    /// Op by op.
    #[default]
    Eager,
    /// Segment by segment, each traced once by `mx.compile` and simplified (common subexpressions are
    /// computed once) but not fused: every kernel is one of the eager step's on the same operands, so
    /// logits and caches have its bits.
    Compiled,
    /// As [`DecodeMode::Compiled`], with element-wise ops fused into kernels that MLX generates. Those
    /// spell scalars in 7 digits, and on the CPU some functions otherwise than the eager kernels, so
    /// results are close to the eager step's, not equal (README, "Compiled decode").
    Fused,
}

impl DecodeMode {
    /// Refuses a compiled mode where MLX would run every call of a compiled function eagerly, which it
    /// does without a word: on a CPU without `g++`, and under `MLX_DISABLE_COMPILE`.
    ///
    /// # Errors
    /// [`EngineError::NotCompiled`]; [`EngineError::Op`] where MLX throws.
    pub(crate) fn check_available(self) -> Result<(), EngineError> {
        if self == Self::Eager || compiles()? {
            return Ok(());
        }
        let why = "mlx runs compiled functions eagerly here: its CPU backend finds no `g++`, or \
                   MLX_DISABLE_COMPILE is set";
        Err(EngineError::NotCompiled { message: why.to_owned() })
    }
}

/// Whether the second call of a compiled function goes without the function.
fn compiles() -> Result<bool, EngineError> {
    let calls = Rc::new(Cell::new(0));
    let counted = Rc::clone(&calls);
    let negated = move |inputs: &[Array]| -> Result<Vec<Array>, Exception> {
        counted.set(counted.get() + 1);
        Ok(vec![inputs[0].negative()?])
    };
    let mut compiled = compile(negated, false);
    let one = [Array::from_int(1)];
    for _ in 0..2 {
        op("compile", compiled(&one))?;
    }
    Ok(calls.get() == 1)
}
