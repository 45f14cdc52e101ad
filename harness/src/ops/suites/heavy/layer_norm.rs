//! `layer_norm`: (x − mean) / √(var + ε) · weight + bias over the last axis.
//!
//! Arguments: `rows`, `n`; `affine` = `"both"`, `"weight"` or `"none"`; `eps`.

#[cfg(feature = "engine")]
use mlx_parity_engine::{Array, ops};
use mlx_parity_oracles::{Answer, ops::layer_norm};
use mlx_parity_tensor::HostTensor;

use super::{condition::in_float32, operand};
use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite.
pub struct LayerNorm;

const EPS: f64 = 1e-5;

impl Suite for LayerNorm {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        let (rows, n) = (call.size("rows")?, call.size("n")?);
        let affine = match call.text_or("affine", "both")? {
            "none" => 0,
            "weight" => 1,
            "both" => 2,
            _ => return Err(call.wrong("affine", "none, weight or both").into()),
        };
        let mut operands = vec![operand::main(call, source, &[rows, n])?];
        for _ in 0..affine {
            operands.push(operand::beside(call, source, &[n])?);
        }
        Ok(operands)
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let x = operand::wide(&operands[0]);
        let [weight, bias] = [1, 2].map(|i| operands.get(i).map(operand::wide));
        let eps = f64::from(call.float_or("eps", EPS)? as f32);
        let found = layer_norm(&x, weight.as_ref(), bias.as_ref(), eps)?;
        // Weighted row and bias are rounded to the output before they are added; the rest is
        // float32.
        let n = x.last_dim();
        let bias = |i: usize| bias.as_ref().map_or(0.0, |b| b.data()[i % n]);
        let values = found.value.clone();
        let own = |i, _| (values.data()[i] - bias(i)).abs() + bias(i).abs();
        Ok(vec![in_float32(found, call.dtype, (n as f64).sqrt(), own)])
    }

    #[cfg(feature = "engine")]
    fn engine(&self, call: &Call, operands: &[Array]) -> Result<Vec<Array>, SuiteError> {
        let eps = call.float_or("eps", EPS)? as f32;
        Ok(vec![ops::layer_norm(&operands[0], operands.get(1), operands.get(2), eps)?])
    }
}
