//! The composed ops that each kernel would replace, on host tensors: what the engine computes with its
//! levers off.

mod attention;
mod head;
mod mlp;

use mlx_parity_kernels::{Call, KernelError, Params, View};
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
    ("fused_geglu_vjp", mlp::geglu_vjp),
    ("fused_qkv_rope", attention::qkv_rope),
    ("fused_decode_sdpa", attention::decode_sdpa),
    ("flash_attention", attention::flash),
    ("flash_attention_vjp", attention::flash_vjp),
    ("flash_cce", head::cce),
    ("flash_cce_vjp", head::cce_vjp),
];

/// A call's operands as arrays, and its numbers.
pub(super) struct Lent<'a> {
    kernel: &'static str,
    operands: &'a [(&'static str, Array)],
    params: &'a Params,
}

/// The results of a kernel's baseline for a call, by MLX, in the dtypes MLX gives them.
///
/// # Errors
/// [`EngineError::Lever`] for a kernel without a baseline, [`EngineError::Kernel`] for an operand that is
/// missing, [`EngineError::Op`] where MLX throws.
pub fn baseline(id: &str, call: &Call<'_>) -> Result<Vec<HostTensor>, EngineError> {
    let (kernel, _) = find(id)?;
    let operands = copied(kernel, call)?;
    compose(id, &operands, &call.params)?.iter().map(to_host).collect()
}

fn find(id: &str) -> Result<(&'static str, Baseline), EngineError> {
    let found = BASELINES.iter().find(|(known, _)| *known == id).copied();
    found.ok_or_else(|| {
        let wanted = "a kernel with a baseline in engine/src/kernels/baseline".to_owned();
        EngineError::Lever { found: id.to_owned(), wanted }
    })
}

/// The composed ops of a kernel on arrays.
pub(super) fn compose(
    id: &str,
    operands: &[(&'static str, Array)],
    params: &Params,
) -> Result<Vec<Array>, EngineError> {
    let (kernel, compose) = find(id)?;
    compose(&Lent { kernel, operands, params })
}

/// A call's operands, copied into arrays.
pub(super) fn copied(
    kernel: &'static str,
    call: &Call<'_>,
) -> Result<Vec<(&'static str, Array)>, EngineError> {
    let copy = |(name, view): &(&'static str, View<'_>)| {
        let host = view.to_host().map_err(|error| KernelError::Malformed {
            kernel,
            what: format!("operand `{name}`: {error}"),
        })?;
        Ok((*name, from_host(&host)?))
    };
    call.operands.iter().map(copy).collect()
}

impl Lent<'_> {
    fn array(&self, name: &str) -> Result<Array, EngineError> {
        let missing =
            || KernelError::Malformed { kernel: self.kernel, what: format!("no operand `{name}`") };
        Ok(self.maybe(name)?.ok_or_else(missing)?)
    }

    #[expect(clippy::unnecessary_wraps, reason = "read beside `array` by every baseline")]
    fn maybe(&self, name: &str) -> Result<Option<Array>, EngineError> {
        let found = self.operands.iter().find(|(known, _)| *known == name);
        Ok(found.map(|(_, array)| array.clone()))
    }

    fn number(&self, name: &str) -> Result<f64, EngineError> {
        let missing =
            || KernelError::Malformed { kernel: self.kernel, what: format!("no number `{name}`") };
        Ok(self.params.get(name).ok_or_else(missing)?)
    }

    fn integer(&self, name: &str) -> Result<i32, EngineError> {
        Ok(self.number(name)? as i32)
    }

    /// A number, or zero where the call has none of the name.
    fn integer_or_zero(&self, name: &str) -> i32 {
        self.params.get(name).unwrap_or(0.0) as i32
    }
}
