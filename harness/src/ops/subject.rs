//! Who answers a call: MLX through the engine, or a fake for tests of the harness.

use mlx_parity_tensor::{HostTensor, Layout};

use super::{Call, SuiteError};

/// What a subject answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The outputs, evaluated.
    pub outputs: Vec<HostTensor>,
    /// The operands as they are after the call.
    pub operands_after: Vec<HostTensor>,
    /// Time inside the subject, in milliseconds.
    pub engine_ms: f64,
}

/// Answers calls.
pub trait Subject {
    /// The answer on operands that lie in memory as `layout` says. An operand whose shape has no such
    /// layout lies contiguous.
    fn reply(
        &self,
        call: &Call,
        operands: &[HostTensor],
        layout: Layout,
    ) -> Result<Reply, SuiteError>;
}

/// The values that operands in a layout hold, and whether any of them takes it.
pub fn logical(operands: &[HostTensor], layout: Layout) -> (Vec<HostTensor>, bool) {
    let mut taken = false;
    let values = operands.iter().map(|operand| match layout.logical(operand) {
        Some(values) => {
            taken = true;
            values
        }
        None => operand.clone(),
    });
    (values.collect(), taken)
}

#[cfg(feature = "engine")]
pub use mlx::Mlx;

#[cfg(feature = "engine")]
mod mlx {
    use std::time::Instant;

    use mlx_parity_engine::{
        Array, EngineError,
        array::{from_host_as, to_host},
        ops,
    };
    use mlx_parity_tensor::{Dtype, HostTensor, Layout};

    use super::{Reply, Subject};
    use crate::ops::{Call, SuiteError, suite};

    /// MLX, through the engine's ops.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Mlx;

    impl Subject for Mlx {
        fn reply(
            &self,
            call: &Call,
            operands: &[HostTensor],
            layout: Layout,
        ) -> Result<Reply, SuiteError> {
            let started = Instant::now();
            let place = |operand: &HostTensor| {
                let taken = layout.logical(operand).is_some();
                from_host_as(operand, if taken { layout } else { Layout::Contiguous })
            };
            let arrays = operands.iter().map(place).collect::<Result<Vec<Array>, _>>()?;
            poison(operands)?;
            let outputs = suite(call.op).engine(call, &arrays)?;
            ops::eval(&outputs)?;
            let read = |arrays: &[Array]| arrays.iter().map(to_host).collect::<Result<_, _>>();
            let (outputs, operands_after) = (read(&outputs)?, read(&arrays)?);
            let engine_ms = started.elapsed().as_secs_f64() * 1e3;
            Ok(Reply { outputs, operands_after, engine_ms })
        }
    }

    /// Leaves buffers of the operands' sizes, full of NaN, for MLX's allocator to hand out again: an
    /// output that is not fully written then shows.
    fn poison(operands: &[HostTensor]) -> Result<(), EngineError> {
        for operand in operands {
            let count = operand.bytes().len().div_ceil(4);
            let nan = HostTensor::new(Dtype::F32, [count], vec![0xff; 4 * count])?;
            let array = from_host_as(&nan, Layout::Contiguous)?;
            // Held by its own op's output, so that MLX owns the buffer it gives back.
            ops::eval([&ops::add(&array, &array)?])?;
        }
        Ok(())
    }
}
