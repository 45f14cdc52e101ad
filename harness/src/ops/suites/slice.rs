//! Strided slices, read and written. Arguments: `shape`; `axis` (−1); `start`, `stop` and `step` along
//! it, the other axes whole.

use mlx_parity_oracles::{
    Answer, Op, Tensor64,
    ops::{self, SliceAxis},
    tensor::resolve_axis,
};
use mlx_parity_tensor::HostTensor;

use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite of slice and `slice_update`.
pub struct Slice;

impl Suite for Slice {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let x = source.tensor(call.generator, call.dtype, &call.shape("shape")?)?;
        if call.op == Op::Slice {
            return Ok(vec![x]);
        }
        let places = ops::slice(&Tensor64::from_host(&x), &axes(call)?)?;
        let update = source.tensor(call.generator, call.dtype, places.value.shape())?;
        Ok(vec![x, update])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let (x, axes) = (Tensor64::from_host(&operands[0]), axes(call)?);
        Ok(vec![match operands.get(1) {
            None => ops::slice(&x, &axes)?,
            Some(update) => ops::slice_update(&x, &Tensor64::from_host(update), &axes)?,
        }])
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        call: &Call,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, SuiteError> {
        use mlx_parity_engine::ops;
        let axes: Vec<_> = axes(call)?.into_iter().map(engine_axis).collect();
        Ok(vec![match operands.get(1) {
            None => ops::slice(&operands[0], &axes)?,
            Some(update) => ops::slice_update(&operands[0], update, &axes)?,
        }])
    }
}

#[cfg(feature = "engine")]
fn engine_axis(axis: SliceAxis) -> mlx_parity_engine::ops::SliceAxis {
    let SliceAxis { start, stop, step } = axis;
    mlx_parity_engine::ops::SliceAxis { start: start as i32, stop: stop as i32, step: step as i32 }
}

fn axes(call: &Call) -> Result<Vec<SliceAxis>, SuiteError> {
    let shape = call.shape("shape")?;
    let mut axes: Vec<_> = shape.iter().map(|&n| SliceAxis::full(n)).collect();
    let axis = resolve_axis("slice", call.int_or("axis", -1)? as isize, shape.len())?;
    axes[axis] = SliceAxis {
        start: call.int("start")?,
        stop: call.int("stop")?,
        step: call.int_or("step", 1)?,
    };
    Ok(axes)
}
