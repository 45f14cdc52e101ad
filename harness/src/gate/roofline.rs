//! What this machine can do at most: bytes read and products summed in a second, measured in the same run.

use std::time::Instant;

use mlx_parity_kernels::limits::read;
use serde::{Deserialize, Serialize};

use super::speed::Work;

/// Bytes read to measure bandwidth: far beyond any cache.
const BYTES: usize = 256 << 20;
/// Rounds; the best counts.
const ROUNDS: usize = 8;

/// Limits of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roofline {
    /// Bytes a second that all cores read from memory.
    pub bandwidth: f64,
    /// Floating-point operations a second of a large float32 product.
    pub gemm: f64,
}

impl Roofline {
    /// The least time for some work, in seconds, and the limit that sets it.
    pub fn least(&self, work: Work) -> (f64, &'static str) {
        let (read, multiply) = (work.bytes / self.bandwidth, work.flops / self.gemm);
        if read >= multiply { (read, "bandwidth") } else { (multiply, "GEMM rate") }
    }
}

/// The best rate in bytes a second at which all cores read memory.
pub fn bandwidth() -> f64 {
    let memory: Vec<u64> = vec![1; BYTES / size_of::<u64>()];
    let mut best = 0.0f64;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        std::hint::black_box(read(&memory));
        best = best.max(BYTES as f64 / started.elapsed().as_secs_f64());
    }
    best
}

/// The best rate in floating-point operations a second of `multiply`, which does `flops` of them a call.
pub fn rate(flops: f64, mut multiply: impl FnMut()) -> f64 {
    multiply();
    let mut best = 0.0f64;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        multiply();
        best = best.max(flops / started.elapsed().as_secs_f64());
    }
    best
}
