//! How `kernel.metal` is launched.

use crate::call::Call;
use crate::error::KernelError;
use crate::launch::{count, integer, limits, literal, operand, threads};
use crate::spec::{Metal, MetalLaunch, Source, source};

use super::ID;

/// The Metal source.
pub const METAL: Metal = Metal {
    header: Source { path: "fused_decode_sdpa/header.metal", text: "" },
    body: source!("fused_decode_sdpa/kernel.metal"),
    inputs: &[
        "queries",
        "keys_w",
        "keys_scales",
        "keys_biases",
        "values_w",
        "values_scales",
        "values_biases",
        "limits",
    ],
    outputs: &["out"],
    row_contiguous: false,
    atomic_outputs: false,
    launch,
};

/// Keys up to which four simdgroups share them.
const FEW: usize = 256;

fn launch(call: &Call<'_>) -> Result<MetalLaunch, KernelError> {
    let (queries, [batch, heads, _, dim]) = operand(call, ID, "queries")?;
    let (_, [_, _, keys, _]) = operand(call, ID, "keys_w")?;
    for name in &METAL.inputs[2..7] {
        operand::<4>(call, ID, name)?;
    }
    if dim == 0 || dim % 32 != 0 || dim > 512 {
        return Err(KernelError::Unsupported {
            kernel: ID,
            found: format!("a head of {dim}"),
            wanted: "a multiple of 32 to 512".to_owned(),
        });
    }
    // Their sums share 16 KiB of threadgroup memory.
    let simdgroups = if keys <= FEW { 4 } else { (4096 / dim).min(32) };
    let mut defines = vec![("SCALE", literal(call.param(ID, "scale")?))];
    if let Some(cap) = call.params.get("softcap").filter(|&cap| cap > 0.0) {
        defines.push(("SOFTCAP", literal(cap)));
    }
    let ints = [
        ("D", dim),
        ("BITS", call.param(ID, "bits")? as usize),
        ("GROUP", call.param(ID, "group")? as usize),
        ("SIMDGROUPS", simdgroups),
    ];
    let ints = ints.map(|(name, value)| Ok((name, integer(ID, value)?)));
    Ok(MetalLaunch {
        defines,
        ints: ints.into_iter().collect::<Result<_, KernelError>>()?,
        dtypes: vec![("T", queries.data.dtype())],
        numbers: vec![limits(ID, [count(call, "window", 0), count(call, "kept", 0)])?],
        outputs: vec![(queries.data.dtype(), vec![batch, heads, 1, dim])],
        grid: [threads(ID, 1, 32 * simdgroups)?, threads(ID, heads, 1)?, threads(ID, batch, 1)?],
        group: [threads(ID, 1, 32 * simdgroups)?, 1, 1],
        init_value: None,
    })
}
