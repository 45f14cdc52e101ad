//! What a cache is called in a composition.

use std::fmt;

use super::KvCache;
use super::rotating::Counters;
use crate::ops::Affine;

/// `plain`, `rotating(16, keep 4)`, `quantized(8 bits, group 32)`, `rotating(16), quantized(…)`,
/// `arrays(2)`: the kind, what it keeps, how its rows are packed.
impl fmt::Display for KvCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(_) => f.write_str("plain"),
            Self::Rotating(cache) => ring(f, cache.counters()),
            Self::Quantized(cache) => packed(f, cache.packing()),
            Self::RotatingQuantized(cache) => {
                ring(f, cache.rows().counters())?;
                f.write_str(", ")?;
                packed(f, cache.packing())
            }
            Self::Padded(_) => f.write_str("padded"),
            Self::PaddedRotating(cache) => write!(f, "padded rotating({})", cache.max_size()),
            Self::Recurrent(_) => f.write_str("arrays(2)"),
        }
    }
}

fn ring(f: &mut fmt::Formatter<'_>, counters: Counters) -> fmt::Result {
    match counters {
        Counters { max_size, keep: 0, .. } => write!(f, "rotating({max_size})"),
        Counters { max_size, keep, .. } => write!(f, "rotating({max_size}, keep {keep})"),
    }
}

fn packed(f: &mut fmt::Formatter<'_>, Affine { group_size, bits }: Affine) -> fmt::Result {
    write!(f, "quantized({bits} bits, group {group_size})")
}
