//! Envelopes: whether a composition that may differ from a frozen trajectory differs little enough, and surely so
//! (design §4, L3). Pure functions over scored positions.
//!
//! Every verdict is beside the control lanes, the same model's L1 path played anew: *again*, as it was frozen, which
//! must repeat the trajectory bit for bit, and *split*, one prompt token a call, which shows what rounding alone does.
//! A composition is held to the unfavourable end of each interval, its mean to that of what it adds to *again*. A bound
//! that no composition could break but by chance, because it is below what *split* reaches, is refused.

mod lane;
mod strength;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::{
    lane::Lane,
    strength::{TrajectoryStrength, Weakness},
};
use crate::{
    case::Bounds,
    stats::{Agreement, Bootstrap, Distribution, Interval, Position, Summary, SummaryOptions},
};

/// A composition beside its trajectory and its controls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnvelopeReport {
    /// Scored positions.
    pub positions: u64,
    /// Prompts they are of.
    pub prompts: u64,
    /// KL(trajectory‖composition), in nats.
    pub kl: Distribution,
    /// Interval of what the mean adds to that of the control *again*.
    pub excess: Interval,
    /// Interval of the 99th percentile.
    pub p99: Interval,
    /// Positions whose likeliest token is the trajectory's.
    pub agreement: Agreement,
    /// The same of positions that are decided: whose margin is above `noise_margin`.
    pub decided: Agreement,
    /// The greatest margin, in nats, at which the control *split* chose another token; 0 where it never did.
    pub noise_margin: f64,
    /// The control *again*.
    pub again: Lane,
    /// The control *split*.
    pub split: Lane,
    /// What it is held to.
    pub bounds: Bounds,
    /// Bounds that cannot be kept, or not broken but by chance, in words.
    pub refused: Vec<String>,
    /// Bounds that are broken, in words.
    pub broken: Vec<String>,
}

/// The controls of one model.
#[derive(Debug, Clone, Default)]
pub struct Controls {
    /// Positions of *again*.
    pub again: Vec<Position>,
    /// Positions of *split*.
    pub split: Vec<Position>,
}

/// Holds `positions` of a composition to `bounds`. `clusters` says of which prompt each is; controls have the same
/// positions in the same order.
///
/// # Panics
/// When there is not one cluster, and one position of each control, for each position.
pub fn judge(
    positions: &[Position],
    controls: &Controls,
    clusters: &[u32],
    bounds: Bounds,
) -> EnvelopeReport {
    assert_eq!(positions.len(), controls.again.len(), "as many positions in the control again");
    let noise_margin = lane::noise_margin(&controls.split);
    let options = SummaryOptions { noise_margin, ..SummaryOptions::default() };
    let summary = Summary::of(positions, clusters, &options);
    let added: Vec<f64> =
        positions.iter().zip(&controls.again).map(|(own, again)| own.kl - again.kl).collect();
    let excess = Bootstrap::default().mean(&added, clusters);
    let mut report = EnvelopeReport {
        positions: summary.positions,
        prompts: summary.clusters,
        kl: summary.kl,
        excess: lane::widest(excess),
        p99: lane::widest(summary.kl_p99),
        agreement: summary.agreement,
        decided: summary.decided,
        noise_margin,
        again: Lane::of(&controls.again, clusters),
        split: Lane::of(&controls.split, clusters),
        bounds,
        refused: Vec::new(),
        broken: Vec::new(),
    };
    report.refused = report.refusals();
    report.broken = report.breaches(summary.unscored);
    report
}

impl EnvelopeReport {
    /// Whether every bound may be asked for and is kept.
    pub fn held(&self) -> bool {
        self.refused.is_empty() && self.broken.is_empty()
    }

    fn refusals(&self) -> Vec<String> {
        let Self { bounds, again, split, decided, .. } = self;
        let floor = |name: &str, bound: f64, again: f64, split: f64| {
            let floor = again.max(split);
            // Written so that a floor that is NaN refuses.
            (!(floor < bound)).then(|| {
                format!("{name} = {bound:e} is not above what the control reaches, {floor:.1e}")
            })
        };
        let best = crate::stats::wilson::wilson(decided.of, decided.of, LEVEL);
        let most = best.map_or(0.0, |interval| interval.low);
        let unattainable = (!(bounds.min_agreement <= most)).then(|| {
            format!(
                "min-agreement = {} is more than {} decided positions can show, {most:.4}",
                bounds.min_agreement, decided.of
            )
        });
        [
            floor("max-mean", bounds.max_mean, again.mean_high, split.mean_high),
            floor("max-p99", bounds.max_p99, again.p99_high, split.p99_high),
            unattainable,
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn breaches(&self, unscored: u64) -> Vec<String> {
        let Self { bounds, excess, p99, decided, .. } = self;
        let least = decided.wilson.map_or(0.0, |interval| interval.low);
        let above = |name: &str, high: f64, bound: f64| {
            (!(high <= bound))
                .then(|| format!("{name} may be {high:.2e}, wanted at most {bound:e}"))
        };
        [
            (unscored > 0).then(|| format!("{unscored} positions with a NaN or an infinity")),
            above("mean KL", excess.high, bounds.max_mean),
            above("p99 of KL", p99.high, bounds.max_p99),
            (!(least >= bounds.min_agreement)).then(|| {
                format!(
                    "decided agreement may be {least:.4} ({}/{}), wanted at least {}",
                    decided.agree, decided.of, bounds.min_agreement
                )
            }),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Level of confidence of every interval.
const LEVEL: f64 = 0.95;

/// `KL 1.2e-6 ≤ 3.4e-6 (control 0, split 2.0e-9), agree 256/256`
impl fmt::Display for EnvelopeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kl, excess, again, split, agreement, .. } = self;
        write!(
            f,
            "KL {} ≤ {} (control {}, split {}), agree {}/{}",
            nats(kl.mean),
            nats(excess.high),
            nats(again.mean),
            nats(split.mean),
            agreement.agree,
            agreement.of
        )
    }
}

fn nats(x: f64) -> String {
    if x == 0.0 { "0".to_owned() } else { format!("{x:.1e}") }
}

#[cfg(test)]
mod tests;
