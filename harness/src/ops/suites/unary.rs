//! Elementwise functions of one operand. Argument: `shape`.

use mlx_parity_oracles::{
    Answer, Convention, Tensor64,
    ops::{Gelu, gelu, unary},
};
use mlx_parity_tensor::HostTensor;

use super::unsupported;
use crate::ops::{Call, Source, Suite, SuiteError};

/// The suite of every op of the family.
pub struct Unary;

impl Suite for Unary {
    fn operands(&self, call: &Call, source: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        Ok(vec![source.tensor(call.generator, call.dtype, &call.shape("shape")?)?])
    }

    fn reference(&self, call: &Call, operands: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        let answer = unary(call.op, &Tensor64::from_host(&operands[0]));
        Ok(vec![answer.ok_or_else(|| unsupported(call, "not an op of one operand"))?])
    }

    fn conventions(
        &self,
        call: &Call,
        operands: &[HostTensor],
    ) -> Result<Vec<(Convention, Vec<Answer>)>, SuiteError> {
        let x = Tensor64::from_host(&operands[0]);
        let kind = |convention| match convention {
            Convention::GeluTanh => Some(Gelu::Tanh),
            Convention::GeluFast => Some(Gelu::Fast),
            Convention::GeluExact => Some(Gelu::Exact),
            _ => None,
        };
        let answers = Convention::of(call.op).filter_map(|convention| {
            kind(convention).map(|kind| (convention, vec![gelu(&x, kind)]))
        });
        Ok(answers.collect())
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        call: &Call,
        operands: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, SuiteError> {
        use mlx_parity_engine::ops;
        use mlx_parity_oracles::Op;
        let x = &operands[0];
        let answer = match call.op {
            Op::Exp => ops::exp(x),
            Op::Log => ops::log(x),
            Op::Log1p => ops::log1p(x),
            Op::Expm1 => ops::expm1(x),
            Op::Sqrt => ops::sqrt(x),
            Op::Rsqrt => ops::rsqrt(x),
            Op::Sin => ops::sin(x),
            Op::Cos => ops::cos(x),
            Op::Tanh => ops::tanh(x),
            Op::Sigmoid => ops::sigmoid(x),
            Op::Erf => ops::erf(x),
            Op::Silu => ops::silu(x),
            Op::Gelu => ops::gelu(x),
            Op::GeluTanh => ops::gelu_approx(x),
            Op::GeluFast => ops::gelu_fast_approx(x),
            Op::Relu2 => ops::relu2(x),
            Op::Softplus => ops::softplus(x),
            _ => return Err(unsupported(call, "not an op of one operand")),
        };
        Ok(vec![answer?])
    }
}
