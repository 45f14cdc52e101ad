//! How `kernel.metal` is launched: one launch, whose first groups own queries and whose others own keys.

use crate::call::Call;
use crate::error::KernelError;
use crate::flash_attention::metal::{tile, visible};
use crate::launch::{integer, literal, operand, threads};
use crate::spec::{Metal, MetalLaunch, source};

use super::ID;

/// The Metal source.
pub const METAL: Metal = Metal {
    header: source!("flash_attention/header.metal"),
    body: source!("flash_attention_vjp/kernel.metal"),
    inputs: &["queries", "keys", "values", "out", "lse", "cotangent", "limits"],
    outputs: &["dq", "dk", "dv"],
    row_contiguous: false,
    atomic_outputs: false,
    launch,
};

/// Floats of each of two staged tiles: 16 KiB of threadgroup memory together.
const STAGED: usize = 2048;

fn launch(call: &Call<'_>) -> Result<MetalLaunch, KernelError> {
    let (queries, [batch, heads, length, dim]) = operand(call, ID, "queries")?;
    let (_, [_, kv_heads, keys, _]) = operand(call, ID, "keys")?;
    for name in ["values", "out", "cotangent"] {
        operand::<4>(call, ID, name)?;
    }
    let tile = tile(ID, dim, STAGED)?;
    let dtype = queries.data.dtype();
    let groups = batch * (heads * length.div_ceil(tile) + kv_heads * keys.div_ceil(tile));
    let of_keys = vec![batch, kv_heads, keys, dim];
    Ok(MetalLaunch {
        defines: vec![("SCALE", literal(call.param(ID, "scale")?))],
        ints: vec![("D", integer(ID, dim)?), ("TILE", integer(ID, tile)?)],
        dtypes: vec![("T", dtype)],
        numbers: vec![visible(ID, call)?],
        outputs: vec![
            (dtype, vec![batch, heads, length, dim]),
            (dtype, of_keys.clone()),
            (dtype, of_keys),
        ],
        grid: [threads(ID, groups, 4 * tile)?, 1, 1],
        group: [threads(ID, 1, 4 * tile)?, 1, 1],
        init_value: None,
    })
}
