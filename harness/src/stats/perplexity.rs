//! What two paths think of the true tokens.

use serde::{Deserialize, Serialize};

use super::bootstrap::student_t;
use super::clusters::Clusters;
use super::interval::Interval;
use super::position::TrueToken;
use super::quantile::of_sorted;
use super::sum::mean;

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

impl DeltaP {
    pub(super) fn of(mut values: Vec<f64>) -> Self {
        let (mean, squares) = (mean(&values), values.iter().map(|x| x * x).collect::<Vec<_>>());
        values.sort_unstable_by(f64::total_cmp);
        let percentiles = [0.01, 0.5, 0.99].map(|q| of_sorted(&values, q));
        Self { mean, rms: self::mean(&squares).sqrt(), percentiles }
    }
}

impl Perplexity {
    pub(super) fn of(tokens: &[TrueToken], clusters: &[u32], level: f64) -> Self {
        let [teacher, student] = [|t: &TrueToken| t.nll_teacher, |t: &TrueToken| t.nll_student]
            .map(|nll| tokens.iter().map(nll).collect::<Vec<f64>>());
        let gaps: Vec<f64> = student.iter().zip(&teacher).map(|(s, t)| s - t).collect();
        let (log_ratio, clusters) = (mean(&gaps), Clusters::new(clusters.iter().copied()));
        let log_ratio_error = clusters.mean_error(&gaps);
        let ratio_interval = log_ratio_error.map(|error| {
            let half = error * student_t(clusters.count, level);
            Interval { low: (log_ratio - half).exp(), high: (log_ratio + half).exp() }
        });
        Self {
            teacher: mean(&teacher).exp(),
            student: mean(&student).exp(),
            ratio: log_ratio.exp(),
            log_ratio_error,
            ratio_interval,
            correlation: correlation(&teacher, &student),
        }
    }
}

/// The correlation coefficient; `None` where one of both does not vary.
fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let (mean_a, mean_b) = (mean(a), mean(b));
    let product = |x: &[f64], mean_x: f64, y: &[f64], mean_y: f64| {
        mean(&x.iter().zip(y).map(|(x, y)| (x - mean_x) * (y - mean_y)).collect::<Vec<_>>())
    };
    let scale = (product(a, mean_a, a, mean_a) * product(b, mean_b, b, mean_b)).sqrt();
    (scale > 0.0).then(|| product(a, mean_a, b, mean_b) / scale)
}
