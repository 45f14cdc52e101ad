//! Seeded inputs.

use mlx_parity_oracles::Tensor64;
use mlx_parity_tensor::{Dtype, HostTensor};

/// A stream of numbers (Steele, Lea and Flood, 2014: `SplitMix64`).
pub struct Numbers(u64);

impl Numbers {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit as u64) as usize
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Values uniform in [low, high), rounded to `dtype`.
    pub fn tensor(&mut self, dtype: Dtype, shape: &[usize], low: f64, high: f64) -> HostTensor {
        let count = shape.iter().product();
        let values: Vec<f64> = (0..count).map(|_| low + (high - low) * self.unit()).collect();
        HostTensor::from_f64_as(dtype, shape, &values).expect("a tensor")
    }
}

/// A tensor widened.
pub fn wide(host: &HostTensor) -> Tensor64 {
    Tensor64::from_host(host)
}
