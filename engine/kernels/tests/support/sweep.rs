//! A kernel over its lattice and its probes, as it is meant and with each of its bugs.

use mlx_parity_kernels::{Buffer, Candidate, Expected, How, Probe, Trial, candidate};
use mlx_parity_msl_emu::Outcome;
use mlx_parity_tensor::{Dtype, HostTensor};

use super::{Emulated, evidence, widened};

/// A candidate and which of its trials are small enough to be emulated.
#[derive(Clone, Copy)]
pub struct Subject {
    /// The candidate.
    pub candidate: &'static dyn Candidate,
    /// Whether a trial is small enough.
    pub fits: fn(&Trial) -> bool,
    /// Whether the baseline rounds at every step, as its composed ops do on every backend, or its sums once.
    pub rounds_steps: bool,
    /// Sums are made one product after the other; no baseline here sums like that.
    pub in_order: bool,
}

/// Floor of every error, in ulp of the largest value.
const FLOOR: f64 = 2.0;
/// The same in half types where sums are made in order.
const IN_ORDER: f64 = 4.25;

impl Subject {
    /// A candidate of the list.
    pub fn of(id: &str, fits: fn(&Trial) -> bool) -> Self {
        Self {
            candidate: candidate(id).expect("a candidate of this id"),
            fits,
            rounds_steps: false,
            in_order: false,
        }
    }

    /// The same beside a baseline that is the host's answer in the trial's own dtype: where no sums are made, MLX
    /// rounds at the same places on every backend.
    #[must_use]
    pub const fn rounding_steps(self) -> Self {
        Self { rounds_steps: true, ..self }
    }

    /// The same for sums that matrices of a simdgroup make one product after the other. The host's, in short sums, are
    /// several times nearer to float64 and no measure for them: float32 is held to the bound of E3, half types to a
    /// little above four ulp. E2 beside MLX's composed ops is the gate's (lane `metal-emulated`).
    #[must_use]
    pub const fn summing_in_order(self) -> Self {
        Self { in_order: true, ..self }
    }

