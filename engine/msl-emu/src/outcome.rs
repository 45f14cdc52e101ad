//! What a run gives back.

use std::time::Duration;

use mlx_parity_tensor::HostTensor;

use crate::Fault;

/// What came of a run that compiled and started.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Outputs under the first seed; empty when a fault ended the run before.
    pub outputs: Vec<HostTensor>,
    /// Outputs under every seed that ran to its end, with the seed.
    pub orders: Vec<(u64, Vec<HostTensor>)>,
    /// Faults, in the order they were seen.
    pub faults: Vec<Fault>,
    /// Largest difference between the first seed and another, by output; empty where only one seed ran.
    pub spread: Vec<f64>,
    /// Time in the emulated kernel, all seeds.
    pub elapsed: Duration,
    /// Whether the compiled kernel came from the cache.
    pub cached: bool,
}

impl Outcome {
    /// Whether the run saw no fault.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }
}
