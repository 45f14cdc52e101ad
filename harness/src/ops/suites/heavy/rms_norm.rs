//! `rms_norm`: x / √(mean x² + ε) · weight over the last axis.
//!
//! Arguments: `rows`, `n`; `weight` = `"plain"`, `"one-plus"` (added to one in the call's dtype
//! first, as Gemma's layers do) or `"none"`; `eps`.

#[cfg(feature = "engine")]
use mlx_parity_engine::{Array, ops};
use mlx_parity_oracles::ops::{NormWeight, rms_norm};
use mlx_parity_oracles::{Answer, Convention};
use mlx_parity_tensor::HostTensor;

use super::{condition::in_float32, operand};
use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite.
pub struct RmsNorm;

/// As most models of today write it.
const EPS: f64 = 1e-5;

fn answer(call: &Call, operands: &[HostTensor], weight: &str) -> Result<Answer, SuiteError> {
    let (x, w) = (operand::wide(&operands[0]), operands.get(1).map(operand::wide));
    let weight = match (weight, &w) {
        ("none", _) => NormWeight::None,
        ("plain", Some(w)) => NormWeight::Plain(w),
        ("one-plus", Some(w)) => NormWeight::OnePlus(w),
        _ => return Err(call.wrong("weight", "none, plain or one-plus").into()),
    };
    let found = rms_norm(&x, weight, f64::from(call.float_or("eps", EPS)? as f32))?;
    // The root halves what √n roundings of the sum of squares do.
    let roundings = 0.5 * (x.last_dim() as f64).sqrt();
    Ok(in_float32(found, call.dtype, roundings, |_, condition| condition))
}

impl Suite for RmsNorm {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let (rows, n) = (call.size("rows")?, call.size("n")?);
        let mut operands = vec![operand::main(call, source, &[rows, n])?];
        if call.text_or("weight", "plain")? != "none" {
            operands.push(operand::beside(call, source, &[n])?);
        }
        Ok(operands)
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        Ok(vec![answer(call, operands, call.text_or("weight", "plain")?)?])
    }

    fn conventions(
        &self,
        call: &Call,
        operands: &[HostTensor],
    ) -> Result<Vec<(Convention, Vec<Answer>)>, SuiteError> {
        let (convention, other) = match call.text_or("weight", "plain")? {
            "plain" => (Convention::NormWithOne, "one-plus"),
            "one-plus" => (Convention::NormWithoutOne, "plain"),
            _ => return Ok(Vec::new()),
        };
        Ok(vec![(convention, vec![answer(call, operands, other)?])])
    }

    #[cfg(feature = "engine")]
    fn engine(&self, call: &Call, operands: &[Array]) -> Result<Vec<Array>, SuiteError> {
        let eps = call.float_or("eps", EPS)? as f32;
        let weight = match (call.text_or("weight", "plain")?, operands.get(1)) {
            ("one-plus", Some(weight)) => {
                Some(ops::add(&ops::scalar(1.0, weight.dtype())?, weight)?)
            }
            (_, weight) => weight.cloned(),
        };
        Ok(vec![ops::rms_norm(&operands[0], weight.as_ref(), eps)?])
    }
}
