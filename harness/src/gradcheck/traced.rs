//! Functions that the engine computes and MLX differentiates.

use std::{cell::Cell, time::Instant};

use mlx_parity_engine::{
    Array, EngineError,
    array::{from_host_as, to_host},
    ops as engine_ops, vjp,
};
use mlx_parity_oracles::ops::Op;
use mlx_parity_tensor::{Dtype, HostTensor, Layout};

use super::{Composite, Differentiable, Form, GradError};
use crate::ops::{Call, Source, SuiteError, suite};

type Forward<'a> = Box<dyn Fn(&[Array]) -> Result<Vec<Array>, SuiteError> + 'a>;
type Value<'a> = Box<dyn Fn(&[HostTensor]) -> Result<Vec<f64>, GradError> + 'a>;

/// A function of arrays, with its values in float64 from elsewhere or from MLX itself.
pub struct Traced<'a> {
    wrt: Vec<usize>,
    outputs: Vec<Form>,
    forward: Forward<'a>,
    /// Where absent MLX computes in float64.
    value: Option<Value<'a>>,
    spent_ms: Cell<f64>,
}

/// Operands and the function of them.
pub struct Question<'a> {
    /// The operands.
    pub operands: Vec<HostTensor>,
    /// The function.
    pub function: Traced<'a>,
}

impl<'a> Question<'a> {
    /// A call of an op, those operands in `positive` drawn away from zero.
    ///
    /// # Errors
    /// [`GradError`] for arguments that the op does not take.
    pub fn op(call: &'a Call, wrt: &[usize], positive: &[usize]) -> Result<Self, GradError> {
        let suite = suite(call.op);
        let mut operands = suite.operands(call, &mut Source::new(call.seed()))?;
        for &at in positive {
            let own = &operands[at];
            let moved: Vec<f64> = own.to_f64().into_iter().map(|x| x.abs() + 0.25).collect();
            operands[at] = HostTensor::from_f64_as(own.dtype(), own.shape(), &moved)?;
        }
        let value = move |operands: &[HostTensor]| values(call, operands);
        let answers = suite.reference(call, &operands)?;
        let forms = suite.outputs(call).into_iter().zip(&answers);
        let outputs = forms
            .map(|(dtype, answer)| Form { dtype, shape: answer.value.shape().to_vec() })
            .collect();
        let function = Traced {
            wrt: wrt.to_vec(),
            outputs,
            forward: Box::new(move |arrays| suite.engine(call, arrays)),
            value: (call.dtype != Dtype::F64).then(|| Box::new(value) as Value<'a>),
            spent_ms: Cell::new(0.0),
        };
        Ok(Self { operands, function })
    }

    /// A piece of a model.
    ///
    /// # Errors
    /// [`GradError`] for a dtype that it does not take.
    pub fn composite(
        composite: &'a dyn Composite,
        dtype: Dtype,
        seed: u64,
        wrt: &[usize],
    ) -> Result<Self, GradError> {
        let value = move |operands: &[HostTensor]| composite.value(operands);
        let function = Traced {
            wrt: wrt.to_vec(),
            outputs: composite.outputs(dtype),
            forward: Box::new(move |arrays| Ok(composite.engine(arrays)?)),
            value: (dtype != Dtype::F64).then(|| Box::new(value) as Value<'a>),
            spent_ms: Cell::new(0.0),
        };
        let operands = composite.operands(dtype, &mut Source::new(seed))?;
        Ok(Self { operands, function })
    }
}

/// ref64's outputs, one behind the other. A cast rounds; what is differentiated is the identity.
fn values(call: &Call, operands: &[HostTensor]) -> Result<Vec<f64>, GradError> {
    if call.op == Op::Cast {
        return Ok(operands[0].to_f64());
    }
    // Whatever the op rounds to its dtype on the way is no part of the function.
    let wide = Call { dtype: Dtype::F64, ..call.clone() };
    let answers = suite(call.op).reference(&wide, operands)?;
    Ok(answers.into_iter().flat_map(|answer| answer.value.into_data()).collect())
}

impl Traced<'_> {
    /// Time spent in MLX, in milliseconds.
    pub fn spent_ms(&self) -> f64 {
        self.spent_ms.get()
    }

    fn timed<T>(&self, work: impl FnOnce() -> Result<T, GradError>) -> Result<T, GradError> {
        let started = Instant::now();
        let done = work();
        self.spent_ms.set(self.spent_ms.get() + started.elapsed().as_secs_f64() * 1e3);
        done
    }

    /// The outputs where the operands of `wrt` are the given arrays.
    fn outputs_at(
        &self,
        constants: &[Array],
        primals: &[Array],
    ) -> Result<Vec<Array>, EngineError> {
        let mut arrays = constants.to_vec();
        for (&at, primal) in self.wrt.iter().zip(primals) {
            arrays[at] = primal.clone();
        }
        (self.forward)(&arrays).map_err(|error| match error {
            SuiteError::Engine(error) => error,
            other => EngineError::Op { op: "forward", message: other.to_string() },
        })
    }

    fn primals(&self, arrays: &[Array]) -> Vec<Array> {
        self.wrt.iter().map(|&at| arrays[at].clone()).collect()
    }
}

fn placed(tensors: &[HostTensor], layout: Layout) -> Result<Vec<Array>, EngineError> {
    let place = |tensor: &HostTensor| {
        let taken = layout.logical(tensor).is_some();
        from_host_as(tensor, if taken { layout } else { Layout::Contiguous })
    };
    tensors.iter().map(place).collect()
}

fn read(arrays: &[Array]) -> Result<Vec<HostTensor>, GradError> {
    engine_ops::eval(arrays)?;
    Ok(arrays.iter().map(to_host).collect::<Result<_, _>>()?)
}

impl Differentiable for Traced<'_> {
    fn wrt(&self) -> &[usize] {
        &self.wrt
    }

