//! How `kernel.metal` is launched.
//!
//! Projections, norms and rotations are rounded to the dtype of x where MLX's Metal kernels round them; sums are
//! floats, which is not the arithmetic of its CPU backend.

use super::ID;
use super::call::Qkv;
use crate::call::{Buffer, Call, Operand};
use crate::error::KernelError;
use crate::fused_swiglu::metal::{MANY, PACKED, THREADS, TILE, packings};
use crate::launch::{integer, threads};
use crate::spec::{Metal, MetalLaunch, Mutant, source};

/// Bytes of threadgroup memory that heads of a tile of rows may take beside the tiles themselves.
const HEADS: usize = 16 << 10;

/// The Metal source.
pub(super) const METAL: Metal = Metal {
    header: PACKED,
    body: source!("fused_qkv_rope/kernel.metal"),
    inputs: &[
        "x",
        "q_w",
        "q_scales",
        "q_biases",
        "k_w",
        "k_scales",
        "k_biases",
        "v_w",
        "v_scales",
        "v_biases",
        "q_norm",
        "k_norm",
        "eps",
        "base_log2",
        "rope_scale",
        "offset",
    ],
    outputs: &["q", "k", "v"],
    row_contiguous: true,
    atomic_outputs: false,
    launch,
};

/// The bugs of `kernel.metal` that the host source has no place for.
pub(super) const MUTANTS: [Mutant; 5] = [
    Mutant::metal("codes_reversed", "codes of a word taken from the highest bits on"),
    Mutant::metal("rows_unmasked", "rows of x that there are not, staged"),
    Mutant::metal("no_barrier", "the next slice staged while others read this one"),
    Mutant::metal("projection_unfenced", "a head normed before all of it is projected"),
    Mutant::metal("norm_of_lane", "one lane's part of the squares taken for their sum"),
];

fn launch(call: &Call<'_>) -> Result<MetalLaunch, KernelError> {
    let of = Qkv::of(call)?;
    let ([q, k, v], [heads, kv_heads, _]) = (of.projections, of.heads());
    let (rows, head_dim) = (of.batch * of.rows, of.head_dim);
    // Rows of a tile wait in threadgroup memory for their norm.
    let tiled = rows >= MANY && TILE * head_dim * of.dtype.size() <= HEADS;
    let matrices = [("Q_BITS", "Q_GROUP", q), ("K_BITS", "K_GROUP", k), ("V_BITS", "V_GROUP", v)];
    let mut ints = packings(ID, &matrices)?;
    ints.extend([
        ("D", integer(ID, head_dim)?),
        ("DIMS", integer(ID, of.rope.dims)?),
        ("TRADITIONAL", i32::from(of.rope.traditional)),
        ("NORMED", i32::from(of.norms.is_some())),
        ("TILED", i32::from(tiled)),
    ]);
    let across = threads(ID, heads + 2 * kv_heads, THREADS)?;
    let down = if tiled { rows.div_ceil(TILE) } else { rows };
    let result = |heads| (of.dtype, vec![of.batch, heads, of.rows, head_dim]);
    Ok(MetalLaunch {
        defines: Vec::new(),
        ints,
        dtypes: vec![("T", of.dtype)],
        numbers: numbers(call, &of),
        outputs: [heads, kv_heads, kv_heads].map(result).to_vec(),
        grid: [across, threads(ID, down, 1)?, 1],
        group: [THREADS as u32, 1, 1],
        init_value: None,
    })
}

/// One zero, which the source does not read, for each norm that the call lacks; and its numbers.
fn numbers(call: &Call<'_>, of: &Qkv<'_>) -> Vec<Operand> {
    let float = |name, value: f32| Operand::new(name, [], Buffer::F32(vec![value]));
    let missing = ["q_norm", "k_norm"].into_iter().filter(|name| call.find(name).is_none());
    let nothing = |name| Some(Operand::new(name, [1], Buffer::zeros(of.dtype, 1)?));
    let mut numbers: Vec<Operand> = missing.filter_map(nothing).collect();
    numbers.extend([
        float("eps", of.norms.map_or(0.0, |norms| norms.eps)),
        float("base_log2", of.rope.theta.log2()),
        float("rope_scale", of.rope.scale),
        Operand::new("offset", [], Buffer::I32(vec![of.rope.offset])),
    ]);
    numbers
}
