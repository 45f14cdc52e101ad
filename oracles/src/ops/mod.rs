//! The op table, and one module per op.

mod argreduce;
mod attention;
mod binary;
mod cast;
mod concat;
mod conv1d;
mod cross_entropy;
mod division;
mod fp8;
mod gather_mm;
mod gelu;
mod group_norm;
mod layer_norm;
mod logsumexp;
mod matmul;
pub mod quantize;
mod quantized_attention;
mod quantized_matmul;
mod reduce;
mod rms_norm;
pub mod rope;
mod scan;
mod scatter;
mod select;
mod sight;
mod slice;
mod softmax;
mod sort;
mod take;
mod unary;

pub use argreduce::{argmax, argmin};
pub use attention::{Attention, CausalAlignment, DeadRows, Mask, sdpa};
pub use binary::{add, binary, div, mul, power, sub};
pub use cast::{cast, cast_int};
pub use concat::concat;
pub use conv1d::{Conv1d, conv1d};
pub use cross_entropy::{CrossEntropy, cross_entropy};
pub use division::{Rounding, floor_divide, floor_divide_int, remainder, remainder_int};
pub use fp8::{from_fp8, to_fp8};
pub use gather_mm::{gather_mm, gather_qmm};
pub use gelu::{Gelu, gelu};
pub use group_norm::{ChannelOrder, GroupNorm, group_norm};
pub use layer_norm::layer_norm;
pub use logsumexp::logsumexp;
pub use matmul::{addmm, matmul};
pub(crate) use matmul::{times_rows, value_only};
pub use quantize::{
    Arithmetic, Mode, QuantizeRule, Quantized, ScaleRule, Scales, dequantize, quantize,
};
pub use quantized_attention::quantized_sdpa;
pub use quantized_matmul::quantized_matmul;
pub use reduce::{Axes, max, mean, min, sum, var};
pub use rms_norm::{NormWeight, rms_norm};
pub use rope::{Offsets, Rope, RopeScaling, RopeTable, rope};
pub use scan::{Scan, cummax, cumsum};
pub use scatter::{put_along_axis, scatter_add};
pub use select::select;
pub use sight::Sight;
pub use slice::{SliceAxis, slice, slice_update};
pub use softmax::{Precision, softmax};
pub use sort::{argpartition, argsort, sort, topk};
pub use take::{take, take_along_axis};
pub use unary::{
    cos, erf, exp, expm1, log, log1p, relu2, rsqrt, sigmoid, silu, sin, softplus, sqrt, tanh, unary,
};

/// What an op does to shapes, and so which generators and views suit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// One operand, element by element.
    Unary,
    /// Two operands broadcast together, element by element.
    Binary,
    /// Axes reduced away.
    Reduce,
    /// Running results along an axis.
    Scan,
    /// Each row along an axis mapped to a row.
    Row,
    /// Elements moved and selected by position or index.
    Index,
    /// Products of matrices.
    Matmul,
    /// Packed codes with scales.
    Quantized,
    /// Normalization by statistics of a row or group.
    Norm,
    /// Position encoding and attention.
    Attention,
    /// Convolution.
    Conv,
    /// Training losses.
    Loss,
    /// One dtype to another.
    Cast,
}

/// One line of the op table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpInfo {
    /// The op.
    pub op: Op,
    /// Its name in cases, rows and tolerances.
    pub name: &'static str,
    /// What it does to shapes.
    pub family: Family,
    /// Tensor operands without the optional ones.
    pub arity: usize,
    /// Whether the engine has a gradient for it with respect to a floating operand.
    pub differentiable: bool,
}

macro_rules! op_table {
    ($($op:ident $name:literal $family:ident $arity:literal $differentiable:literal),+ $(,)?) => {
        /// Every op of the engine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Op {
            $(#[doc = concat!("`", $name, "`")] $op,)+
        }

        /// The one list of ops; suites, tolerances, coverage and reports walk it.
        pub const OPS: &[OpInfo] = &[$(OpInfo {
            op: Op::$op,
            name: $name,
            family: Family::$family,
            arity: $arity,
            differentiable: $differentiable,
        },)+];
    };
}

