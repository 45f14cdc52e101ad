//! Many positions in a few numbers, with intervals.

use serde::{Deserialize, Serialize};

use super::bootstrap::{Bootstrap, Intervals};
use super::interval::Interval;
use super::position::Position;

/// How to sum up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SummaryOptions {
    /// Bootstrap resamples.
    pub resamples: usize,
    /// Seed of the resamples.
    pub seed: u64,
    /// Level of confidence of every interval.
    pub level: f64,
    /// A position is decided when the teacher's margin is above this, in nats: the noise that the control lane showed.
    pub noise_margin: f64,
    /// Most bins of the profile by position.
    pub profile_bins: usize,
}

impl Default for SummaryOptions {
    fn default() -> Self {
        let Bootstrap { resamples, seed, level } = Bootstrap::default();
        Self { resamples, seed, level, noise_margin: 0.0, profile_bins: 32 }
    }
}

/// Chance with which [`Summary::detectable_kl`] and [`Summary::detectable_disagreement`] would have been seen.
pub const POWER: f64 = 0.8;

/// Many positions. Positions that are not scored are counted and in no other number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// How it was summed up.
    pub options: SummaryOptions,
    /// Scored positions.
    pub positions: u64,
    /// Positions with a NaN or an infinity among their logits. A verdict fails where there is one.
    pub unscored: u64,
    /// Clusters with a scored position.
    pub clusters: u64,
    /// KL(teacher‖student), in nats.
    pub kl: Distribution,
    /// Intervals of the mean KL; `None` from fewer than two clusters, as all that are resampled.
    pub kl_mean: Option<Intervals>,
    /// Intervals of the 99th percentile of KL.
    pub kl_p99: Option<Intervals>,
    /// KL(student‖teacher), in nats.
    pub reverse_kl: Distribution,
    /// Total variation, where every position has it.
    pub total_variation: Option<Distribution>,
    /// Argmax agreement of all positions.
    pub agreement: Agreement,
    /// Argmax agreement of decided positions.
    pub decided: Agreement,
    /// Mean overlap of the likeliest tokens.
    pub top_k_overlap: f64,
    /// Mean entropy of the teacher, in nats.
    pub entropy_teacher: f64,
    /// Mean entropy of the student, in nats.
    pub entropy_student: f64,
    /// The teacher's margin, in nats.
    pub margin_teacher: Distribution,
    /// Change in the true token's probability, where every position has a true token.
    pub delta_p: Option<DeltaP>,
    /// Perplexities, where every position has a true token.
    pub perplexity: Option<Perplexity>,
    /// By place in the cluster, first places first.
    pub profile: Vec<Profile>,
    /// The least mean KL that would have been told from 0 with a chance of [`POWER`], in nats.
    pub detectable_kl: Option<f64>,
    /// The least part of disagreeing positions, the same way.
    pub detectable_disagreement: Option<f64>,
}

/// How a number is spread over positions. Quantiles as NumPy's `linear`; all NaN (`null` in JSON) without positions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distribution {
    /// Mean.
    #[serde(deserialize_with = "super::position::null_is_nan")]
    pub mean: f64,
    /// Median.
    #[serde(deserialize_with = "super::position::null_is_nan")]
    pub median: f64,
    /// 95th percentile.
    #[serde(deserialize_with = "super::position::null_is_nan")]
    pub p95: f64,
    /// 99th percentile.
    #[serde(deserialize_with = "super::position::null_is_nan")]
    pub p99: f64,
    /// 99.9th percentile.
    #[serde(deserialize_with = "super::position::null_is_nan")]
    pub p999: f64,
    /// Greatest.
    #[serde(deserialize_with = "super::position::null_is_nan")]
    pub max: f64,
    /// Index of the first greatest, among all positions.
    pub max_at: Option<usize>,
}

/// Positions where the argmax agrees.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agreement {
    /// Positions that agree.
    pub agree: u64,
    /// Positions.
    pub of: u64,
    /// The score interval, which takes positions as independent; `None` without positions.
    pub wilson: Option<Interval>,
    /// Intervals over whole clusters.
    pub bootstrap: Option<Intervals>,
}

/// Q(true token) − P(true token).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeltaP {
    /// Mean.
    pub mean: f64,
    /// Root mean square.
    pub rms: f64,
    /// 1st, 50th and 99th percentile.
    pub percentiles: [f64; 3],
}

/// exp of the mean negative log-likelihood of the true tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Perplexity {
    /// The teacher's.
    pub teacher: f64,
    /// The student's.
    pub student: f64,
    /// student / teacher.
    pub ratio: f64,
    /// Standard error of ln ratio, over clusters: the two perplexities are of the same tokens, so that the variance of
    /// their difference is corrected by their covariance.
    pub log_ratio_error: Option<f64>,
    /// Interval of the ratio from it (Student's t, clusters − 1).
    pub ratio_interval: Option<Interval>,
    /// Correlation of the two negative log-likelihoods.
    pub correlation: Option<f64>,
}

/// Positions at neighbouring places of their clusters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// First place, counted from 0 at the start of each cluster.
    pub from: usize,
    /// One past the last place.
    pub to: usize,
    /// Scored positions.
    pub positions: u64,
    /// Positions that agree.
    pub agree: u64,
    /// Mean KL, in nats.
    pub mean: f64,
    /// Greatest KL.
    pub max: f64,
}

impl Agreement {
    /// agree / of; NaN without positions.
    pub fn share(&self) -> f64 {
        self.agree as f64 / self.of as f64
    }
}

impl Summary {
    /// Sums up `positions`, where `clusters` says of which prompt or window each is.
    ///
    /// # Panics
    /// When there is not one cluster for each position.
    pub fn of(positions: &[Position], clusters: &[u32], options: &SummaryOptions) -> Self {
        todo!()
    }
}
