//! The lane `metal-emulated`: a candidate's Metal source on the CPU, watched. It can reject, never promote.
//!
//! A kernel is judged by its distance from float64 beside that of the composed ops: in float32, rounded once, which is how
//! MLX's composed Metal kernels accumulate; in the trial's own dtype where the kernel claims to be exact, since it rounds
//! where they do. Claims of exactness are against Metal's arithmetic, which no CPU has.

use mlx_parity_kernels::{
    Buffer, Candidate, Claim, Expected, KernelError, Metal, MetalLaunch, Operand, Probe,
    ShapeClass, Trial,
    ledger::{Evidence, Verdict},
};
use mlx_parity_msl_emu::{
    EmuError, Fault, Input, Kernel, Launch, Mode, Options, Outcome, Output, Source, TemplateArg,
    run,
};
use mlx_parity_tensor::{Dtype, HostTensor};

use super::{
    bank::Composed,
    case::{GateCase, GateRow},
    evidence::{error, probes, sanity, twin},
    memory::Answer,
    mutants::{self, MutantReport},
    weigh::{Tally, Weighed},
};
use crate::metal::Files;

/// Orders of threads that every launch is run in, and must agree in: E5.
const ORDERS: [u64; 3] = [0, 1, 2];
/// Work of a trial that is emulated, at most: multiply-adds, and elements of operands and results.
const WORK: usize = 1 << 20;
/// Trials of a cell, at most, of each part.
const TRIALS: usize = 10;
/// Probes of a cell, at most: each is for one kind of bug.
const PROBES: usize = 40;

/// A Metal kernel, with or without a bug.
struct Emulated<'a> {
    id: &'static str,
    metal: &'a Metal,
    mutant: Option<&'static str>,
    files: &'a Files,
}

/// What one launch gave: results, or faults in words.
type Ran = Result<Vec<HostTensor>, Wrong>;

enum Wrong {
    /// The kernel is wrong.
    Kernel(String),
    /// The launch does not take this call; the composed path does.
    NotTaken,
    /// It could not be run here.
    Machine(String),
}

impl Emulated<'_> {
    fn run(&self, trial: &Trial) -> Ran {
        let planned = (self.metal.launch)(&trial.call()).map_err(|error| match error {
            KernelError::Unsupported { .. } => Wrong::NotTaken,
            KernelError::Malformed { .. } => Wrong::Kernel(error.to_string()),
        })?;
        let known = |name: &&'static str| {
            trial.operands.iter().chain(&planned.numbers).find(|operand| operand.name == *name)
        };
        // A launch takes the inputs that its call has.
        let operands: Vec<&Operand> = self.metal.inputs.iter().filter_map(known).collect();
        let storages: Vec<HostTensor> = operands.iter().map(|of| storage(&of.buffer)).collect();
        let launch = Launch {
            inputs: operands
                .iter()
                .zip(&storages)
                .map(|(of, storage)| viewed(of, storage))
                .collect(),
            outputs: planned
                .outputs
                .iter()
                .map(|(dtype, shape)| Output { dtype: *dtype, shape: shape.clone() })
                .collect(),
            template: template(&planned),
            grid: planned.grid,
            group: planned.group,
            init_value: planned.init_value,
        };
        match run(&self.kernel(&planned, &operands), &launch, &self.options()) {
            Ok(outcome) => clean(outcome),
            Err(error @ (EmuError::NoCompiler { .. } | EmuError::Io { .. })) => {
                Err(Wrong::Machine(error.to_string()))
            }
            Err(error) => Err(Wrong::Kernel(error.to_string())),
        }
    }

    fn kernel(&self, planned: &MetalLaunch, operands: &[&Operand]) -> Kernel {
        let Metal { header, body, outputs, .. } = self.metal;
        let inputs: Vec<&str> = operands.iter().map(|operand| operand.name).collect();
        let body = Source::new(body.path, body.text);
        let mut kernel = Kernel::new(self.id, body, &inputs, &outputs[..planned.outputs.len()]);
        let mut defines: String = planned
            .defines
            .iter()
            .map(|(name, value)| format!("#define {name} {value}\n"))
            .collect();
        if let Some(mutant) = self.mutant {
            defines += &format!("#define MUTANT_{mutant}\n");
        }
        let text = format!("{defines}#line 1 \"{}\"\n{}", header.path, header.text);
        kernel.header = Source::new(header.path, text);
        kernel.ensure_row_contiguous = self.metal.row_contiguous;
        kernel.atomic_outputs = self.metal.atomic_outputs;
        kernel
    }

    fn options(&self) -> Options {
        Options {
            mode: Mode::Fibers,
            seeds: ORDERS.to_vec(),
            cache: self.files.cache.clone(),
            ..Options::default()
        }
    }
}

