//! The calls that a cell is tried on, each with what is known about it.

use mlx_parity_kernels::{Call, Candidate, Expected, ShapeClass, Trial};
use mlx_parity_tensor::{Dtype, HostTensor};

/// Who computes the baseline of a kernel: the composed ops that it would replace.
pub trait Composed {
    /// The results of the baseline for a call.
    ///
    /// # Errors
    /// Why there are none.
    fn baseline(&self, kernel: &str, call: &Call<'_>) -> Result<Vec<HostTensor>, String>;
}

/// How much is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Every size, with two draws of its operands.
    Full,
    /// Every third size, with one: enough to reject, too little to promote.
    Quick,
}

/// Draws that trials choose among by their seed.
const DRAWS: u64 = 4;

/// A call with its baseline's results and those of float64.
#[derive(Debug, Clone)]
pub struct Known {
    /// The call.
    pub trial: Trial,
    /// Results of the baseline.
    pub baseline: Vec<HostTensor>,
    /// Results in float64.
    pub exact: Vec<Vec<f64>>,
}

impl Known {
    /// Asks both.
    ///
    /// # Errors
    /// What either says, with the trial's name.
    pub fn new(
        candidate: &dyn Candidate,
        composed: &dyn Composed,
        trial: Trial,
    ) -> Result<Self, String> {
        let call = trial.call();
        let named = |error: String| format!("{}: {error}", trial.name);
        let exact = candidate.reference(&call).map_err(|error| named(error.to_string()))?;
        let baseline = composed.baseline(candidate.spec().id, &call).map_err(named)?;
        drop(call);
        Ok(Self { trial, baseline, exact })
    }
}

/// A probe with what is known about it.
#[derive(Debug, Clone)]
pub enum Tried {
    /// As any trial.
    Near(Known),
    /// The same bits as another call.
    Same(Trial, Trial),
    /// No NaN.
    Finite(Trial),
}

impl Tried {
    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Near(Known { trial, .. }) | Self::Same(trial, _) | Self::Finite(trial) => {
                &trial.name
            }
        }
    }
}

/// All that a cell is tried on.
#[derive(Debug, Clone)]
pub struct Bank {
    /// The class.
    pub class: ShapeClass,
    /// Dtype of activations.
    pub dtype: Dtype,
    /// Trials of the lattice.
    pub trials: Vec<Known>,
    /// The same in float32, with float64 results: of each size, the first draw. None where the kernel takes no
    /// float32.
    pub twins: Vec<(Trial, Vec<Vec<f64>>)>,
    /// Probes.
    pub probes: Vec<Tried>,
}

impl Bank {
    /// Draws and asks.
    ///
    /// # Errors
    /// What the baseline or float64 says, with the name of the trial.
    pub fn new(
        candidate: &dyn Candidate,
        composed: &dyn Composed,
        class: &ShapeClass,
        dtype: Dtype,
        effort: Effort,
    ) -> Result<Self, String> {
        let known = |trial| Known::new(candidate, composed, trial);
        let drawn = draws(class, effort);
        let trials = drawn.iter().map(|(sizes, seed)| candidate.trial(class, sizes, dtype, *seed));
        let probes = candidate.probes(class, dtype).into_iter().map(|probe| match probe.expected {
            Expected::Reference => known(probe.trial).map(Tried::Near),
            Expected::SameAs(other) => Ok(Tried::Same(probe.trial, *other)),
            Expected::Finite => Ok(Tried::Finite(probe.trial)),
        });
        Ok(Self {
            class: *class,
            dtype,
            trials: trials.map(known).collect::<Result<_, _>>()?,
            twins: twins(candidate, class, &drawn)?,
            probes: probes.collect::<Result<_, _>>()?,
        })
    }
}

/// Sizes and seeds.
fn draws(class: &ShapeClass, effort: Effort) -> Vec<(&'static [usize], u64)> {
    let other = |at: usize| 1 + at as u64 % (DRAWS - 1);
    let sizes = class.lattice.iter().enumerate();
    match effort {
        Effort::Quick => {
            sizes.step_by(3).map(|(at, sizes)| (*sizes, at as u64 / 3 % DRAWS)).collect()
        }
        Effort::Full => sizes.flat_map(|(at, sizes)| [(*sizes, 0), (*sizes, other(at))]).collect(),
    }
}

/// A trial in float32, and its results in float64.
type Twin = (Trial, Vec<Vec<f64>>);

fn twins(
    candidate: &dyn Candidate,
    class: &ShapeClass,
    drawn: &[(&'static [usize], u64)],
) -> Result<Vec<Twin>, String> {
    if !candidate.spec().dtypes.contains(&Dtype::F32) {
        return Ok(Vec::new());
    }
    let first = drawn.iter().filter(|(_, seed)| *seed == 0);
    let twin = |(sizes, seed): &(&'static [usize], u64)| {
        let trial = candidate.trial(class, sizes, Dtype::F32, *seed);
        let exact = candidate.reference(&trial.call());
        Ok((exact.map_err(|error| format!("{}: {error}", trial.name))?, trial))
    };
    first.map(twin).map(|made| made.map(|(exact, trial)| (trial, exact))).collect()
}

/// Trials and probes of a name: what a replay line asks for.
///
/// # Errors
/// Where there is none.
pub fn named(
    candidate: &dyn Candidate,
    class: &ShapeClass,
    dtype: Dtype,
    name: &str,
) -> Result<Vec<(Trial, Expected)>, String> {
    let drawn = draws(class, Effort::Full).into_iter().chain(draws(class, Effort::Quick));
    let trials = drawn
        .map(|(sizes, seed)| (candidate.trial(class, sizes, dtype, seed), Expected::Reference));
    let probes = candidate.probes(class, dtype).into_iter();
    let all = trials.chain(probes.map(|probe| (probe.trial, probe.expected)));
    let mut found: Vec<(Trial, Expected)> = Vec::new();
    for (trial, expected) in all.filter(|(trial, _)| trial.name == name) {
        if !found.iter().any(|(known, _)| *known == trial) {
            found.push((trial, expected));
        }
    }
    if found.is_empty() {
        let id = candidate.spec().id;
        return Err(format!(
            "{id} has no trial or probe `{name}` in class {} and {dtype}",
            class.name
        ));
    }
    Ok(found)
}
