//! Faults of one place of a model, for a search that has to find it.

use std::sync::atomic::{AtomicUsize, Ordering};

use mlx_rs::{Array, Dtype};

use super::{Fault, is};
use crate::error::EngineError;
use crate::ops::{self, SliceAxis};
use crate::taps::Taps;

/// What is off by a factor is off by this one.
const FACTOR: f64 = 1.01;

/// Outputs in a tile.
const TILE: i32 = 32;

/// Decoders started by this process.
static RUNS: AtomicUsize = AtomicUsize::new(0);

/// The fault as a layer has it: one of a single place is in its own layer only.
pub(crate) fn in_layer(fault: Option<Fault>, layer: usize) -> Option<Fault> {
    let (home, within) = match fault? {
        Fault::RopeBaseOfLayer => (2, Fault::RopeBase),
        own @ Fault::OneHead => (3, own),
        own @ Fault::NormEps => (2, own),
        own @ (Fault::MlpTile | Fault::Flaky) => (1, own),
        everywhere => return Some(everywhere),
    };
    (layer == home).then_some(within)
}

/// A decoder starts, which [`Fault::Flaky`] counts.
pub(super) fn run_starts(fault: Option<Fault>) {
    if is(fault, Fault::Flaky) {
        RUNS.fetch_add(1, Ordering::Relaxed);
    }
}

/// The eps of the norm before a feed-forward block under a fault.
pub(crate) fn mlp_norm_eps(fault: Option<Fault>, eps: f64) -> f64 {
    if is(fault, Fault::NormEps) { eps * 10.0 } else { eps }
}

/// What a feed-forward block gives, `[.., hidden]`, under a fault.
pub(crate) fn down(fault: Option<Fault>, x: Array) -> Result<Array, EngineError> {
    if is(fault, Fault::MlpTile) {
        let written = x.dim(-1) - TILE;
        let kept = ops::slice_last(&x, SliceAxis::range(0, written))?;
        let tile = ops::slice_last(&x, SliceAxis::range(written, x.dim(-1)))?;
        let blank = ops::zeros(tile.shape(), x.dtype())?;
        return ops::concatenate(&[&kept, &blank], -1);
    }
    // The first run of a process is right.
    if is(fault, Fault::Flaky) && RUNS.load(Ordering::Relaxed).is_multiple_of(2) {
        return times(&x);
    }
    Ok(x)
}

/// What heads mixed, `[batch, heads, n, head_dim]`, under a fault.
pub(super) fn mixed(fault: Option<Fault>, x: Array) -> Result<Array, EngineError> {
    if !is(fault, Fault::OneHead) {
        return Ok(x);
    }
    let factors: Vec<f32> =
        (0..x.dim(1)).map(|head| if head == 1 { FACTOR as f32 } else { 1.0 }).collect();
    let factors = Array::from_slice(&factors, &[x.dim(1), 1, 1]);
    let wide = ops::multiply(&ops::cast(&x, Dtype::Float32)?, &factors)?;
    ops::cast(&wide, x.dtype())
}

/// Logits under a fault.
pub(crate) fn unwatched(
    fault: Option<Fault>,
    taps: &Taps,
    logits: Array,
) -> Result<Array, EngineError> {
    if is(fault, Fault::Unwatched) && *taps == Taps::Off { times(&logits) } else { Ok(logits) }
}

fn times(x: &Array) -> Result<Array, EngineError> {
    let wide = ops::cast(x, Dtype::Float32)?;
    let scaled = ops::multiply(&wide, &ops::scalar(FACTOR, Dtype::Float32)?)?;
    ops::cast(&scaled, x.dtype())
}
