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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finaliser_is_that_of_splitmix64() {
        // The first output of the published generator for seed 1234567.
        assert_eq!(mix(1_234_567_u64.wrapping_add(GOLDEN)), 6_457_827_717_110_365_317);
    }

    // From a Python of the doc comments' words, with integers that do not end at 64 bits.
    #[rstest::rstest]
    #[case("model.norm.weight", 0, 0xa3b3_8eef_3a0d_2caf)]
    #[case("model.norm.weight", 1, 0x6cbd_a849_02f2_1fff)]
    #[case("model.norm.weight", 1 << 40, 0x69c7_541a_3d75_03df)]
    #[case("", 0, 0x75a8_51f5_8a8e_751e)]
    fn draws_are_these(#[case] name: &str, #[case] index: u64, #[case] wanted: u64) {
        assert_eq!(Stream::named(name).draw(index), wanted);
    }
}
