//! Shapes and operands that several suites make alike.

use mlx_parity_oracles::{IntTensor, Tensor64};
use mlx_parity_tensor::{Dtype, HostTensor};

use crate::ops::{Argument, Call, Generator, Source, SuiteError};

/// Extents written as text, `"2x1x3"`, or as one number; none where the argument is missing or
/// empty.
pub fn extents(call: &Call, name: &str) -> Result<Vec<usize>, SuiteError> {
    if let Some(Argument::Int(_)) = call.arguments.get(name) {
        return Ok(vec![call.size(name)?]);
    }
    let text = call.text_or(name, "")?;
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let parsed = text.split('x').map(str::parse).collect::<Result<_, _>>();
    parsed.map_err(|_| call.wrong(name, "extents as 2x3").into())
}

/// `leading` followed by `last`.
pub fn shape(leading: &[usize], last: &[usize]) -> Vec<usize> {
    [leading, last].concat()
}

/// The generator of an operand beside the one that a case is about: the same where the sum over
/// both is the point, else bell-shaped.
pub fn partner(generator: Generator) -> Generator {
    match generator {
        Generator::Ones | Generator::Integers => generator,
        _ => Generator::Random,
    }
}

/// The operand a case is about, in the call's dtype.
pub fn main(call: &Call, source: &mut Source, shape: &[usize]) -> Result<HostTensor, SuiteError> {
    Ok(source.tensor(call.generator, call.dtype, shape)?)
}

/// An operand beside it, in the call's dtype.
pub fn beside(call: &Call, source: &mut Source, shape: &[usize]) -> Result<HostTensor, SuiteError> {
    Ok(source.tensor(partner(call.generator), call.dtype, shape)?)
}

/// Indices below `size`, repeats included, as MLX takes them.
pub fn indices(
    source: &mut Source,
    shape: &[usize],
    size: usize,
) -> Result<HostTensor, SuiteError> {
    let count: usize = shape.iter().product();
    let values: Vec<u32> = (0..count).map(|_| source.below(size) as u32).collect();
    Ok(HostTensor::from_u32(shape, &values)?)
}

/// The widened values of an operand.
pub fn wide(operand: &HostTensor) -> Tensor64 {
    Tensor64::from_host(operand)
}

/// The whole numbers of an operand.
pub fn whole(operand: &HostTensor) -> Result<IntTensor, SuiteError> {
    Ok(IntTensor::from_host(operand)?)
}

/// The error for a call that names something its op does not have.
pub fn unsupported(call: &Call, what: impl Into<String>) -> SuiteError {
    SuiteError::Unsupported { op: call.op, what: what.into() }
}

/// Values rounded to a dtype.
pub fn rounded(dtype: Dtype, x: &Tensor64) -> Result<HostTensor, SuiteError> {
    Ok(HostTensor::from_f64_as(dtype, x.shape(), x.data())?)
}
