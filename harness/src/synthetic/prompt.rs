//! Prompts drawn from the same hash.

use std::num::NonZero;

use super::hash::Stream;

/// The vocabulary of every synthetic model that has no reason for another.
pub const VOCABULARY: NonZero<u32> = NonZero::new(256).expect("256 is not 0");

/// `count` ids below `vocabulary`: the draws of the stream `prompt-<seed>`, each modulo the vocabulary.
pub fn ids(seed: u64, count: usize, vocabulary: NonZero<u32>) -> Vec<u32> {
    let stream = Stream::named(&format!("prompt-{seed}"));
    (0..count as u64)
        .map(|index| (stream.draw(index) % u64::from(vocabulary.get())) as u32)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_these() {
        // From a Python of the doc comment's words.
        assert_eq!(ids(1, 8, VOCABULARY), [184, 82, 232, 65, 168, 79, 226, 36]);
        let small = NonZero::new(3).unwrap();
        assert!(ids(1, 100, small).iter().all(|id| *id < 3));
    }
}
