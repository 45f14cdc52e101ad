//! The counter-based hash behind every synthetic number: integers only, the same on every machine.

/// Added to the state between two draws, as SplitMix64 does (Steele, Lea and Flood, 2014).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Told apart from other users of the same hash: `mlx-pari` in ASCII.
const SEED: u64 = 0x6d6c_782d_7061_7269;

/// The finaliser of SplitMix64.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a, 64 bits.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// An endless row of 64-bit draws, each reached by its index alone.
#[derive(Debug, Clone, Copy)]
pub struct Stream(u64);

impl Stream {
    /// The stream of a name: a tensor's, or a prompt's.
    pub fn named(name: &str) -> Self {
        Self(mix(SEED ^ fnv1a(name)))
    }

    /// The draw at `index`: `mix(state + (index + 1) · GOLDEN)`.
    pub fn draw(self, index: u64) -> u64 {
        mix(self.0.wrapping_add(index.wrapping_add(1).wrapping_mul(GOLDEN)))
    }
}
