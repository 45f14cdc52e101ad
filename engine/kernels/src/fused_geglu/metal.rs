//! How `kernel.metal` is launched.
//!
//! It rounds each step as MLX's Metal kernels do, whose exponential functions are not those of the CPU backend.

use super::{ID, Pair};
use crate::call::{Call, View};
use crate::error::KernelError;
use crate::launch::threads;
use crate::spec::{Metal, MetalLaunch, Source, source};

/// No text: the body needs no helpers.
pub(crate) const HEADER: Source = Source { path: "header.metal", text: "" };

/// Threads of a group, and elements of a thread.
const THREADS: usize = 256;
const EACH: usize = 4;

/// The Metal source.
pub(crate) const METAL: Metal = Metal {
    header: HEADER,
    body: source!("fused_geglu/kernel.metal"),
    inputs: &["gate", "up"],
    outputs: &["out"],
    row_contiguous: true,
    atomic_outputs: false,
    launch: |call: &Call<'_>| elementwise(ID, Pair::of(ID, call)?.gate, 1),
};

/// A launch over the elements of `like`, with `outputs` results of its shape and dtype.
///
/// # Errors
/// [`KernelError::Unsupported`] for 2^31 threads or more.
pub(crate) fn elementwise(
    kernel: &'static str,
    like: View<'_>,
    outputs: usize,
) -> Result<MetalLaunch, KernelError> {
    let blocks = like.len().div_ceil(EACH * THREADS);
    Ok(MetalLaunch {
        defines: Vec::new(),
        ints: Vec::new(),
        dtypes: vec![("T", like.data.dtype())],
        numbers: Vec::new(),
        outputs: vec![(like.data.dtype(), like.shape.to_vec()); outputs],
        grid: [threads(kernel, blocks, THREADS)?, 1, 1],
        group: [THREADS as u32, 1, 1],
        init_value: None,
    })
}