fn storage(buffer: &Buffer) -> HostTensor {
    buffer.to_host(&[buffer.data().len()]).expect("as many elements as there are")
}

fn viewed<'a>(operand: &Operand, storage: &'a HostTensor) -> Input<'a> {
    Input {
        storage,
        shape: operand.shape.clone(),
        strides: operand.strides.iter().map(|&stride| stride as i64).collect(),
        offset: operand.offset,
    }
}

fn template(planned: &MetalLaunch) -> Vec<(String, TemplateArg)> {
    let dtypes = planned.dtypes.iter().map(|&(name, dtype)| (name, TemplateArg::Dtype(dtype)));
    let ints = planned.ints.iter().map(|&(name, value)| (name, TemplateArg::Int(value)));
    dtypes.chain(ints).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn clean(outcome: Outcome) -> Ran {
    match outcome.faults.first() {
        None => Ok(outcome.outputs),
        Some(Fault { kind, message, place, .. }) => {
            let at = place.as_ref().map(|place| format!(" at {}:{}", place.file, place.line));
            Err(Wrong::Kernel(format!("{kind:?}{}: {message}", at.unwrap_or_default())))
        }
    }
}

/// A trial with its float64 results and what stands for the baseline.
struct Tried {
    probe: Probe,
    exact: Vec<Vec<f64>>,
    baseline: Vec<HostTensor>,
    /// Dtypes of the results.
    forms: Vec<Dtype>,
    part: Part,
}

/// What a trial is tried for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// A size of the lattice.
    Lattice,
    /// A size of the lattice in a float32 cell, which is its own twin.
    Single,
    /// A size of the lattice in float32.
    Twin,
    /// A probe.
    Probe,
}

/// An output as the engine takes it: what is accumulated in float32 by atomics is rounded to the result's dtype then.
fn as_result(found: &HostTensor, dtype: Dtype) -> HostTensor {
    if found.dtype() == dtype {
        return found.clone();
    }
    let rounded = HostTensor::from_f64_as(dtype, found.shape(), &found.to_f64());
    rounded.unwrap_or_else(|_| found.clone())
}

/// E0 and E2 to E5 of a candidate's Metal source, and E9 of its mutants where that is asked.
///
/// # Errors
/// Where a trial has no baseline.
pub fn weigh(
    case: &GateCase,
    candidate: &dyn Candidate,
    composed: &dyn Composed,
    class: &ShapeClass,
    files: &Files,
    with_mutants: bool,
) -> Result<Vec<GateRow>, String> {
    let spec = candidate.spec();
    let kinds = case.evidence();
    let missing = |what: &str| {
        kinds.iter().map(|kind| GateRow::new(*kind, Verdict::Missing, what)).collect::<Vec<_>>()
    };
    let Some(metal) = &spec.metal else { return Ok(missing("no Metal source")) };
    let tried = tried(candidate, composed, class, case.dtype)?;
    if tried.is_empty() {
        return Ok(missing("no trial is small enough to be emulated"));
    }
    let emulated = |mutant| Emulated { id: spec.id, metal, mutant, files };
    let clean = match weighed(&emulated(None), &tried, false) {
        Ok(weighed) => weighed,
        Err(why) => return Ok(missing(&format!("not run: {why}"))),
    };
    let mut rows: Vec<GateRow> = kinds
        .iter()
        .filter(|kind| **kind != Evidence::Power)
        .map(|kind| row(*kind, &clean.tallies))
        .collect();
    if with_mutants {
        let names = spec.mutants.iter().filter(|mutant| mutant.metal);
        let mut reports = Vec::new();
        for mutant in names {
            let found = weighed(&emulated(Some(mutant.name)), &tried, true)?;
            reports.push(MutantReport::new(mutant, &found, &clean));
        }
        let (verdict, what) = mutants::finding(&reports);
        rows.push(GateRow { mutants: reports, ..GateRow::new(Evidence::Power, verdict, what) });
    }
    Ok(rows)
}

