//! How `kernel.metal` is launched.

use mlx_parity_tensor::Dtype;

use crate::call::{Call, Operand};
use crate::error::KernelError;
use crate::launch::{count, integer, limits, literal, operand, threads};
use crate::spec::{Metal, MetalLaunch, source};

use super::ID;

/// The Metal source.
pub const METAL: Metal = Metal {
    header: source!("flash_attention/header.metal"),
    body: source!("flash_attention/kernel.metal"),
    inputs: &["queries", "keys", "values", "limits"],
    outputs: &["out", "logsumexp"],
    row_contiguous: false,
    atomic_outputs: false,
    launch,
};

/// Floats of a staged tile: 16 KiB of threadgroup memory.
const STAGED: usize = 4096;

fn launch(call: &Call<'_>) -> Result<MetalLaunch, KernelError> {
    let (queries, [batch, heads, length, dim]) = operand(call, ID, "queries")?;
    for name in ["keys", "values"] {
        operand::<4>(call, ID, name)?;
    }
    let tile = tile(ID, dim, STAGED)?;
    let dtype = queries.data.dtype();
    let mut defines = vec![("SCALE", literal(call.param(ID, "scale")?))];
    let mut outputs = vec![(dtype, vec![batch, heads, length, dim])];
    if count(call, "want_lse", 0) != 0 {
        defines.push(("WANT_LSE", "1".to_owned()));
        outputs.push((Dtype::F32, vec![batch, heads, length]));
    }
    Ok(MetalLaunch {
        defines,
        ints: vec![("D", integer(ID, dim)?), ("TILE", integer(ID, tile)?)],
        dtypes: vec![("T", dtype)],
        numbers: vec![visible(ID, call)?],
        outputs,
        grid: [
            threads(ID, length.div_ceil(tile), 4 * tile)?,
            threads(ID, heads, 1)?,
            threads(ID, batch, 1)?,
        ],
        group: [threads(ID, 1, 4 * tile)?, 1, 1],
        init_value: None,
    })
}

/// Rows of a tile: 8, 16 or 32, as `floats` of staging allow.
///
/// # Errors
/// [`KernelError::Unsupported`] for heads that are no multiple of 8, or do not fit.
pub fn tile(kernel: &'static str, dim: usize, floats: usize) -> Result<usize, KernelError> {
    let fits = |tile: &usize| dim > 0 && dim.is_multiple_of(8) && tile * dim <= floats;
    [32, 16, 8].into_iter().find(fits).ok_or_else(|| KernelError::Unsupported {
        kernel,
        found: format!("a head of {dim}"),
        wanted: format!("a multiple of 8 to {}", floats / 8),
    })
}

/// Whether the call is causal, and its window: the input `limits` of forward and backward.
///
/// # Errors
/// As [`integer`].
pub fn visible(kernel: &'static str, call: &Call<'_>) -> Result<Operand, KernelError> {
    limits(kernel, [count(call, "causal", 0), count(call, "window", 0)])
}