    fn outputs(&self) -> &[Form] {
        &self.outputs
    }

    fn value(&self, operands: &[HostTensor]) -> Result<Vec<f64>, GradError> {
        if let Some(value) = &self.value {
            return value(operands);
        }
        self.timed(|| {
            let arrays = placed(operands, Layout::Contiguous)?;
            let outputs = read(&(self.forward)(&arrays)?)?;
            if let Some(narrow) = outputs.iter().find(|output| output.dtype() != Dtype::F64) {
                let found = narrow.dtype();
                return Err(GradError::Subject(format!("float64 operands give {found} outputs")));
            }
            Ok(outputs.iter().flat_map(HostTensor::to_f64).collect())
        })
    }

    fn gradients(
        &self,
        operands: &[HostTensor],
        cotangents: &[HostTensor],
        layout: Layout,
    ) -> Result<Vec<HostTensor>, GradError> {
        self.timed(|| {
            let (arrays, cotangents) = (placed(operands, layout)?, placed(cotangents, layout)?);
            let forward = |primals: &[Array]| self.outputs_at(&arrays, primals);
            read(&vjp(forward, &self.primals(&arrays), &cotangents)?.gradients)
        })
    }

    fn second(
        &self,
        operands: &[HostTensor],
        cotangents: &[HostTensor],
        tangents: &[HostTensor],
    ) -> Result<Vec<HostTensor>, GradError> {
        self.timed(|| {
            let [arrays, cotangents, tangents] =
                [operands, cotangents, tangents].map(|of| placed(of, Layout::Contiguous));
            let (arrays, cotangents, tangents) = (arrays?, cotangents?, tangents?);
            let forward = |primals: &[Array]| self.outputs_at(&arrays, primals);
            let first = |primals: &[Array]| Ok(vjp(forward, primals, &cotangents)?.gradients);
            read(&vjp(first, &self.primals(&arrays), &tangents)?.gradients)
        })
    }
}