fn row(kind: Evidence, tallies: &[Tally; 6]) -> GateRow {
    let tally = &tallies[kind as usize];
    let count = tally.count;
    match &tally.breach {
        Some(breach) => {
            let what = format!("{}: {}", breach.trial, breach.what);
            GateRow::new(kind, Verdict::Failed, what)
        }
        None if count == 0 => GateRow::new(kind, Verdict::NotApplicable, "no such trial"),
        None => {
            let what = match kind {
                Evidence::Sanity => format!("{count} launches, no fault, every access watched"),
                Evidence::Repeat => format!("{count} launches the same in {} orders", ORDERS.len()),
                _ => format!("{count} launches"),
            };
            GateRow::new(kind, Verdict::Held, what)
        }
    }
}

/// Runs every trial, up to the first that rejects where that is enough; `Err` where nothing can be run here.
fn weighed(
    emulated: &Emulated<'_>,
    tried: &[Tried],
    until_rejected: bool,
) -> Result<Weighed, String> {
    let mut weighed = Weighed::default();
    for of in tried {
        let results = one(emulated, of, &mut weighed.tallies)?;
        weighed.seen.push(results);
        if until_rejected && weighed.tallies.iter().any(|tally| tally.breach.is_some()) {
            break;
        }
    }
    Ok(weighed)
}

/// Runs one trial; its results, where there are any.
fn one(
    emulated: &Emulated<'_>,
    of: &Tried,
    tallies: &mut [Tally; 6],
) -> Result<Option<Vec<HostTensor>>, String> {
    let name = &of.probe.trial.name;
    let mut saw = |kind: Evidence, breach: Option<String>| {
        let tally = &mut tallies[kind as usize];
        tally.count += 1;
        if let (None, Some(what)) = (&tally.breach, breach) {
            tally.breach = Some(super::weigh::Breach {
                trial: name.clone(),
                twin: of.part == Part::Twin,
                what,
            });
        }
    };
    let results = match emulated.run(&of.probe.trial) {
        Ok(results) => results,
        Err(Wrong::Machine(why)) => return Err(why),
        Err(Wrong::NotTaken) => return Ok(None),
        Err(Wrong::Kernel(what)) => {
            let kind = if what.starts_with("OrderDependence") {
                Evidence::Repeat
            } else {
                Evidence::Sanity
            };
            saw(kind, Some(what));
            return Ok(None);
        }
    };
    let results = results.iter().zip(&of.forms).map(|(found, dtype)| as_result(found, *dtype));
    let answer = Answer { results: results.collect(), misdeeds: Vec::new() };
    match &of.probe.expected {
        Expected::Finite => saw(Evidence::Probes, probes::no_nan(&answer.results)),
        Expected::SameAs(other) => match emulated.run(other) {
            Ok(other) => {
                let other =
                    other.iter().zip(&of.forms).map(|(found, dtype)| as_result(found, *dtype));
                saw(Evidence::Probes, probes::same(&answer.results, &other.collect::<Vec<_>>()));
            }
            Err(Wrong::Machine(why)) => return Err(why),
            Err(Wrong::NotTaken) => {}
            Err(Wrong::Kernel(what)) => saw(Evidence::Probes, Some(what)),
        },
        Expected::Reference => {
            saw(Evidence::Sanity, sanity::check(&answer, &of.baseline, &of.exact));
            saw(Evidence::Repeat, None);
            let results = answer.results.iter().zip(&of.baseline).zip(&of.exact);
            let far = results
                .clone()
                .find_map(|((found, baseline), exact)| error::check(found, baseline, exact).breach);
            let twin = results.clone().find_map(|((found, _), exact)| twin::check(found, exact).1);
            match of.part {
                Part::Lattice => saw(Evidence::Error, far),
                Part::Twin => saw(Evidence::Twin, twin),
                Part::Single => {
                    saw(Evidence::Error, far);
                    saw(Evidence::Twin, twin);
                }
                Part::Probe => saw(Evidence::Probes, far),
            }
        }
    }
    Ok(Some(answer.results))
}

