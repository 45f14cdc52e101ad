//! How `kernel.metal` is launched.

use mlx_parity_tensor::Dtype;

use super::ID;
use crate::affine::Packed;
use crate::call::Call;
use crate::error::KernelError;
use crate::fused_swiglu::metal::{MANY, PACKED, THREADS, TILE, packings};
use crate::gated::Gated;
use crate::launch::threads;
use crate::spec::{Metal, MetalLaunch, source};

/// The Metal source. Its results are float32, as atomics are; whoever launches rounds them.
pub(crate) const METAL: Metal = Metal {
    header: PACKED,
    body: source!("fused_mlp/kernel.metal"),
    inputs: &[
        "x",
        "gate_w",
        "gate_scales",
        "gate_biases",
        "up_w",
        "up_scales",
        "up_biases",
        "down_w",
        "down_scales",
        "down_biases",
        "residual",
    ],
    outputs: &["out"],
    row_contiguous: true,
    atomic_outputs: true,
    launch,
};

fn launch(call: &Call<'_>) -> Result<MetalLaunch, KernelError> {
    let of = Gated::of(ID, call)?;
    let down = Packed::of(ID, call, "down", of.gate.rows, of.dtype)?;
    let mut ints = packings(
        ID,
        &[
            ("GATE_BITS", "GATE_GROUP", of.gate),
            ("UP_BITS", "UP_GROUP", of.up),
            ("DOWN_BITS", "DOWN_GROUP", down),
        ],
    )?;
    let tiled = of.rows >= MANY;
    ints.push(("TILED", i32::from(tiled)));
    let down_rows = if tiled { of.rows.div_ceil(TILE) } else { of.rows };
    let mut shape = of.shape();
    if let Some(last) = shape.last_mut() {
        *last = down.rows;
    }
    Ok(MetalLaunch {
        defines: Vec::new(),
        ints,
        dtypes: vec![("T", of.dtype)],
        numbers: Vec::new(),
        outputs: vec![(Dtype::F32, shape)],
        grid: [threads(ID, of.gate.rows / TILE, THREADS)?, threads(ID, down_rows, 1)?, 1],
        group: [THREADS as u32, 1, 1],
        init_value: Some(0.0),
    })
}
