//! `cross_entropy`: the loss of each row of logits for a class index.
//!
//! Arguments: `rows`, `classes`; `smoothing`; `ignore` (every third row counts nothing: the
//! reference has an index to ignore, `mlx.nn.losses` a weight for each row).

#[cfg(feature = "engine")]
use mlx_parity_engine::{Array, ops};
use mlx_parity_oracles::{Answer, IntTensor, ops::CrossEntropy as Loss, ops::cross_entropy};
use mlx_parity_tensor::HostTensor;

use super::{
    condition::{float32_share, in_float32},
    operand,
};
use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite.
pub struct CrossEntropy;

/// The index that most training code ignores.
const IGNORED: i64 = -100;

/// Targets of the reference: the ignored index where a row's weight is zero.
fn targets(operands: &[HostTensor]) -> Result<IntTensor, SuiteError> {
    let targets = operand::whole(&operands[1])?;
    let Some(weights) = operands.get(2) else { return Ok(targets) };
    let weighted = targets.data().iter().zip(weights.to_f64());
    let data: Vec<i64> = weighted.map(|(t, w)| if w == 0.0 { IGNORED } else { *t }).collect();
    Ok(IntTensor::new(targets.shape(), data)?)
}

impl Suite for CrossEntropy {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let (rows, classes) = (call.size("rows")?, call.size("classes")?);
        let mut operands = vec![operand::main(call, source, &[rows, classes])?];
        operands.push(source.indices(&[rows], classes)?);
        if call.bool_or("ignore", false)? {
            let weights = (0..rows).map(|row| f64::from(u8::from(row % 3 != 1)));
            let weights: Vec<f64> = weights.collect();
            operands.push(HostTensor::from_f64_as(call.dtype, [rows], &weights)?);
        }
        Ok(operands)
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let label_smoothing = call.float_or("smoothing", 0.0)?;
        let loss = Loss { label_smoothing, ignore_index: Some(IGNORED) };
        let answer = cross_entropy(&operand::wide(&operands[0]), &targets(operands)?, loss)?;
        // Logarithm, score and mean are each rounded to the output; the sums over the classes are
        // float32's. That of the exponentials is one or more, and its logarithm moves by as much as
        // it does, whatever its own size.
        let roundings = (call.size("classes")? as f64).sqrt();
        let sums = roundings * float32_share(call.dtype);
        let own = |_, old: f64| if old == 0.0 { 0.0 } else { old + sums };
        Ok(vec![in_float32(answer, call.dtype, roundings, own)])
    }

    #[cfg(feature = "engine")]
    fn engine(&self, call: &Call, operands: &[Array]) -> Result<Vec<Array>, SuiteError> {
        let smoothing = call.float_or("smoothing", 0.0)?;
        let loss = ops::cross_entropy(&operands[0], &operands[1], smoothing)?;
        Ok(vec![match operands.get(2) {
            Some(weights) => ops::multiply(&loss, weights)?,
            None => loss,
        }])
    }
}
