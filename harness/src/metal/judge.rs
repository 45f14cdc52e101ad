//! One launch, one verdict.

use mlx_parity_msl_emu::{Fault, Mode, Options, Outcome, Place, ThreadId, run};
use mlx_parity_tensor::HostTensor;

use super::{
    MetalError,
    launch::{Files, Prepared},
};
use crate::{
    compare::{BitReport, ToleranceReport, bit_exact, check_tolerance},
    ops::Bound,
};

/// Faults that are told in full.
const SHOWN: usize = 4;

/// What came of a launch.
#[derive(Debug, Clone, PartialEq)]
pub struct MetalVerdict {
    /// No fault was seen and every output is within its bound.
    pub held: bool,
    /// The values against the oracle's: of the output that is farthest over, or nearest to, its bound.
    pub tolerance: Option<ToleranceReport>,
    /// The first output whose bits another mode gave otherwise.
    pub bits: Option<BitReport>,
    /// Faults and what else is wrong.
    pub notes: Vec<String>,
    /// The outputs; none where a fault ended the run.
    pub outputs: Vec<HostTensor>,
    /// Time in the emulated kernel, in milliseconds.
    pub kernel_ms: f64,
}

/// Runs a launch in a mode and judges it; `before` are the outputs of another mode, which must be the same
/// where the kernel is not atomic.
///
/// # Errors
/// The emulator's, and an oracle that contradicts the kernel's form.
pub fn judge(
    prepared: &Prepared,
    mode: Mode,
    orders: u64,
    files: &Files,
    bound: Bound,
    before: Option<&[HostTensor]>,
) -> Result<MetalVerdict, MetalError> {
    let options = Options {
        mode,
        seeds: (0..orders.max(1)).collect(),
        cache: files.cache.clone(),
        include: if includes_mlx(prepared) { files.include.clone() } else { Vec::new() },
        ..Options::default()
    };
    let outcome = run(&prepared.kernel, &prepared.launch(), &options)?;
    let mut verdict = MetalVerdict {
        held: outcome.is_clean(),
        tolerance: None,
        bits: None,
        notes: faults(&outcome.faults),
        kernel_ms: outcome.elapsed.as_secs_f64() * 1e3,
        outputs: Vec::new(),
    };
    values(&mut verdict, prepared, &outcome, bound)?;
    if let (Some(before), false) = (before, is_atomic(prepared)) {
        same(&mut verdict, &outcome.outputs, before);
    }
    verdict.notes.extend(spread(&outcome));
    verdict.outputs = outcome.outputs;
    Ok(verdict)
}

/// Whether a kernel reads MLX's own headers; without them the emulator's take their place.
fn includes_mlx(prepared: &Prepared) -> bool {
    let kernel = &prepared.kernel;
    [&kernel.header, &kernel.body].iter().any(|source| source.text.contains("mlx/backend/metal"))
}

fn is_atomic(prepared: &Prepared) -> bool {
    let kernel = &prepared.kernel;
    kernel.atomic_outputs
        || [&kernel.header, &kernel.body].iter().any(|s| s.text.contains("atomic_"))
}

fn values(
    verdict: &mut MetalVerdict,
    prepared: &Prepared,
    outcome: &Outcome,
    bound: Bound,
) -> Result<(), MetalError> {
    for (output, answer) in outcome.outputs.iter().zip(&prepared.answers) {
        let (found, wanted) = (output.shape(), answer.value.shape());
        if found != wanted {
            verdict.held = false;
            verdict.notes.push(format!("an output has shape {found:?}, the oracle's {wanted:?}"));
            continue;
        }
        let (want, condition) = (answer.value.data(), answer.condition.data());
        let report = check_tolerance(&output.view(), want, condition, bound.units, bound.zeros)?;
        verdict.held &= report.held;
        let graver = |other: &ToleranceReport| {
            (!report.held, report.apart, report.minimum) > (!other.held, other.apart, other.minimum)
        };
        if verdict.tolerance.as_ref().is_none_or(graver) {
            verdict.tolerance = Some(report);
        }
    }
    if outcome.outputs.is_empty() && verdict.held {
        verdict.held = false;
        verdict.notes.push("the run gave no outputs".to_owned());
    }
    Ok(())
}

fn same(verdict: &mut MetalVerdict, outputs: &[HostTensor], before: &[HostTensor]) {
    for (got, want) in outputs.iter().zip(before) {
        let report = bit_exact(&got.view(), &want.view());
        if !report.is_exact() {
            verdict.held = false;
            verdict.notes.push("another mode gave other bits".to_owned());
            verdict.bits.get_or_insert(report);
        }
    }
}

fn faults(faults: &[Fault]) -> Vec<String> {
    let mut notes: Vec<_> = faults.iter().take(SHOWN).map(told).collect();
    if faults.len() > SHOWN {
        notes.push(format!("and {} faults more", faults.len() - SHOWN));
    }
    notes
}

/// `race at softmax.metal:14, thread [3, 0, 0] of group [0, 1, 0] …`
fn told(fault: &Fault) -> String {
    let Fault { kind, message, detector, seed, .. } = fault;
    let at = |place: &Option<Place>, thread: &Option<ThreadId>| {
        let place = place.as_ref().map(|Place { file, line }| format!(" at {file}:{line}"));
        let thread = thread
            .as_ref()
            .map(|ThreadId { group, local }| format!(", thread {local:?} of group {group:?}"));
        place.unwrap_or_default() + &thread.unwrap_or_default()
    };
    let kind = serde_json::to_string(kind).unwrap_or_default();
    let own = at(&fault.place, &fault.thread);
    let other = at(&fault.other_place, &fault.other_thread);
    let other = if other.is_empty() { other } else { format!("; the other{other}") };
    format!("{}{own}{other}: {message} (seen by {detector}, order {seed})", kind.trim_matches('"'))
}

fn spread(outcome: &Outcome) -> Option<String> {
    let most = outcome.spread.iter().copied().fold(0.0, |a, b| if b > a { b } else { a });
    (most > 0.0).then(|| format!("orders of its threads move an output by up to {most:.2e}"))
}
