//! Every kernel of `kernels/`.

mod attention;
mod elementwise;
pub mod matmul;
mod quantized;
mod reduce;
mod rope;
mod scatter;

use mlx_parity_msl_emu::Output;
use mlx_parity_tensor::Dtype;

use super::Subject;

/// The one list of kernels.
pub const SUBJECTS: [Subject; 15] = [
    elementwise::SWIGLU,
    elementwise::STRIDED_SUM,
    reduce::ROW_SUM_SIMD,
    reduce::ROW_SUM_THREADGROUP,
    reduce::SOFTMAX,
    reduce::RMS_NORM,
    reduce::ARGMAX,
    reduce::PREFIX_SCAN,
    matmul::TILED,
    matmul::SIMDGROUP,
    quantized::QMV4,
    attention::DECODE,
    rope::ROPE,
    scatter::HISTOGRAM,
    scatter::SCATTER_ADD,
];

/// The kernel of a name.
pub fn named(name: &str) -> &'static Subject {
    SUBJECTS.iter().find(|subject| subject.name == name).expect("a kernel of that name")
}

/// One output.
fn output(dtype: Dtype, shape: &[usize]) -> Vec<Output> {
    vec![Output { dtype, shape: shape.to_vec() }]
}
