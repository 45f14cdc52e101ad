//! From a kernel and its arrays to outputs and faults.

use mlx_parity_tensor::HostTensor;

use crate::build::{Built, build, place_of};
use crate::check::{check, check_seeds};
use crate::execute::{Ran, RawFault, RawPlace, execute};
use crate::symbols::Symbols;
use crate::unit::Unit;
use crate::wrapper::Wrapper;
use crate::{EmuError, Fault, FaultKind, Kernel, Launch, Options, Outcome, Place, Source};

/// Compiles `kernel` and runs `launch` as `options` say.
///
/// A kernel that does something wrong gives an [`Outcome`] with faults; an error means that it was not run.
///
/// # Errors
/// [`EmuError`]: bad names, shapes or sizes, source that does not compile, no compiler, files that cannot be used.
pub fn run(kernel: &Kernel, launch: &Launch<'_>, options: &Options) -> Result<Outcome, EmuError> {
    check(kernel, launch)?;
    check_seeds(options)?;
    let wrapper = Wrapper::new(kernel, launch)?;
    if !wrapper.is_well_formed(launch) {
        return Err(EmuError::NoAttribute { kernel: kernel.name.clone() });
    }
    let unit = Unit::new(kernel, &wrapper, &options.include)?;
    let built = build(kernel, &unit, &[], options)?;
    let ran = execute(&built, &wrapper, kernel, launch, options)?;
    let faults = faults(kernel, &unit, &built, &ran)?;
    let mut outcome = Outcome {
        outputs: ran.outputs.first().cloned().unwrap_or_default(),
        orders: Vec::new(),
        faults,
        spread: Vec::new(),
        elapsed: ran.elapsed,
        cached: built.cached,
    };
    compare_orders(kernel, options, &ran, &mut outcome);
    uninitialised_locals(kernel, launch, options, (&wrapper, &unit, &built), &ran, &mut outcome)?;
    outcome.orders = options.seeds.iter().copied().zip(ran.outputs).collect();
    Ok(outcome)
}

/// The text that MLX generates for this kernel: header, function, instantiation.
///
/// # Errors
/// As [`run`], for names, shapes and dtypes.
pub fn metal_text(kernel: &Kernel, launch: &Launch<'_>) -> Result<String, EmuError> {
    check(kernel, launch)?;
    Ok(Wrapper::new(kernel, launch)?.metal_text(kernel))
}

fn faults(kernel: &Kernel, unit: &Unit, built: &Built, ran: &Ran) -> Result<Vec<Fault>, EmuError> {
    if ran.faults.is_empty() && ran.crash.is_none() && !ran.timed_out {
        return Ok(Vec::new());
    }
    let symbols = Symbols::open(&built.executable, &unit.files, &kernel.body)?;
    let mut faults: Vec<Fault> =
        ran.faults.iter().map(|raw| resolved(kernel, &symbols, raw)).collect();
    if let Some(message) = &ran.crash {
        faults.push(plain(kernel, FaultKind::Crash, message.clone(), "signal"));
    }
    if ran.timed_out {
        let message = "the kernel ran past its time limit and did not say where".to_owned();
        faults.push(plain(kernel, FaultKind::TimeLimit, message, "guard"));
    }
    Ok(faults)
}

fn plain(kernel: &Kernel, kind: FaultKind, message: String, detector: &str) -> Fault {
    Fault {
        kind,
        kernel: kernel.name.clone(),
        message,
        place: None,
        thread: None,
        other_place: None,
        other_thread: None,
        seed: 0,
        detector: detector.to_owned(),
    }
}

fn resolved(kernel: &Kernel, symbols: &Symbols<'_>, raw: &RawFault) -> Fault {
    let place = |raw: &RawPlace| {
        let site = raw.file.as_ref().and_then(|file| symbols.named(file)).zip(raw.line);
        site.map(|(file, line)| Place { file, line })
            .or_else(|| [raw.pc].iter().chain(&raw.callers).find_map(|&pc| symbols.place(pc)))
    };
    Fault {
        kind: raw.kind,
        kernel: kernel.name.clone(),
        message: raw.message.clone(),
        place: place(&raw.at),
        thread: raw.at.thread,
        other_place: place(&raw.other),
        other_thread: raw.other.thread,
        seed: raw.seed,
        detector: raw.detector.clone(),
    }
}

