//! One file for each op or tight family.

mod argreduce;
mod binary;
mod cast;
mod concat;
mod fp8;
mod heavy;
mod reduce;
mod scan;
mod scatter;
mod select;
mod slice;
mod softmax;
mod sort;
mod take;
mod unary;

use mlx_parity_oracles::{Answer, IntTensor, ops::Op};
use mlx_parity_tensor::HostTensor;

use super::{Call, Source, Suite, SuiteError};

/// The suite of an op.
pub(super) fn suite(op: Op) -> &'static dyn Suite {
    match op {
        Op::Exp
        | Op::Log
        | Op::Log1p
        | Op::Expm1
        | Op::Sqrt
        | Op::Rsqrt
        | Op::Sin
        | Op::Cos
        | Op::Tanh
        | Op::Sigmoid
        | Op::Erf
        | Op::Silu
        | Op::Gelu
        | Op::GeluTanh
        | Op::GeluFast
        | Op::Relu2
        | Op::Softplus => &unary::Unary,
        Op::Add | Op::Sub | Op::Mul | Op::Div | Op::FloorDivide | Op::Remainder | Op::Power => {
            &binary::Binary
        }
        Op::Sum | Op::Mean | Op::Var | Op::Max | Op::Min | Op::Logsumexp => &reduce::Reduce,
        Op::Argmax | Op::Argmin => &argreduce::Argreduce,
        Op::Cumsum | Op::Cummax => &scan::Running,
        Op::Softmax | Op::SoftmaxPrecise => &softmax::Softmax,
        Op::Sort | Op::Argsort | Op::Topk => &sort::Sort,
        Op::Where => &select::Select,
        Op::Take | Op::TakeAlongAxis => &take::Take,
        Op::ScatterAdd => &scatter::ScatterAdd,
        Op::Concat => &concat::Concat,
        Op::Slice | Op::SliceUpdate => &slice::Slice,
        Op::Cast => &cast::Cast,
        Op::ToFp8 | Op::FromFp8 => &fp8::Fp8,
        _ => heavy::suite(op).unwrap_or(&Missing),
    }
}

/// Refuses every call.
struct Missing;

impl Suite for Missing {
    fn operands(&self, call: &Call, _: &mut Source) -> Result<Vec<HostTensor>, SuiteError> {
        Err(unsupported(call, "has no suite"))
    }

    fn reference(&self, call: &Call, _: &[HostTensor]) -> Result<Vec<Answer>, SuiteError> {
        Err(unsupported(call, "has no suite"))
    }

    #[cfg(feature = "engine")]
    fn engine(
        &self,
        call: &Call,
        _: &[mlx_parity_engine::Array],
    ) -> Result<Vec<mlx_parity_engine::Array>, SuiteError> {
        Err(unsupported(call, "has no suite"))
    }
}

/// Integers, to be met exactly.
fn exact_integers(values: &IntTensor) -> Answer {
    Answer::exact(values.map(|v| v as f64))
}

fn unsupported(call: &Call, what: &str) -> SuiteError {
    SuiteError::Unsupported { op: call.op, what: what.to_owned() }
}
