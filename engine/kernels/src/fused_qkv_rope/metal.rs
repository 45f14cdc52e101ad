//! How `kernel.metal` is launched.
//!
//! Projections, norms and rotations are rounded to the dtype of x where MLX's Metal kernels round them; sums are
//! floats, which is not the arithmetic of its CPU backend.

use mlx_parity_tensor::Dtype;

use super::ID;
use crate::affine::Packed;
use crate::call::{Buffer, Call, Operand};
use crate::error::KernelError;
use crate::fused_swiglu::metal::{MANY, PACKED, THREADS, TILE, packings};
use crate::launch::{absent, count, integer, operand, threads};
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
pub(super) const MUTANTS: [Mutant; 6] = [
    Mutant::metal("codes_reversed", "codes of a word taken from the highest bits on"),
    Mutant::metal("rows_unmasked", "rows of x that there are not, staged"),
    Mutant::metal("no_barrier", "the next slice staged while others read this one"),
    Mutant::metal("projection_unfenced", "a head normed before all of it is projected"),
    Mutant::metal("norm_of_lane", "one lane's part of the squares taken for their sum"),
    Mutant::metal("rest_not_copied", "elements behind the rotated ones not written"),
];

fn launch(call: &Call<'_>) -> Result<MetalLaunch, KernelError> {
    let (x, [batch, length, columns]) = operand(call, ID, "x")?;
    let dtype = x.data.dtype();
    let part = |name| Packed::of(ID, call, name, columns, dtype);
    let (q, k, v) = (part("q")?, part("k")?, part("v")?);
    let head_dim = call.param(ID, "head_dim")? as usize;
    let dims = count(call, "dims", head_dim);
    if head_dim == 0 || q.rows % head_dim != 0 || k.rows % head_dim != 0 || v.rows != k.rows {
        let what = format!("{}, {} and {} rows of heads of {head_dim}", q.rows, k.rows, v.rows);
        return Err(KernelError::Malformed { kernel: ID, what });
    }
    if dims > head_dim || dims % 2 != 0 {
        let what = format!("{dims} of {head_dim} elements to be rotated");
        return Err(KernelError::Malformed { kernel: ID, what });
    }
    let (heads, kv_heads, rows) = (q.rows / head_dim, k.rows / head_dim, batch * length);
    // Rows of a tile wait in threadgroup memory for their norm.
    let tiled = rows >= MANY && TILE * head_dim * dtype.size() <= HEADS;
    let mut ints = packings(
        ID,
        &[("Q_BITS", "Q_GROUP", q), ("K_BITS", "K_GROUP", k), ("V_BITS", "V_GROUP", v)],
    )?;
    ints.extend([
        ("D", integer(ID, head_dim)?),
        ("DIMS", integer(ID, dims)?),
        ("TRADITIONAL", i32::from(count(call, "traditional", 0) != 0)),
        ("Q_NORM", i32::from(call.find("q_norm").is_some())),
        ("K_NORM", i32::from(call.find("k_norm").is_some())),
        ("TILED", i32::from(tiled)),
    ]);
    let across = threads(ID, heads + 2 * kv_heads, THREADS)?;
    let down = if tiled { rows.div_ceil(TILE) } else { rows };
    Ok(MetalLaunch {
        defines: Vec::new(),
        ints,
        dtypes: vec![("T", dtype)],
        numbers: numbers(call, dtype),
        outputs: [heads, kv_heads, kv_heads]
            .map(|heads| (dtype, vec![batch, heads, length, head_dim]))
            .to_vec(),
        grid: [across, threads(ID, down, 1)?, 1],
        group: [THREADS as u32, 1, 1],
        init_value: None,
    })
}

/// Norms that the call lacks, and its numbers.
fn numbers(call: &Call<'_>, dtype: Dtype) -> Vec<Operand> {
    let float = |name, value: f64| Operand::new(name, [], Buffer::F32(vec![value as f32]));
    let given = |name: &str, otherwise| call.params.get(name).unwrap_or(otherwise);
    let offset = count(call, "offset", 0) as i32;
    let mut numbers = absent(call, &[("q_norm", dtype), ("k_norm", dtype)]);
    numbers.extend([
        float("eps", given("eps", 0.0)),
        float("base_log2", given("theta", 10_000.0).log2()),
        float("rope_scale", given("rope_scale", 1.0)),
        Operand::new("offset", [], Buffer::I32(vec![offset])),
    ]);
    numbers
}
