//! Whether a trajectory is worth being held to.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::stats::Position;

/// Distinct ids wanted of a trajectory, as a part of its positions: a loop of a few tokens tells little.
const DISTINCT: f64 = 0.25;
/// Mean entropy wanted, as parts of the largest there is, ln(vocabulary): a model that is sure of everything, or of
/// nothing, shows no error in its likeliest token.
const ENTROPY: [f64; 2] = [0.02, 0.95];
/// A margin below this, in nats, is one that an error may turn round.
const CLOSE: f64 = 1.0;
/// Part of positions that should have such a margin.
const CLOSE_SHARE: f64 = 0.1;

/// What one prompt's trajectory can tell apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TrajectoryStrength {
    /// Positions.
    pub positions: usize,
    /// Distinct ids among those that the positions predict.
    pub distinct: usize,
    /// Distinct likeliest tokens.
    pub choices: usize,
    /// Mean entropy, in nats.
    pub entropy: f64,
    /// The largest entropy there is, ln(vocabulary).
    pub entropy_of_noise: f64,
    /// Positions with a margin below 1 nat.
    pub close: usize,
    /// Tightest margin, in nats.
    pub tightest_margin: f64,
}

/// Why a trajectory is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Weakness {
    /// A loop.
    #[error("{distinct} distinct ids in {positions} positions, wanted at least {wanted}")]
    Loop {
        /// Distinct ids.
        distinct: usize,
        /// Positions.
        positions: usize,
        /// Fewest accepted.
        wanted: usize,
    },
    /// One choice after the other the same.
    #[error("{choices} likeliest tokens in {positions} positions, wanted at least {wanted}")]
    Choices {
        /// Distinct likeliest tokens.
        choices: usize,
        /// Positions.
        positions: usize,
        /// Fewest accepted.
        wanted: usize,
    },
    /// Too sure, or too unsure.
    #[error("mean entropy {found:.3} nats, wanted {low:.3} to {high:.3}")]
    Entropy {
        /// Mean entropy.
        found: f64,
        /// Least accepted.
        low: f64,
        /// Most accepted.
        high: f64,
    },
    /// No error would change a choice.
    #[error("{close} of {positions} positions have a margin below 1 nat, wanted at least {wanted}")]
    FarMargins {
        /// Positions with a close second.
        close: usize,
        /// Positions.
        positions: usize,
        /// Fewest accepted.
        wanted: usize,
    },
}

impl TrajectoryStrength {}

impl TrajectoryStrength {
    /// Of a trajectory scored against itself; `ids` are those that the positions predict.
    pub fn of(ids: &[u32], positions: &[Position], vocabulary: usize) -> Self {
        let margins = positions.iter().map(|position| position.margin_teacher);
        let entropy = positions.iter().map(|position| position.entropy_teacher).sum::<f64>();
        Self {
            positions: positions.len(),
            distinct: ids.iter().collect::<BTreeSet<_>>().len(),
            choices: positions.iter().map(|p| p.top1_teacher).collect::<BTreeSet<_>>().len(),
            entropy: entropy / positions.len() as f64,
            entropy_of_noise: (vocabulary as f64).ln(),
            close: margins.clone().filter(|margin| *margin < CLOSE).count(),
            tightest_margin: margins.fold(f64::INFINITY, f64::min),
        }
    }

    /// Every reason to refuse it.
    pub fn weaknesses(&self) -> Vec<Weakness> {
        let &Self { positions, distinct, choices, entropy, close, .. } = self;
        let part = |share: f64| (positions as f64 * share).ceil() as usize;
        let [low, high] = ENTROPY.map(|part| part * self.entropy_of_noise);
        let varied = part(DISTINCT);
        let wanted = part(CLOSE_SHARE);
        [
            (distinct < varied).then_some(Weakness::Loop { distinct, positions, wanted: varied }),
            // The model may repeat itself where the text does not, but not throughout.
            (choices < varied / 2).then_some(Weakness::Choices {
                choices,
                positions,
                wanted: varied / 2,
            }),
            (!(low..=high).contains(&entropy)).then_some(Weakness::Entropy {
                found: entropy,
                low,
                high,
            }),
            (close < wanted).then_some(Weakness::FarMargins { close, positions, wanted }),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
