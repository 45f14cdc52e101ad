//! What a comparison found, as JSON has it.

use serde::{Deserialize, Serialize};

use super::{
    control::ControlLane, side::SideInfo, summing::Clusters, verdict::Verdict, windows::Cut,
};
use crate::stats::{NonFinite, Profile, Summary};

/// Version of the report; a reader refuses any other.
pub const REPORT_SCHEMA: u32 = 1;

/// A finished comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// [`REPORT_SCHEMA`].
    pub schema: u32,
    /// Version of this program.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// The distribution that divergences are measured from.
    pub teacher: SideInfo,
    /// The distribution that is measured.
    pub student: SideInfo,
    /// What both read.
    pub text: Text,
    /// What intervals stand on.
    pub clusters: Clusters,
    /// The numbers.
    pub summary: Summary,
    /// By place in a window, counted from its first scored position.
    pub by_place: Vec<Profile>,
    /// KL by decades: what is below `1e-16` first.
    pub histogram: Histogram,
    /// The first NaNs and infinities.
    pub nonfinite: Vec<NonFinite>,
    /// Sides beside themselves.
    pub control: Vec<ControlLane>,
    /// What it was held to.
    pub verdict: Verdict,
    /// Remarks.
    pub notes: Vec<String>,
    /// Wall time of this sitting, in seconds.
    pub seconds: f64,
    /// Positions that an earlier sitting scored.
    pub resumed: usize,
    /// Most bytes held at a time by all processes together, where the system says.
    pub peak_memory: Option<u64>,
    /// The run's folder, where every position is on file.
    pub record: String,
}

/// What both sides read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// Where the tokens come from.
    pub from: String,
    /// Digest of the ids, as u32.
    pub ids: String,
    /// Tokens.
    pub tokens: usize,
    /// How they are cut.
    pub cut: Cut,
    /// Windows with scored positions.
    pub windows: usize,
    /// Tokens of a model call.
    pub call: usize,
}

/// How many positions have a KL of which size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Histogram {
    /// Positions of exactly 0.
    pub zero: u64,
    /// Positions below 0, which is rounding, and above 0 up to the first bin.
    pub tiny: u64,
    /// Positions in bins of a quarter of a decade, from `1e-16` to `1e4`.
    pub bins: Vec<u64>,
}

impl Histogram {
    /// Lower end of the first bin, as a power of ten.
    pub const FIRST: i32 = -16;
    /// Bins of a decade.
    pub const PER_DECADE: i32 = 4;
    const BINS: usize = 80;

    /// Counts finite values.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut histogram = Self { zero: 0, tiny: 0, bins: vec![0; Self::BINS] };
        for value in values.filter(|value| value.is_finite()) {
            let decades = value.log10() - f64::from(Self::FIRST);
            if value == 0.0 {
                histogram.zero += 1;
            } else if value < 0.0 || decades < 0.0 {
                histogram.tiny += 1;
            } else {
                let bin = (decades * f64::from(Self::PER_DECADE)) as usize;
                histogram.bins[bin.min(Self::BINS - 1)] += 1;
            }
        }
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finite_value_has_a_bin() {
        let values = [0.0, -0.0, -1e-18, 1e-17, 1e-16, 1.01, 1e9, f64::NAN, f64::INFINITY];
        let histogram = Histogram::of(values.into_iter());
        assert_eq!((histogram.zero, histogram.tiny), (2, 2));
        assert_eq!((histogram.bins[0], histogram.bins[64], histogram.bins[79]), (1, 1, 1));
        assert_eq!(histogram.bins.iter().sum::<u64>(), 3);
    }
}