/// Whether an output may depend on the order of the threads by design: a float that atomics add to.
fn may_spread(kernel: &Kernel, output: &HostTensor) -> bool {
    let atomic = |source: &&Source| source.text.contains("atomic_");
    output.dtype().is_float()
        && (kernel.atomic_outputs || [&kernel.header, &kernel.body].iter().any(atomic))
}

fn compare_orders(kernel: &Kernel, options: &Options, ran: &Ran, outcome: &mut Outcome) {
    let Some((first, others)) = ran.outputs.split_first() else { return };
    if others.is_empty() {
        return;
    }
    outcome.spread = vec![0.0; first.len()];
    for (k, outputs) in others.iter().enumerate() {
        for (i, (a, b)) in first.iter().zip(outputs).enumerate() {
            let Some(difference) = difference(a, b) else { continue };
            outcome.spread[i] = outcome.spread[i].max(difference.largest);
            let known = outcome.faults.iter().any(|fault| fault.kind == FaultKind::OrderDependence);
            if may_spread(kernel, a) || known {
                continue;
            }
            let (here, there) = (options.seeds[0], options.seeds[k + 1]);
            let message = format!(
                "`{}` differs in {} elements between orders {here} and {there}; the first is element {}: {} and {}",
                kernel.outputs[i],
                difference.count,
                difference.first,
                a.value_at(difference.first),
                b.value_at(difference.first)
            );
            let fault = plain(kernel, FaultKind::OrderDependence, message, "permutation");
            outcome.faults.push(Fault { seed: there, ..fault });
        }
    }
}

struct Difference {
    count: usize,
    first: usize,
    largest: f64,
}

/// How two tensors of one shape differ in their bits.
fn difference(a: &HostTensor, b: &HostTensor) -> Option<Difference> {
    if a.bytes() == b.bytes() {
        return None;
    }
    let differing: Vec<_> = (0..a.len()).filter(|&i| a.bits_at(i) != b.bits_at(i)).collect();
    let distance = |&i: &usize| (a.value_at(i) - b.value_at(i)).abs();
    // A NaN on one side only is as far as can be.
    let largest = differing
        .iter()
        .map(distance)
        .fold(0.0, |most: f64, d| if d.is_nan() { f64::INFINITY } else { most.max(d) });
    Some(Difference { count: differing.len(), first: *differing.first()?, largest })
}

/// A local variable that the compiler says may be uninitialised, and whose first value shows in the outputs: they differ
/// between two builds that fill such variables differently.
fn uninitialised_locals(
    kernel: &Kernel,
    launch: &Launch<'_>,
    options: &Options,
    (wrapper, unit, built): (&Wrapper, &Unit, &Built),
    ran: &Ran,
    outcome: &mut Outcome,
) -> Result<(), EmuError> {
    let warns = |line: &&str| line.contains("uninitialized") && line.contains("warning:");
    let Some((place, warning)) = built
        .warnings
        .lines()
        .filter(warns)
        .find_map(|line| Some((place_of(line, &unit.files)?, line)))
    else {
        return Ok(());
    };
    let zeroed = build(kernel, unit, &["-ftrivial-auto-var-init=zero"], options)?;
    let again = execute(&zeroed, wrapper, kernel, launch, options)?;
    let same = match (ran.outputs.first(), again.outputs.first()) {
        (Some(a), Some(b)) => a.iter().zip(b).all(|(a, b)| a.bytes() == b.bytes()),
        _ => true,
    };
    if same {
        return Ok(());
    }
    let said = warning.split("warning:").nth(1).unwrap_or(warning).trim();
    let message = format!("{said}; the outputs depend on what it holds");
    let fault = plain(kernel, FaultKind::UninitialisedRead, message, "compiler");
    outcome.faults.push(Fault { place: Some(place), ..fault });
    Ok(())
}
