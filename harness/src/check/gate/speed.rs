//! E10 on this machine: the composed ops and the kernel, interleaved.

use std::cell::Cell;
use std::time::{Duration, Instant};

use mlx_parity_engine::EngineError;
use mlx_parity_engine::kernels::{Prepared, Results};
use mlx_parity_kernels::ledger::{Evidence, Verdict};
use mlx_parity_kernels::limits::multiply_square;
use mlx_parity_kernels::{Buffer, Candidate, How, ShapeClass, Trial};
use mlx_parity_tensor::HostTensor;

use super::load::{self, Load};
use crate::{
    gate::{
        GateCase, GateRow,
        evidence::repeat,
        roofline,
        roofline::Roofline,
        speed::{self, ROUNDS, Round, Work},
        spread,
    },
    ops::Source,
};

/// Time that the rounds of a cell may take, beyond the fewest there must be.
const BUDGET: Duration = Duration::from_secs(1);
/// The same in a quick run, which has too few rounds where that is not enough.
const QUICK: Duration = Duration::from_millis(150);
/// Most rounds.
const MOST: usize = 60;
/// Bytes of operands to rotate through: beyond the last cache of any machine in use.
const ROTATED: usize = 128 << 20;
/// Most sets of operands.
const SETS: usize = 24;
/// Edge of the square product that measures the GEMM rate.
const EDGE: usize = 1024;

thread_local! {
    static ROOFLINE: Cell<Option<Roofline>> = const { Cell::new(None) };
}

/// The limits of this machine, measured once in the life of a worker: by our own product, which is many times faster than
/// that of MLX's portable BLAS.
fn limits() -> Roofline {
    if let Some(known) = ROOFLINE.get() {
        return known;
    }
    let values: Vec<f32> = (0..EDGE * EDGE).map(|i| (i % 7) as f32).collect();
    let flops = 2.0 * (EDGE as f64).powi(3);
    let gemm = roofline::rate(flops, || drop(multiply_square(&values, &values, EDGE)));
    let found = Roofline { bandwidth: roofline::bandwidth(), gemm };
    ROOFLINE.set(Some(found));
    found
}

/// Times a class and weighs the times.
pub(super) fn weigh(
    case: &GateCase,
    candidate: &dyn Candidate,
    class: &ShapeClass,
) -> Result<Vec<GateRow>, String> {
    let limits = limits();
    let first = candidate.trial(class, class.timed, case.dtype, 0);
    let work = work(candidate, &first)?;
    let sets = rotated(case, &first).map_err(|error| error.to_string())?;
    let before = answers(&sets[0])?;
    let before_rounds = Load::now();
    let rounds = rounds(&sets, case.quick).map_err(|error| error.to_string())?;
    let others = before_rounds.zip(Load::now()).map(|(from, to)| from.others_until(to));
    let ulp = spread(candidate, "host").map(|spread| spread.ulp);
    if let Some(what) = repeat::check(&before, &answers(&sets[0])?, ulp) {
        let what = format!("after the timed loop: {what}");
        return Ok(vec![GateRow::new(Evidence::Speed, Verdict::Failed, what)]);
    }
    let Some(timed) = speed::weigh(&rounds, work, &limits) else {
        let what = format!("{} rounds, wanted {ROUNDS}", rounds.len());
        return Ok(vec![GateRow::new(Evidence::Speed, Verdict::Weak, what)]);
    };
    let mut row = GateRow::new(Evidence::Speed, timed.verdict, timed.what);
    if let Some(others) = others.filter(|others| *others > load::MOST) {
        // Times of a machine that others use prove neither a gain nor a loss.
        Verdict::Weak.word().clone_into(&mut row.verdict);
        row.what += &format!("; others used {:.0} % of the machine meanwhile", 100.0 * others);
    }
    let numbers = [
        ("ratio", timed.ratio),
        ("low", timed.interval.low),
        ("high", timed.interval.high),
        ("noise", timed.noise),
        ("p_value", timed.p_value),
        ("of_limit", timed.of_limit),
        ("bandwidth", limits.bandwidth),
        ("gemm", limits.gemm),
        ("rounds", rounds.len() as f64),
        ("others", others.unwrap_or(f64::NAN)),
    ];
    let known = numbers.into_iter().filter(|(_, x)| x.is_finite());
    row.numbers = known.map(|(name, x)| (name.to_owned(), x)).collect();
    Ok(vec![row])
}

fn answers(set: &Prepared) -> Result<Vec<HostTensor>, String> {
    let fused = set.fused(How::new()).and_then(|results| results.to_host());
    fused.map_err(|error| error.to_string())
}

/// What a call moves and computes at least.
fn work(candidate: &dyn Candidate, trial: &Trial) -> Result<Work, String> {
    let call = trial.call();
    let results = candidate.results(&call).map_err(|error| error.to_string())?;
    let written: usize =
        results.iter().map(|(dtype, shape)| dtype.size() * shape.iter().product::<usize>()).sum();
    Ok(Work { bytes: (bytes(trial) + written) as f64, flops: candidate.flops(&call) })
}

/// Bytes of the operands as they are seen.
fn bytes(trial: &Trial) -> usize {
    let of = |buffer: &Buffer| buffer.data().dtype().size();
    let operands = trial.operands.iter();
    operands.map(|operand| of(&operand.buffer) * operand.shape.iter().product::<usize>()).sum()
}

/// The call with its operands at as many places in memory as make the caches forget the first.
fn rotated(case: &GateCase, trial: &Trial) -> Result<Vec<Prepared>, EngineError> {
    let most = if case.quick { 2 } else { SETS };
    let sets = (ROTATED / bytes(trial).max(1) + 1).clamp(2, most);
    (0..sets).map(|_| Prepared::new(&case.kernel, &trial.call())).collect()
}

fn rounds(sets: &[Prepared], quick: bool) -> Result<Vec<Round>, EngineError> {
    let mut order = Source::new(crate::ops::seed_of("gate/speed"));
    for set in sets.iter().take(2) {
        time(|| set.composed())?;
        time(|| set.fused(How::new()))?;
    }
    let (budget, fewest) = if quick { (QUICK, 2) } else { (BUDGET, ROUNDS) };
    let started = Instant::now();
    let mut rounds = Vec::new();
    let mut at = 0;
    while rounds.len() < fewest || (rounds.len() < MOST && started.elapsed() < budget) {
        let mut times = [0.0; 3];
        let mut lanes = [0, 1, 2];
        for i in (1..lanes.len()).rev() {
            lanes.swap(i, order.below(i + 1));
        }
        for lane in lanes {
            let set = &sets[at % sets.len()];
            at += 1;
            churn(&mut order);
            times[lane] = match lane {
                2 => time(|| set.fused(How::new()))?,
                _ => time(|| set.composed())?,
            };
        }
        let [composed, again, fused] = times;
        rounds.push(Round { composed, again, fused });
    }
    Ok(rounds)
}

fn time(run: impl FnOnce() -> Result<Results, EngineError>) -> Result<f64, EngineError> {
    let started = Instant::now();
    let results = run()?;
    let seconds = started.elapsed().as_secs_f64();
    drop(results);
    Ok(seconds)
}

/// Leaves the allocator in another state than the lane before.
fn churn(source: &mut Source) {
    let kept: Vec<Vec<u8>> = (0..8).map(|_| vec![1; 1 << (8 + source.below(12))]).collect();
    std::hint::black_box(&kept);
}
