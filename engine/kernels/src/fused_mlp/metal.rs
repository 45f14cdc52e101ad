//! How `kernel.metal` is launched.

use mlx_parity_tensor::Dtype;

use super::ID;
use crate::affine::Packed;
use crate::call::Call;
use crate::error::KernelError;
use crate::fused_swiglu::metal::{MANY, PACKED, THREADS, TILE, packings};
use crate::gated::Gated;
use crate::launch::threads;
use crate::spec::{Metal, MetalLaunch, Mutant, source};

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

/// The bugs of `kernel.metal` that the host source has no place for.
pub(super) const MUTANTS: [Mutant; 10] = [
    Mutant::metal("codes_reversed", "codes of a word taken from the highest bits on"),
    Mutant::metal("rows_unmasked", "rows of x that there are not, staged"),
    Mutant::metal("weights_unmasked", "rows of the way down that there are not, staged"),
    Mutant::metal("outs_unmasked", "results that there are not, added to"),
    Mutant::metal("last_block_dropped", "the last block of hidden values not added"),
    Mutant::metal("stale_tile", "the first tile of the way down staged for all"),
    Mutant::metal("no_barrier", "a tile read before all of it is there"),
    Mutant::metal("hidden_unfenced", "hidden values read before all are there"),
    Mutant::metal("sigmoid_only", "the sigmoid of the gate, without the gate"),
    Mutant::metal("gate_in_bfloat", "the gate rounded to bfloat16 whatever the dtype"),
];

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
