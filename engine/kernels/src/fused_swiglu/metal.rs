//! How `kernel.metal` is launched, rounding as MLX's Metal kernels do or once.
//!
//! The composed kernels on Metal sum in floats and round each result to the dtype of x; that is not the arithmetic of
//! MLX's CPU backend, whose bits the host source has.

use mlx_parity_tensor::Dtype;

use super::ID;
use crate::affine::Packed;
use crate::call::Call;
use crate::error::KernelError;
use crate::gated::Gated;
use crate::launch::{integer, threads};
use crate::spec::{Metal, MetalLaunch, Mutant, Source, source};

/// The source that kernels with packed matrices share.
pub(crate) const PACKED: Source = source!("metal/packed.metal");

/// Rows and columns of a tile.
pub(crate) const TILE: usize = 32;
/// Threads of a group that makes one.
pub(crate) const THREADS: usize = 128;
/// Rows from which on results are made by tiles.
pub(crate) const MANY: usize = 8;

/// The Metal source, results rounded at each step.
pub(crate) const METAL: Metal = Metal {
    header: PACKED,
    body: source!("fused_swiglu/kernel.metal"),
    inputs: &["x", "gate_w", "gate_scales", "gate_biases", "up_w", "up_scales", "up_biases"],
    outputs: &["out"],
    row_contiguous: true,
    atomic_outputs: false,
    launch: |call| launch(ID, call, None),
};

/// The bugs of `kernel.metal` that the host source has no place for.
pub(crate) const MUTANTS: [Mutant; 10] = [
    Mutant::metal("codes_reversed", "codes of a word taken from the highest bits on"),
    Mutant::metal("rows_unmasked", "rows of x that there are not, staged"),
    Mutant::metal("weights_unmasked", "rows of the matrices that there are not, staged"),
    Mutant::metal("width_unmasked", "results that there are not, summed"),
    Mutant::metal("last_slice_dropped", "sums end one staged slice early"),
    Mutant::metal("stale_tile", "the first slice of x staged for all"),
    Mutant::metal("no_barrier", "the next slice staged while others read this one"),
    Mutant::metal("lanes_not_summed", "one lane's part of a row's sum taken for the sum"),
    Mutant::metal("sigmoid_only", "the sigmoid of the gate, without the gate"),
    Mutant::metal("gate_in_bfloat", "the gate rounded to bfloat16 whatever the dtype"),
];

/// A launch; results are rounded to `steps`, or to the dtype of x.
///
/// # Errors
/// As [`Gated::of`]; [`KernelError::Unsupported`] for packings that the source does not read.
pub(crate) fn launch(
    kernel: &'static str,
    call: &Call<'_>,
    steps: Option<Dtype>,
) -> Result<MetalLaunch, KernelError> {
    let of = Gated::of(kernel, call)?;
    let mut ints =
        packings(kernel, &[("GATE_BITS", "GATE_GROUP", of.gate), ("UP_BITS", "UP_GROUP", of.up)])?;
    let tiled = of.rows >= MANY;
    ints.push(("TILED", i32::from(tiled)));
    let width = of.gate.rows;
    let (grid, group) = if tiled {
        let across = threads(kernel, width.div_ceil(TILE), THREADS)?;
        ([across, threads(kernel, of.rows.div_ceil(TILE), 1)?, 1], [THREADS as u32, 1, 1])
    } else {
        let pairs = threads(kernel, width.div_ceil(8), 2)?;
        ([32, pairs, threads(kernel, of.rows, 1)?], [32, 2, 1])
    };
    Ok(MetalLaunch {
        defines: Vec::new(),
        ints,
        dtypes: vec![("T", of.dtype), ("S", steps.unwrap_or(of.dtype))],
        numbers: Vec::new(),
        outputs: vec![(of.dtype, of.shape())],
        grid,
        group,
        init_value: None,
    })
}

/// Bits and group of each matrix under the names given.
///
/// # Errors
/// [`KernelError::Unsupported`] for other codes than those of 4 and 8 bits, and for matrices so small that their
/// scales would not lie in the memory that the source reads.
pub(crate) fn packings(
    kernel: &'static str,
    matrices: &[(&'static str, &'static str, Packed<'_>)],
) -> Result<Vec<(&'static str, i32)>, KernelError> {
    let mut ints = Vec::new();
    for (bits, group, of) in matrices {
        // MLX hands arrays of fewer than eight elements to a custom kernel in the constant address space.
        if !matches!(of.bits, 4 | 8) || of.rows * of.groups() < 8 {
            return Err(KernelError::Unsupported {
                kernel,
                found: format!("{} bits, {} scales", of.bits, of.rows * of.groups()),
                wanted: "codes of 4 or 8 bits, 8 scales or more".to_owned(),
            });
        }
        ints.push((*bits, of.bits as i32));
        ints.push((*group, integer(kernel, of.group)?));
    }
    Ok(ints)
}