op_table! {
    Exp "exp" Unary 1 true,
    Log "log" Unary 1 true,
    Log1p "log1p" Unary 1 true,
    Expm1 "expm1" Unary 1 true,
    Sqrt "sqrt" Unary 1 true,
    Rsqrt "rsqrt" Unary 1 true,
    Sin "sin" Unary 1 true,
    Cos "cos" Unary 1 true,
    Tanh "tanh" Unary 1 true,
    Sigmoid "sigmoid" Unary 1 true,
    Erf "erf" Unary 1 true,
    Silu "silu" Unary 1 true,
    Gelu "gelu" Unary 1 true,
    GeluTanh "gelu_tanh" Unary 1 true,
    GeluFast "gelu_fast" Unary 1 true,
    Relu2 "relu2" Unary 1 true,
    Softplus "softplus" Unary 1 true,
    Add "add" Binary 2 true,
    Sub "sub" Binary 2 true,
    Mul "mul" Binary 2 true,
    Div "div" Binary 2 true,
    FloorDivide "floor_divide" Binary 2 false,
    Remainder "remainder" Binary 2 true,
    Power "power" Binary 2 true,
    Sum "sum" Reduce 1 true,
    Mean "mean" Reduce 1 true,
    Var "var" Reduce 1 true,
    Max "max" Reduce 1 true,
    Min "min" Reduce 1 true,
    Logsumexp "logsumexp" Reduce 1 true,
    Argmax "argmax" Reduce 1 false,
    Argmin "argmin" Reduce 1 false,
    Cumsum "cumsum" Scan 1 true,
    Cummax "cummax" Scan 1 true,
    Softmax "softmax" Row 1 true,
    SoftmaxPrecise "softmax_precise" Row 1 true,
    Sort "sort" Row 1 true,
    Argsort "argsort" Row 1 false,
    Topk "topk" Row 1 true,
    Argpartition "argpartition" Row 1 false,
    Where "where" Index 3 true,
    Take "take" Index 2 true,
    TakeAlongAxis "take_along_axis" Index 2 true,
    ScatterAdd "scatter_add" Index 3 true,
    PutAlongAxis "put_along_axis" Index 3 true,
    Concat "concat" Index 2 true,
    Slice "slice" Index 1 true,
    SliceUpdate "slice_update" Index 2 true,
    Matmul "matmul" Matmul 2 true,
    Addmm "addmm" Matmul 3 true,
    GatherMm "gather_mm" Matmul 4 true,
    Quantize "quantize" Quantized 1 false,
    Dequantize "dequantize" Quantized 2 false,
    QuantizedMatmul "quantized_matmul" Quantized 3 true,
    GatherQmm "gather_qmm" Quantized 5 true,
    RmsNorm "rms_norm" Norm 1 true,
    LayerNorm "layer_norm" Norm 1 true,
    GroupNorm "group_norm" Norm 1 true,
    Rope "rope" Attention 1 true,
    Sdpa "sdpa" Attention 3 true,
    QuantizedSdpa "quantized_sdpa" Attention 5 true,
    Conv1d "conv1d" Conv 2 true,
    CrossEntropy "cross_entropy" Loss 2 true,
    Cast "cast" Cast 1 true,
    ToFp8 "to_fp8" Cast 1 false,
    FromFp8 "from_fp8" Cast 1 false,
}

impl Op {
    /// The op's line of [`OPS`].
    pub fn info(self) -> &'static OpInfo {
        &OPS[self as usize]
    }

    /// The op's name in cases, rows and tolerances.
    pub fn name(self) -> &'static str {
        self.info().name
    }

    /// The op of a name.
    pub fn parse(name: &str) -> Option<Self> {
        OPS.iter().find(|info| info.name == name).map(|info| info.op)
    }
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_op_is_on_its_own_line_under_its_own_name() {
        for (i, info) in OPS.iter().enumerate() {
            assert_eq!(info.op as usize, i);
            assert_eq!(Op::parse(info.name), Some(info.op));
            assert_eq!(info.op.info(), info);
        }
        assert_eq!(Op::parse("no_such_op"), None);
    }
}