    /// Its Metal kernel.
    pub fn emulated(&self) -> Emulated<'static> {
        let spec = self.candidate.spec();
        Emulated::new(spec.id, spec.metal.as_ref().expect("a Metal source"))
    }

    /// Every trial of its lattices that fits and that is not refused, seeds in turn, then its probes.
    pub fn probes(&self, dtype: Dtype) -> Vec<Probe> {
        let mut all = Vec::new();
        for class in self.candidate.classes() {
            let trials = class
                .lattice
                .iter()
                .zip(0..)
                .map(|(sizes, seed)| self.candidate.trial(class, sizes, dtype, seed));
            all.extend(trials.map(|trial| Probe { trial, expected: Expected::Reference }));
        }
        for class in self.candidate.classes() {
            all.extend(self.candidate.probes(class, dtype));
        }
        let emulated = self.emulated();
        all.retain(|probe| (self.fits)(&probe.trial) && !emulated.refuses(&probe.trial));
        all
    }

    /// That the kernel holds E0 and E2–E5 on every trial and probe; says how many there were.
    pub fn holds(&self, dtypes: &[Dtype]) -> usize {
        let mut count = 0;
        for &dtype in dtypes {
            for probe in self.probes(dtype) {
                let held = self.check(&self.emulated(), &probe);
                held.unwrap_or_else(|wrong| {
                    panic!("{} {} {}: {wrong}", self.id(), dtype.name(), probe.trial.name)
                });
                count += 1;
            }
        }
        assert!(count > 0, "{}: no trial is small enough", self.id());
        count
    }

    /// Metal mutants that no trial and no probe rejects, in the dtypes given.
    pub fn survivors(&self, dtypes: &[Dtype]) -> Vec<&'static str> {
        let probes: Vec<Probe> = dtypes.iter().flat_map(|&dtype| self.probes(dtype)).collect();
        let mutants = self.candidate.spec().mutants.iter().filter(|mutant| mutant.metal);
        let survives = |name: &&'static str| self.killer(name, &probes).is_none();
        mutants.map(|mutant| mutant.name).filter(survives).collect()
    }

    /// What rejects a mutant first.
    pub fn killer(&self, mutant: &'static str, probes: &[Probe]) -> Option<String> {
        let emulated = self.emulated().mutated(mutant);
        let killer = probes.iter().find_map(|probe| {
            let wrong = self.check(&emulated, probe).err()?;
            Some(format!("{}: {wrong}", probe.trial.name))
        });
        println!("{} {mutant}: {}", self.id(), killer.as_deref().unwrap_or("survives"));
        killer
    }

    /// Runs one probe; what is wrong with it.
    pub fn check(&self, emulated: &Emulated<'_>, probe: &Probe) -> Result<(), String> {
        let found = self.results(emulated, &probe.trial)?;
        match &probe.expected {
            Expected::Reference => self.near(&probe.trial, &found),
            Expected::Finite => finite(&found),
            Expected::SameAs(other) => {
                let other = self.results(emulated, other)?;
                let mut pairs = found.iter().zip(&other);
                pairs.try_for_each(|(found, wanted)| evidence::same(found, wanted))
            }
        }
    }

    fn id(&self) -> &'static str {
        self.candidate.spec().id
    }

    /// The results of a trial in the first order, once the run was clean and the orders agree.
    fn results(&self, emulated: &Emulated<'_>, trial: &Trial) -> Result<Vec<HostTensor>, String> {
        let outcome = clean(emulated.run(trial)?)?;
        self.spread(&outcome)?;
        let wanted = self.candidate.results(&trial.call()).map_err(|error| error.to_string())?;
        if outcome.outputs.len() != wanted.len() {
            return Err(format!("{} results, wanted {}", outcome.outputs.len(), wanted.len()));
        }
        let pairs = outcome.outputs.iter().zip(wanted);
        pairs.map(|(found, (dtype, shape))| shaped(found, dtype, &shape)).collect()
    }

    /// E5: orders of threads differ by no more than the candidate declares; without that the emulator wants bits.
    fn spread(&self, outcome: &Outcome) -> Result<(), String> {
        let declared = self.candidate.spec().spread.filter(|spread| spread.backend == "metal");
        let ulp = declared.map_or(0.0, |spread| f64::from(spread.ulp));
        for (found, &spread) in outcome.outputs.iter().zip(&outcome.spread) {
            evidence::spread(found, spread, ulp)?;
        }
        Ok(())
    }

    fn near(&self, trial: &Trial, outputs: &[HostTensor]) -> Result<(), String> {
        let exact = self.candidate.reference(&trial.call()).map_err(|error| error.to_string())?;
        let baselines = if self.in_order { exact.clone() } else { self.baseline(trial)? };
        for (i, found) in outputs.iter().enumerate() {
            let rounded = HostTensor::from_f64_as(found.dtype(), found.shape(), &baselines[i])
                .map_err(|error| error.to_string())?;
            let name = self.emulated().metal.outputs[i];
            let held = if self.in_order && found.dtype() == Dtype::F32 {
                evidence::twin(found, &exact[i])
            } else {
                let floor = if self.in_order { IN_ORDER } else { FLOOR };
                evidence::near_within(found, &exact[i], &rounded.to_f64(), floor)
            };
            held.map_err(|wrong| format!("`{name}`: {wrong}"))?;
        }
        Ok(())
    }

    /// The host's float32 twin: float accumulation, to be rounded once, as MLX's composed Metal kernels accumulate.
    /// The composed path on the CPU would be too kind a baseline, for there half types are summed in half types.
    fn baseline(&self, trial: &Trial) -> Result<Vec<Vec<f64>>, String> {
        let twin = if self.rounds_steps { trial.clone() } else { widened(trial) };
        let call = twin.call();
        let results = self.candidate.results(&call).map_err(|error| error.to_string())?;
        let buffer =
            |(dtype, shape): &(Dtype, Vec<usize>)| Buffer::zeros(*dtype, shape.iter().product());
        let mut buffers: Vec<Buffer> =
            results.iter().map(buffer).collect::<Option<_>>().expect("floats");
        let mut outs: Vec<_> = buffers.iter_mut().map(Buffer::out).collect();
        self.candidate.run(&call, How::new(), &mut outs).map_err(|error| error.to_string())?;
        let values =
            |buffer: &Buffer| buffer.to_host(&[buffer.data().len()]).expect("a tensor").to_f64();
        Ok(buffers.iter().map(values).collect())
    }
}

/// An outcome without faults: nothing out of bounds, uninitialised, unwritten or raced, and every order the same.
fn clean(outcome: Outcome) -> Result<Outcome, String> {
    match outcome.faults.first() {
        None => Ok(outcome),
        Some(fault) => {
            let line = fault.place.as_ref().map_or(0, |place| place.line);
            Err(format!("{:?} at line {line}: {}", fault.kind, fault.message))
        }
    }
}

/// A result of the given dtype; float32 ones, as of atomics, are rounded by whoever launches.
fn shaped(found: &HostTensor, dtype: Dtype, shape: &[usize]) -> Result<HostTensor, String> {
    if found.shape() != shape || (found.dtype() != dtype && found.dtype() != Dtype::F32) {
        return Err(format!("{} {:?}, wanted {dtype} {shape:?}", found.dtype(), found.shape()));
    }
    HostTensor::from_f64_as(dtype, shape, &found.to_f64()).map_err(|error| error.to_string())
}

fn finite(outputs: &[HostTensor]) -> Result<(), String> {
    for found in outputs {
        if let Some(at) = found.to_f64().iter().position(|value| value.is_nan()) {
            return Err(format!("element {at} is NaN"));
        }
    }
    Ok(())
}
