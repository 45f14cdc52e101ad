//! A subject made of the reference itself, right or wrong on purpose: it shows that the judge can
//! pass and that it can fail.

use std::cell::RefCell;

use mlx_parity_oracles::Answer;
use mlx_parity_tensor::{Dtype, HostTensor, Layout, TensorError};

use super::{
    Call, Mutant, SuiteError,
    subject::{Reply, Subject, logical},
    suite,
};

/// The float64 reference rounded once to the output dtype.
#[derive(Debug, Default)]
pub struct Fake {
    mutant: Option<Mutant>,
    previous: RefCell<Vec<HostTensor>>,
}

impl Fake {
    /// A fake with one deliberate fault.
    pub fn wrong(mutant: Mutant) -> Self {
        Self { mutant: Some(mutant), ..Self::default() }
    }
}

impl Subject for Fake {
    fn reply(
        &self,
        call: &Call,
        operands: &[HostTensor],
        layout: Layout,
    ) -> Result<Reply, SuiteError> {
        let (values, taken) = logical(operands, layout);
        let wrong = match self.mutant {
            Some(Mutant::StaleOutput) => {
                let right = right(call, &values)?;
                Some(self.previous.replace(right))
            }
            Some(mutant) => mutant.outputs(call, &values, taken && layout != Layout::Contiguous)?,
            None => None,
        };
        let outputs = match wrong {
            Some(outputs) => outputs,
            None => right(call, &values)?,
        };
        Ok(Reply { outputs, operands_after: values, engine_ms: 0.0 })
    }
}

fn right(call: &Call, operands: &[HostTensor]) -> Result<Vec<HostTensor>, SuiteError> {
    rounded(call, &suite(call.op).reference(call, operands)?)
}

/// Answers as tensors of the call's output dtypes.
pub fn rounded(call: &Call, answers: &[Answer]) -> Result<Vec<HostTensor>, SuiteError> {
    let dtypes = suite(call.op).outputs(call);
    let tensors = dtypes.iter().zip(answers).map(|(dtype, answer)| round(*dtype, answer));
    Ok(tensors.collect::<Result<_, _>>()?)
}

fn round(dtype: Dtype, answer: &Answer) -> Result<HostTensor, TensorError> {
    let value = &answer.value;
    if dtype.is_float() {
        return HostTensor::from_f64_as(dtype, value.shape(), value.data());
    }
    // NaN marks an integer that is not defined; any will do.
    let defined: Vec<f64> =
        value.data().iter().map(|v| if v.is_nan() { 0.0 } else { *v }).collect();
    HostTensor::from_f64_as(dtype, value.shape(), &defined)
}
