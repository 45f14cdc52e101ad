//! One file for each op or tight family.

mod argreduce;
mod binary;
mod cast;
mod concat;
mod fp8;
mod heavy;
mod put;
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

use super::{Call, Suite, SuiteError};

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
        Op::Sort | Op::Argsort | Op::Topk | Op::Argpartition => &sort::Sort,
        Op::Where => &select::Select,
        Op::Take | Op::TakeAlongAxis => &take::Take,
        Op::ScatterAdd => &scatter::ScatterAdd,
        Op::PutAlongAxis => &put::PutAlongAxis,
        Op::Concat => &concat::Concat,
        Op::Slice | Op::SliceUpdate => &slice::Slice,
        Op::Cast => &cast::Cast,
        Op::ToFp8 | Op::FromFp8 => &fp8::Fp8,
        Op::Matmul => &heavy::matmul::Matmul,
        Op::Addmm => &heavy::addmm::Addmm,
        Op::GatherMm => &heavy::gather_mm::GatherMm,
        Op::Quantize => &heavy::quantize::Quantize,
        Op::Dequantize => &heavy::dequantize::Dequantize,
        Op::QuantizedMatmul => &heavy::quantized_matmul::QuantizedMatmul,
        Op::GatherQmm => &heavy::gather_qmm::GatherQmm,
        Op::RmsNorm => &heavy::rms_norm::RmsNorm,
        Op::LayerNorm => &heavy::layer_norm::LayerNorm,
        Op::GroupNorm => &heavy::group_norm::GroupNorm,
        Op::Rope => &heavy::rope::Rope,
        Op::Sdpa => &heavy::sdpa::Sdpa,
        Op::QuantizedSdpa => &heavy::quantized_sdpa::QuantizedSdpa,
        Op::Conv1d => &heavy::conv1d::Conv1d,
        Op::CrossEntropy => &heavy::cross_entropy::CrossEntropy,
    }
}

/// Integers, to be met exactly.
fn exact_integers(values: &IntTensor) -> Answer {
    Answer::exact(values.map(|v| v as f64))
}

fn unsupported(call: &Call, what: &str) -> SuiteError {
    SuiteError::Unsupported { op: call.op, what: what.to_owned() }
}
