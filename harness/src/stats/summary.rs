//! Many positions in a few numbers, with intervals.

use serde::{Deserialize, Serialize};

use super::agreement::Agreement;
use super::bootstrap::{Bootstrap, Intervals};
use super::clusters::Clusters;
use super::distribution::Distribution;
use super::perplexity::{DeltaP, Perplexity};
use super::position::{Position, null_is_nan};
use super::power::{minimum_detectable, rarest_seen};
use super::profile::{Profile, profile};
use super::sum::mean;

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
    /// Mean overlap of the likeliest tokens; NaN (`null` in JSON) without positions, as the means that follow.
    #[serde(deserialize_with = "null_is_nan")]
    pub top_k_overlap: f64,
    /// Mean entropy of the teacher, in nats.
    #[serde(deserialize_with = "null_is_nan")]
    pub entropy_teacher: f64,
    /// Mean entropy of the student, in nats.
    #[serde(deserialize_with = "null_is_nan")]
    pub entropy_student: f64,
    /// The teacher's margin, in nats.
    pub margin_teacher: Distribution,
    /// Change in the true token's probability, where every position has a true token.
    pub delta_p: Option<DeltaP>,
    /// Perplexities, where every position has a true token.
    pub perplexity: Option<Perplexity>,
    /// By place in the cluster, first places first.
    pub profile: Vec<Profile>,
    /// The least change of the mean KL that would have been seen with a chance of [`POWER`], in nats.
    pub detectable_kl: Option<f64>,
    /// The least part of disagreeing positions of which one would have been seen with a chance of [`POWER`], were they
    /// independent.
    pub detectable_disagreement: Option<f64>,
}

/// Scored positions, with their clusters and indices.
struct Scores<'a> {
    positions: Vec<&'a Position>,
    clusters: Vec<u32>,
    at: Vec<usize>,
}

impl<'a> Scores<'a> {
    fn of(positions: &'a [Position], clusters: &[u32], keep: impl Fn(&Position) -> bool) -> Self {
        let kept = (0..positions.len()).filter(|at| keep(&positions[*at]));
        let at: Vec<usize> = kept.collect();
        let clusters = at.iter().map(|at| clusters[*at]).collect();
        Self { positions: at.iter().map(|at| &positions[*at]).collect(), clusters, at }
    }

    fn values(&self, value: impl Fn(&Position) -> f64) -> Vec<f64> {
        self.positions.iter().map(|position| value(position)).collect()
    }

    fn distribution(&self, value: impl Fn(&Position) -> f64) -> Distribution {
        Distribution::of(&self.values(value), &self.at)
    }

    fn agreement(&self, bootstrap: &Bootstrap) -> Agreement {
        let agrees: Vec<bool> = self.positions.iter().map(|position| position.agree).collect();
        Agreement::of(&agrees, &self.clusters, bootstrap)
    }

    /// `None` without positions, or where one has no such value.
    fn all<T>(&self, value: impl Fn(&Position) -> Option<T>) -> Option<Vec<T>> {
        let values: Option<Vec<T>> = self.positions.iter().map(|p| value(p)).collect();
        values.filter(|values| !values.is_empty())
    }
}

impl Summary {
    /// Sums up `positions`, where `clusters` says of which prompt or window each is.
    ///
    /// # Panics
    /// When there is not one cluster for each position.
    pub fn of(positions: &[Position], clusters: &[u32], options: &SummaryOptions) -> Self {
        assert_eq!(positions.len(), clusters.len(), "one cluster for each position");
        let bootstrap = options.bootstrap();
        let scored = Scores::of(positions, clusters, Position::is_scored);
        let decided = Scores::of(positions, clusters, |p| {
            p.is_scored() && p.margin_teacher > options.noise_margin
        });
        let kl = scored.values(|p| p.kl);
        let kl_mean = bootstrap.mean(&kl, &scored.clusters);
        let tokens = scored.all(|p| p.true_token);
        let variation = scored.all(|p| p.total_variation);
        let known = scored.positions.len() as u64;
        Self {
            options: *options,
            positions: known,
            unscored: positions.len() as u64 - known,
            clusters: Clusters::new(scored.clusters.iter().copied()).count as u64,
            kl: Distribution::of(&kl, &scored.at),
            kl_mean,
            kl_p99: bootstrap.quantile(&kl, &scored.clusters, 0.99),
            reverse_kl: scored.distribution(|p| p.reverse_kl),
            total_variation: variation.map(|values| Distribution::of(&values, &scored.at)),
            agreement: scored.agreement(&bootstrap),
            decided: decided.agreement(&bootstrap),
            top_k_overlap: mean(&scored.values(|p| p.top_k_overlap)),
            entropy_teacher: mean(&scored.values(|p| p.entropy_teacher)),
            entropy_student: mean(&scored.values(|p| p.entropy_student)),
            margin_teacher: scored.distribution(|p| p.margin_teacher),
            delta_p: tokens.as_ref().map(|t| DeltaP::of(t.iter().map(|t| t.delta_p).collect())),
            perplexity: tokens.map(|t| Perplexity::of(&t, &scored.clusters, options.level)),
            profile: profile(positions, clusters, options.profile_bins),
            detectable_kl: kl_mean.map(|i| minimum_detectable(i.error, options.level, POWER)),
            detectable_disagreement: (known > 0).then(|| rarest_seen(known, POWER)),
        }
    }
}

impl SummaryOptions {
    fn bootstrap(&self) -> Bootstrap {
        Bootstrap { resamples: self.resamples, seed: self.seed, level: self.level }
    }
}
