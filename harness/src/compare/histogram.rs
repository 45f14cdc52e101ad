//! How many elements differ by how much.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::ulp::Distance;

/// Counts of differing elements by distance: 0, 1, 2, 3–4, 5–8, … ULP, and those that have no distance.
///
/// Elements whose bits are equal are not counted; 0 counts zeros that differ in sign only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Histogram {
    /// Buckets that hold something, nearest first.
    pub ulp: Vec<Bucket>,
    /// Opposite signs, neither zero.
    pub sign: u64,
    /// One infinite, or both with opposite signs.
    pub infinite: u64,
    /// At least one NaN (two NaNs with different payloads included).
    pub nan: u64,
}

/// Elements between two distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// Least distance in ULP.
    pub low: u64,
    /// Greatest distance in ULP.
    pub high: u64,
    /// Elements.
    pub count: u64,
}

/// Number of ULP buckets: 0, then one for each power of two up to 2⁶⁴.
pub(super) const BUCKETS: usize = 66;

/// Bucket of a distance: 0, 1, 2, 3–4, 5–8, …
pub(super) const fn bucket_of(ulps: u64) -> usize {
    match ulps.checked_sub(1) {
        None => 0,
        Some(below) => (u64::BITS - below.leading_zeros()) as usize + 1,
    }
}

/// Distances a bucket holds.
const fn range_of(bucket: usize) -> (u64, u64) {
    match bucket {
        0 => (0, 0),
        1 => (1, 1),
        65 => ((1 << 63) + 1, u64::MAX),
        _ => ((1 << (bucket - 2)) + 1, 1 << (bucket - 1)),
    }
}

impl Histogram {
    /// A histogram from counts by bucket.
    pub(super) fn new(counts: &[u64; BUCKETS], sign: u64, infinite: u64, nan: u64) -> Self {
        let filled = counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let ulp = filled.map(|(bucket, &count)| {
            let (low, high) = range_of(bucket);
            Bucket { low, high, count }
        });
        Self { ulp: ulp.collect(), sign, infinite, nan }
    }

    /// Elements counted.
    pub fn total(&self) -> u64 {
        self.ulp.iter().map(|bucket| bucket.count).sum::<u64>()
            + self.sign
            + self.infinite
            + self.nan
    }

    /// Elements in the bucket this distance falls in.
    pub fn count(&self, distance: Distance) -> u64 {
        match distance {
            Distance::Sign => self.sign,
            Distance::Infinite => self.infinite,
            Distance::Nan => self.nan,
            Distance::Ulps(ulps) => {
                let holds = |bucket: &&Bucket| (bucket.low..=bucket.high).contains(&ulps);
                self.ulp.iter().find(holds).map_or(0, |bucket| bucket.count)
            }
        }
    }
}

/// `1 ulp: 200 · 3-4 ulp: 12 · other sign: 1`
impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self.ulp.iter().map(ToString::to_string).collect();
        let rest = [("other sign", self.sign), ("infinite", self.infinite), ("NaN", self.nan)];
        let rest = rest.iter().filter(|(_, count)| *count > 0);
        parts.extend(rest.map(|(name, count)| format!("{name}: {count}")));
        f.write_str(&parts.join(" · "))
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.low == self.high {
            write!(f, "{} ulp: {}", self.low, self.count)
        } else {
            write!(f, "{}-{} ulp: {}", self.low, self.high, self.count)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_meet_without_gap_or_overlap() {
        let mut next = Some(0u64);
        for bucket in 0..BUCKETS {
            let (low, high) = range_of(bucket);
            assert_eq!(Some(low), next, "bucket {bucket}");
            assert_eq!((bucket_of(low), bucket_of(high)), (bucket, bucket));
            next = high.checked_add(1);
        }
        assert_eq!(next, None, "the last bucket ends at the largest distance");
    }

    #[test]
    fn it_reads_in_order() {
        let mut counts = [0; BUCKETS];
        (counts[bucket_of(1)], counts[bucket_of(4)]) = (200, 12);
        let histogram = Histogram::new(&counts, 1, 0, 0);
        assert_eq!(histogram.to_string(), "1 ulp: 200 · 3-4 ulp: 12 · other sign: 1");
        assert_eq!(histogram.total(), 213);
        assert_eq!(histogram.count(Distance::Ulps(3)), 12);
        assert_eq!(histogram.count(Distance::Ulps(2)), 0);
        assert_eq!(histogram.count(Distance::Sign), 1);
    }
}