/// Trials and probes of a class that are small enough, each with what is right.
fn tried(
    candidate: &dyn Candidate,
    composed: &dyn Composed,
    class: &ShapeClass,
    dtype: Dtype,
) -> Result<Vec<Tried>, String> {
    let lattice = |dtype| {
        let trial = move |sizes: &&'static [usize]| candidate.trial(class, sizes, dtype, 0);
        let probe = |trial| Probe { trial, expected: Expected::Reference };
        of_every_size(candidate, class.lattice.iter().map(trial).map(probe).collect(), TRIALS)
    };
    let half = dtype != Dtype::F32;
    let twins = half && candidate.spec().dtypes.contains(&Dtype::F32);
    let parts = [
        (if half { Part::Lattice } else { Part::Single }, lattice(dtype)),
        (Part::Twin, if twins { lattice(Dtype::F32) } else { Vec::new() }),
        (Part::Probe, of_every_size(candidate, candidate.probes(class, dtype), PROBES)),
    ];
    let all =
        parts.into_iter().flat_map(|(part, probes)| probes.into_iter().map(move |of| (part, of)));
    all.map(|(part, probe)| judged(candidate, composed, probe, part)).collect()
}

/// Of those that are small enough to be emulated some of every size, the smallest and the largest among them; the
/// smallest first.
fn of_every_size(candidate: &dyn Candidate, probes: Vec<Probe>, most: usize) -> Vec<Probe> {
    let sized = probes.into_iter().map(|probe| (work(candidate, &probe.trial), probe));
    let mut fit: Vec<_> = sized.filter(|(work, _)| *work <= WORK).collect();
    fit.sort_by_key(|(work, _)| *work);
    let last = fit.len().saturating_sub(1);
    let taken = most.min(fit.len());
    let wanted: Vec<usize> = (0..taken).map(|at| at * last / (taken - 1).max(1)).collect();
    let all = fit.into_iter().enumerate();
    all.filter(|(at, _)| wanted.contains(at)).map(|(_, (_, probe))| probe).collect()
}

fn work(candidate: &dyn Candidate, trial: &Trial) -> usize {
    let call = trial.call();
    let Ok(results) = candidate.results(&call) else { return usize::MAX };
    let results: usize = results.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
    let operands: usize = trial.operands.iter().map(|of| of.shape.iter().product::<usize>()).sum();
    (candidate.flops(&call) / 2.0) as usize + results + operands
}

fn judged(
    candidate: &dyn Candidate,
    composed: &dyn Composed,
    probe: Probe,
    part: Part,
) -> Result<Tried, String> {
    let named = |error: String| format!("{}: {error}", probe.trial.name);
    let forms = candidate.results(&probe.trial.call()).map_err(|e| named(e.to_string()))?;
    let dtypes = forms.iter().map(|(dtype, _)| *dtype).collect();
    if probe.expected != Expected::Reference {
        let (exact, baseline) = (Vec::new(), Vec::new());
        return Ok(Tried { probe, exact, baseline, forms: dtypes, part });
    }
    let exact = candidate.reference(&probe.trial.call()).map_err(|e| named(e.to_string()))?;
    let spec = candidate.spec();
    let composed = |trial: &Trial| composed.baseline(spec.id, &trial.call());
    let single = match spec.claim {
        Claim::Exact => composed(&probe.trial),
        Claim::Envelope => composed(&widened(&probe.trial)),
    };
    let rounded = |(found, (dtype, shape)): (&HostTensor, &(Dtype, Vec<usize>))| {
        HostTensor::from_f64_as(*dtype, shape.clone(), &found.to_f64()).map_err(|e| e.to_string())
    };
    let single = single.map_err(named)?;
    let baseline = single.iter().zip(&forms).map(rounded).collect::<Result<Vec<_>, _>>()?;
    Ok(Tried { probe, exact, baseline, forms: dtypes, part })
}

/// The same trial with every half widened to float32.
fn widened(trial: &Trial) -> Trial {
    let mut twin = trial.clone();
    for operand in &mut twin.operands {
        operand.buffer = match &operand.buffer {
            Buffer::F16(bits) => {
                Buffer::F32(bits.iter().map(|bits| half::f16::from_bits(*bits).to_f32()).collect())
            }
            Buffer::Bf16(bits) => {
                Buffer::F32(bits.iter().map(|bits| half::bf16::from_bits(*bits).to_f32()).collect())
            }
            other => other.clone(),
        };
    }
    twin
}
