//! The composed ops that each kernel would replace, on host tensors: what the engine computes with its
//! levers off.

mod attention;
mod mlp;

use mlx_parity_kernels::{Call, KernelError, View};
use mlx_parity_tensor::HostTensor;
use mlx_rs::Array;

use crate::array::{from_host, to_host};
use crate::error::EngineError;

type Baseline = fn(&Lent<'_>) -> Result<Vec<Array>, EngineError>;

/// The one list of baselines, as `mlx_parity_kernels::CANDIDATES` is that of kernels.
const BASELINES: &[(&str, Baseline)] = &[
    ("fused_swiglu", mlp::swiglu),
    ("fused_swiglu_f32", mlp::swiglu),
    ("fused_mlp", mlp::mlp),
    ("fused_geglu", mlp::geglu),
    ("fused_decode_sdpa", attention::decode_sdpa),
    ("flash_attention", attention::flash),
];

/// A call's operands as arrays.
struct Lent<'a> {
    kernel: &'static str,
    call: &'a Call<'a>,
}

/// The results of a kernel's baseline for a call, by MLX, in the dtypes MLX gives them.
///
/// # Errors
/// [`EngineError::Lever`] for a kernel without a baseline, [`EngineError::Kernel`] for an operand that is
/// missing, [`EngineError::Op`] where MLX throws.
pub fn baseline(id: &str, call: &Call<'_>) -> Result<Vec<HostTensor>, EngineError> {
    let (kernel, compose) = BASELINES.iter().find(|(known, _)| *known == id).ok_or_else(|| {
        let wanted = "a kernel with a baseline in engine/src/kernels/baseline".to_owned();
        EngineError::Lever { found: id.to_owned(), wanted }
    })?;
    compose(&Lent { kernel, call })?.iter().map(to_host).collect()
}

impl Lent<'_> {
    fn array(&self, name: &str) -> Result<Array, EngineError> {
        copied(self.kernel, name, &self.call.operand(self.kernel, name)?)
    }

    fn maybe(&self, name: &str) -> Result<Option<Array>, EngineError> {
        self.call.find(name).map(|view| copied(self.kernel, name, &view)).transpose()
    }

    fn number(&self, name: &str) -> Result<f64, EngineError> {
        Ok(self.call.param(self.kernel, name)?)
    }

    fn integer(&self, name: &str) -> Result<i32, EngineError> {
        Ok(self.number(name)? as i32)
    }

    /// A number, or zero where the call has none of the name.
    fn integer_or_zero(&self, name: &str) -> i32 {
        self.call.params.get(name).unwrap_or(0.0) as i32
    }
}

fn copied(kernel: &'static str, name: &str, view: &View<'_>) -> Result<Array, EngineError> {
    let host = view.to_host().map_err(|error| KernelError::Malformed {
        kernel,
        what: format!("operand `{name}`: {error}"),
    })?;
    from_host(&host)
}
