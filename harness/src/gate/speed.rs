//! E10: paired times, and what follows from them.

use mlx_parity_kernels::ledger::Verdict;
use serde::{Deserialize, Serialize};

use super::roofline::Roofline;
use crate::stats::{Bootstrap, Interval, permutation};

/// Fewest rounds: of six, 64 orders of signs can be told apart.
pub const ROUNDS: usize = 6;
/// Part by which a time may be below the roofline's: the roofline is measured too.
const SLACK: f64 = 0.10;
/// Largest chance at which the lanes count as different.
const ALPHA: f64 = 0.05;

/// Times of one round, in seconds, all on the same operands.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Round {
    /// The composed ops.
    pub composed: f64,
    /// The composed ops again: what noise does.
    pub again: f64,
    /// The kernel.
    pub fused: f64,
}

/// What the call has to do at least.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// Bytes of operands and results.
    pub bytes: f64,
    /// Floating-point operations.
    pub flops: f64,
}

/// What the times say.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// Geometric mean of composed / fused.
    pub ratio: f64,
    /// Its 95 % interval.
    pub interval: Interval,
    /// How far composed / composed is from 1, at the far end of its interval.
    pub noise: f64,
    /// Chance of such a difference between equal lanes.
    pub p_value: f64,
    /// Part of the limit that the median kernel time reaches, and which limit it is.
    pub of_limit: f64,
    /// `bandwidth` or `GEMM rate`.
    pub limit: &'static str,
    /// The verdict.
    pub verdict: Verdict,
    /// In words.
    pub what: String,
}

/// Weighs rounds: the lower bound of the speed-up must be above 1 + noise, and no time above the roofline.
///
/// Intervals are of the mean log ratio, by the bootstrap over rounds; noise is the far end of that of the composed
/// path beside itself. `None` from fewer than [`ROUNDS`] rounds or for a time that is not positive.
pub fn weigh(rounds: &[Round], work: Work, roofline: &Roofline) -> Option<Timed> {
    let good = |x: f64| x.is_finite() && x > 0.0;
    let all_good = rounds.iter().all(|r| good(r.composed) && good(r.again) && good(r.fused));
    if rounds.len() < ROUNDS || !all_good {
        return None;
    }
    let logs = |of: fn(&Round) -> f64| rounds.iter().map(|r| of(r).ln()).collect::<Vec<_>>();
    let (composed, fused) = (logs(|r| (r.composed * r.again).sqrt()), logs(|r| r.fused));
    let each: Vec<u32> = (0..rounds.len() as u32).collect();
    let bootstrap = Bootstrap { resamples: 2_000, ..Bootstrap::default() };
    let gain: Vec<f64> = composed.iter().zip(&fused).map(|(b, c)| b - c).collect();
    let own: Vec<f64> = logs(|r| r.composed / r.again);
    let ends = |of: &[f64]| {
        bootstrap
            .mean(of, &each)
            .map(|i| (i.percentile.low.min(i.bca.low), i.percentile.high.max(i.bca.high)))
    };
    let ((low, high), (own_low, own_high)) = (ends(&gain)?, ends(&own)?);
    let noise = own_low.abs().max(own_high.abs()).exp() - 1.0;
    let p_value = permutation::paired(&composed, &fused, &each, 1 << 12, 0)?.p_value;
    let ratio = (gain.iter().sum::<f64>() / gain.len() as f64).exp();
    let interval = Interval { low: low.exp(), high: high.exp() };
    let fastest = rounds.iter().map(|r| r.fused).fold(f64::INFINITY, f64::min);
    let (least, limit) = roofline.least(work);
    let of_limit = least / median(rounds);
    let mut timed = Timed {
        ratio,
        interval,
        noise,
        p_value,
        of_limit,
        limit,
        verdict: Verdict::Held,
        what: String::new(),
    };
    timed.verdict = verdict(&timed, least / fastest);
    timed.what = told(&timed, least / fastest);
    Some(timed)
}

fn verdict(timed: &Timed, fastest: f64) -> Verdict {
    let Timed { interval, noise, p_value, .. } = timed;
    if !(fastest <= 1.0 + SLACK) {
        return Verdict::Failed;
    }
    if interval.low > 1.0 + noise && *p_value <= ALPHA {
        return Verdict::Held;
    }
    if interval.high < 1.0 { Verdict::Failed } else { Verdict::Weak }
}

fn told(timed: &Timed, fastest: f64) -> String {
    let Timed { ratio, interval: Interval { low, high }, noise, of_limit, limit, verdict, .. } =
        timed;
    let percent = 100.0 * of_limit;
    let numbers = format!(
        "{ratio:.2}× [{low:.2}, {high:.2}], noise {:.1} %, {percent:.0} % of {limit}",
        100.0 * noise
    );
    match verdict {
        Verdict::Held => numbers,
        Verdict::Failed if !(fastest <= 1.0 + SLACK) => {
            format!("{numbers}: above the roofline ({:.0} %), the times are wrong", 100.0 * fastest)
        }
        Verdict::Failed => format!("{numbers}: slower than the composed path"),
        _ => format!("{numbers}: no speed-up beyond the noise"),
    }
}

fn median(rounds: &[Round]) -> f64 {
    let mut times: Vec<f64> = rounds.iter().map(|round| round.fused).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
