//! E7: a model with the lever pulled beside the same model without it.

use mlx_parity_kernels::ledger::Verdict;

use crate::{
    case::Bounds,
    envelope::{Controls, EnvelopeReport, judge},
    stats::Position,
};

/// Positions of the screen, and how many must agree.
pub const SCREENED: usize = 64;
/// Of [`SCREENED`] positions, so many must have the same likeliest token. By itself this proves little.
pub const SCREEN: u64 = 56;
/// Fewest models.
pub const MODELS: usize = 2;
/// Fewest positions of a model.
pub const POSITIONS: u64 = 256;
/// Fewest prompts.
pub const PROMPTS: u64 = 4;

/// What a kernel may change (design §5, E7): at most 1e-2 nats in the mean, beyond what the control does, with decided
/// positions that agree at 0.95 or more. The 99th percentile has no bound of its own there; ten times the mean's keeps
/// a rare large error from hiding in it.
pub const BOUNDS: Bounds = Bounds { max_mean: 1e-2, max_p99: 1e-1, min_agreement: 0.95 };

/// One model's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Modelled {
    /// The envelope.
    pub report: EnvelopeReport,
    /// Positions among the first [`SCREENED`] that agree.
    pub screen: u64,
    /// The verdict.
    pub verdict: Verdict,
    /// In words.
    pub what: String,
}

/// Positions among the first [`SCREENED`] whose likeliest token is the composed path's.
pub fn screen(positions: &[Position]) -> u64 {
    positions.iter().take(SCREENED).filter(|position| position.agree).count() as u64
}

/// Weighs the positions of a model under the lever; `dispatches` are the calls that the kernel took of this class.
pub fn weigh(
    positions: &[Position],
    controls: &Controls,
    clusters: &[u32],
    dispatches: u64,
) -> Modelled {
    let report = judge(positions, controls, clusters, BOUNDS);
    let screen = screen(positions);
    let verdict = verdict(&report, screen, dispatches);
    let what = told(&report, screen, dispatches, verdict);
    Modelled { report, screen, verdict, what }
}

fn verdict(report: &EnvelopeReport, screen: u64, dispatches: u64) -> Verdict {
    if dispatches == 0 {
        return Verdict::Missing;
    }
    // One prompt has no interval: bounds cannot be broken.
    let broken = report.prompts > 1 && !report.broken.is_empty();
    if broken || screen < SCREEN {
        return Verdict::Failed;
    }
    let few = report.positions < POSITIONS || report.prompts < PROMPTS;
    if few || !report.refused.is_empty() { Verdict::Weak } else { Verdict::Held }
}

fn told(report: &EnvelopeReport, screen: u64, dispatches: u64, verdict: Verdict) -> String {
    let agreement = report.decided.wilson.map_or(0.0, |interval| interval.low);
    let kl = if report.excess.high == 0.0 {
        "0".to_owned()
    } else {
        format!("{:.1e}", report.excess.high)
    };
    let control = report.again.mean_high;
    let control = if control == 0.0 { "0".to_owned() } else { format!("{control:.1e}") };
    let numbers = format!(
        "KL ≤ {kl} (95 %), control {control}, decided agreement ≥ {agreement:.3}, {screen}/{SCREENED}, {dispatches} dispatches"
    );
    if report.prompts < 2 && verdict == Verdict::Weak {
        let mean = report.kl.mean;
        return format!(
            "KL {mean:.1e}, {screen}/{SCREENED}, {dispatches} dispatches: {} prompt, an interval takes two",
            report.prompts
        );
    }
    let reason = report.broken.first().or(report.refused.first());
    match (verdict, reason) {
        (Verdict::Missing, _) => "the kernel took no call of this class".to_owned(),
        (Verdict::Held, _) => numbers,
        (_, Some(reason)) => format!("{numbers}: {reason}"),
        (Verdict::Failed, None) => format!("{numbers}: wanted at least {SCREEN}/{SCREENED}"),
        (_, None) => format!(
            "{numbers}: {} positions of {} prompts, wanted {POSITIONS} of {PROMPTS}",
            report.positions, report.prompts
        ),
    }
}
