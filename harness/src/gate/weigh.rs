//! A candidate, or one of its mutants, on all that its cell is tried on: E0 to E6 of the kernel alone.

use std::collections::BTreeMap;

use mlx_parity_kernels::{
    Candidate, Claim, How, Path, Spread, Trial,
    ledger::{Evidence, Verdict},
};
use mlx_parity_tensor::HostTensor;

use super::{
    bank::{Bank, Known, Tried},
    evidence::{error, exactness, probes, repeat, sanity, short, twin},
    memory::{self, Answer},
};

/// What went wrong on one trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// The trial, as a replay line names it.
    pub trial: String,
    /// Its dtype, where it is not the cell's.
    pub twin: bool,
    /// What is wrong, with got and want.
    pub what: String,
}

/// One kind of evidence over many trials.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// Trials.
    pub count: usize,
    /// The worst numbers, by name.
    pub worst: BTreeMap<&'static str, f64>,
    /// The first breach.
    pub breach: Option<Breach>,
}

impl Tally {
    fn saw(&mut self, trial: &str, twin: bool, breach: Option<String>) {
        self.count += 1;
        if let (None, Some(what)) = (&self.breach, breach) {
            self.breach = Some(Breach { trial: trial.to_owned(), twin, what });
        }
    }

    fn worst(&mut self, name: &'static str, x: f64) {
        let worst = self.worst.entry(name).or_insert(0.0);
        if x > *worst {
            *worst = x;
        }
    }
}

/// What the trials of one cell showed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Weighed {
    /// E0 to E5, in order.
    pub tallies: [Tally; 6],
    /// Trials whose bytes are not the baseline's.
    pub differing: usize,
    /// The results of every run, in order: what a mutant is compared with.
    pub seen: Vec<Option<Vec<HostTensor>>>,
}

impl Weighed {
    /// The kinds of evidence that reject, with what they found.
    pub fn rejecting(&self) -> impl Iterator<Item = (Evidence, &Breach)> {
        let tallies = Evidence::ALL.into_iter().zip(&self.tallies);
        tallies.filter_map(|(evidence, tally)| Some((evidence, tally.breach.as_ref()?)))
    }

    fn tally(&mut self, evidence: Evidence) -> &mut Tally {
        &mut self.tallies[evidence as usize]
    }
}

/// What this processor can run, the default last.
pub fn paths() -> Vec<Path> {
    let mut paths = vec![Path::Portable];
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        paths.extend(avx2.then_some(Path::Avx2));
        paths.extend(is_x86_feature_detected!("avx512f").then_some(Path::Avx512));
    }
    paths.push(Path::Auto);
    paths
}

/// A candidate being weighed.
pub struct Scale<'a> {
    /// The candidate.
    pub candidate: &'a dyn Candidate,
    /// What it is tried on.
    pub bank: &'a Bank,
    /// The bug it has, if any.
    pub mutant: Option<&'static str>,
    /// The instructions it is run on.
    pub paths: Vec<Path>,
}

impl<'a> Scale<'a> {
    /// Of the kernel as it is meant, on all instructions there are.
    pub fn new(candidate: &'a dyn Candidate, bank: &'a Bank) -> Self {
        Self { candidate, bank, mutant: None, paths: paths() }
    }

    /// Of one of its mutants, on the widest instructions.
    pub fn of_mutant(candidate: &'a dyn Candidate, bank: &'a Bank, mutant: &'static str) -> Self {
        Self { candidate, bank, mutant: Some(mutant), paths: vec![Path::Auto] }
    }

    /// Everything.
    pub fn weigh(&self) -> Weighed {
        let mut weighed = Weighed::default();
        for known in &self.bank.trials {
            for path in &self.paths {
                self.trial(known, *path, &mut weighed);
            }
        }
        for (trial, exact) in &self.bank.twins {
            self.twin(trial, exact, &mut weighed);
        }
        for probe in &self.bank.probes {
            self.probe(probe, &mut weighed);
        }
        self.repeat(&mut weighed);
        weighed
    }

    fn how(&self, path: Path) -> How {
        let how = How::new().on(path);
        self.mutant.map_or(how, |mutant| how.mutated(mutant))
    }

    fn run(&self, trial: &Trial, path: Path) -> Result<Answer, String> {
        let class = self.candidate.class(&trial.call());
        self.candidate.supported(&trial.call()).map_err(|error| format!("refused: {error}"))?;
        if class != self.bank.class.name {
            return Err(format!("class {class}, wanted {}", self.bank.class.name));
        }
        memory::run(self.candidate, trial, self.how(path))
    }

    fn trial(&self, known: &Known, path: Path, weighed: &mut Weighed) {
        let name = &known.trial.name;
        let answer = match self.run(&known.trial, path) {
            Ok(answer) => answer,
            Err(what) => {
                weighed.tally(Evidence::Sanity).saw(name, false, Some(on(path, what)));
                weighed.seen.push(None);
                return;
            }
        };
        let sane = sanity::check(&answer, &known.baseline, &known.exact);
        let is_sane = sane.is_none();
        weighed.tally(Evidence::Sanity).saw(name, false, sane.map(|what| on(path, what)));
        if is_sane {
            self.values(known, path, &answer, weighed);
        }
        if exactness::check(&answer.results, &known.baseline).is_some() {
            weighed.differing += 1;
        }
        weighed.seen.push(Some(answer.results));
    }

    fn values(&self, known: &Known, path: Path, answer: &Answer, weighed: &mut Weighed) {
        let name = &known.trial.name;
        if self.candidate.spec().claim == Claim::Exact {
            let breach = exactness::check(&answer.results, &known.baseline);
            weighed.tally(Evidence::Exactness).saw(name, false, breach.map(|what| on(path, what)));
        }
        let tally = weighed.tally(Evidence::Error);
        let breach = errors(known, answer, |name, x| tally.worst(name, x));
        tally.saw(name, false, breach.map(|what| on(path, what)));
    }

    fn twin(&self, trial: &Trial, exact: &[Vec<f64>], weighed: &mut Weighed) {
        let answer = self.run(trial, Path::Auto);
        let tally = weighed.tally(Evidence::Twin);
        let breach = match &answer {
            Err(what) => Some(what.clone()),
            Ok(answer) => answer.results.iter().zip(exact).find_map(|(found, exact)| {
                let (part, breach) = twin::check(found, exact);
                tally.worst("relative", part);
                breach
            }),
        };
        tally.saw(&trial.name, true, breach);
        weighed.seen.push(answer.ok().map(|answer| answer.results));
    }

    fn probe(&self, probe: &Tried, weighed: &mut Weighed) {
        let (answer, breach) = self.probed(probe);
        weighed.tally(Evidence::Probes).saw(probe.name(), false, breach);
        weighed.seen.push(answer.map(|answer| answer.results));
    }

    /// The answer to a probe and what is wrong with it.
    pub fn probed(&self, probe: &Tried) -> (Option<Answer>, Option<String>) {
        let (Tried::Near(Known { trial, .. }) | Tried::Same(trial, _) | Tried::Finite(trial)) =
            probe;
        let answer = match self.run(trial, Path::Auto) {
            Ok(answer) => answer,
            Err(what) => return (None, Some(what)),
        };
        let breach = match (answer.misdeeds.first(), probe) {
            (Some(misdeed), _) => Some(misdeed.clone()),
            (None, Tried::Near(known)) => self.near(known, &answer),
            (None, Tried::Same(_, other)) => match self.run(other, Path::Auto) {
                Ok(other) => probes::same(&answer.results, &other.results),
                Err(what) => Some(what),
            },
            (None, Tried::Finite(_)) => probes::no_nan(&answer.results),
        };
        (Some(answer), breach)
    }

    fn near(&self, known: &Known, answer: &Answer) -> Option<String> {
        let exact = self.candidate.spec().claim == Claim::Exact;
        sanity::check(answer, &known.baseline, &known.exact)
            .or_else(|| exact.then(|| exactness::check(&answer.results, &known.baseline))?)
            .or_else(|| errors(known, answer, |_, _| {}))
    }

    /// The largest trial again and again.
    fn repeat(&self, weighed: &mut Weighed) {
        let size = |known: &&Known| known.baseline.iter().map(HostTensor::len).sum::<usize>();
        let Some(known) = self.bank.trials.iter().max_by_key(size) else { return };
        let trial = &known.trial;
        let Ok(first) = self.run(trial, Path::Auto) else { return };
        let spread = spread(self.candidate, "host").map(|spread| spread.ulp);
        for _ in 0..repeat::RUNS {
            let breach = match self.run(trial, Path::Auto) {
                Ok(again) => repeat::check(&first.results, &again.results, spread),
                Err(what) => Some(what),
            };
            weighed.tally(Evidence::Repeat).saw(&trial.name, false, breach);
        }
    }
}

/// The spread that a candidate declares for a backend.
pub fn spread(candidate: &dyn Candidate, backend: &str) -> Option<Spread> {
    candidate.spec().spread.filter(|spread| spread.backend == backend)
}

fn errors(
    known: &Known,
    answer: &Answer,
    mut worst: impl FnMut(&'static str, f64),
) -> Option<String> {
    let results = answer.results.iter().zip(&known.baseline).zip(&known.exact).enumerate();
    let mut breach = None;
    for (k, ((found, baseline), exact)) in results {
        let report = error::check(found, baseline, exact);
        worst("rmse", report.rmse);
        worst("max", report.largest);
        worst("bias", report.bias);
        breach = breach.or_else(|| report.breach.map(|what| format!("result {k}: {what}")));
    }
    breach
}

/// The instructions, where a kernel went wrong on those that are not its default.
fn on(path: Path, what: String) -> String {
    match path {
        Path::Auto => what,
        Path::Portable => format!("on portable instructions: {what}"),
        Path::Avx2 => format!("on AVX2: {what}"),
        Path::Avx512 => format!("on AVX-512: {what}"),
    }
}

/// What a tally says in a line: the verdict, and the numbers in words.
pub fn told(evidence: Evidence, tally: &Tally, candidate: &dyn Candidate) -> (Verdict, String) {
    if let Some(Breach { trial, what, .. }) = &tally.breach {
        return (Verdict::Failed, format!("{trial}: {what}"));
    }
    let exact = candidate.spec().claim == Claim::Exact;
    let number = |name: &str| tally.worst.get(name).copied().map_or_else(|| "–".to_owned(), short);
    let count = tally.count;
    match (evidence, count) {
        (Evidence::Exactness, _) if !exact => {
            (Verdict::NotApplicable, "it claims an envelope".to_owned())
        }
        (Evidence::Twin, 0) => (Verdict::Missing, "no trial in float32".to_owned()),
        (_, 0) => (Verdict::Missing, "no trial".to_owned()),
        (Evidence::Sanity, _) => {
            (Verdict::Held, format!("{count} runs, guards intact, inputs unchanged, fully written"))
        }
        (Evidence::Exactness, _) => {
            (Verdict::Held, format!("bits of the baseline in {count} runs"))
        }
        (Evidence::Error, _) => {
            let (rmse, max, bias) = (number("rmse"), number("max"), number("bias"));
            let what = format!(
                "rmse {rmse}× baseline, max {max}× (≤ 2), no bias ({bias} σ), {count} runs"
            );
            (Verdict::Held, what)
        }
        (Evidence::Twin, _) => (Verdict::Held, format!("{} of {count} trials", number("relative"))),
        (Evidence::Probes, _) => (Verdict::Held, format!("{count} probes")),
        _ => match spread(candidate, "host") {
            None => (Verdict::Held, format!("{count} of {count} bit-equal")),
            Some(Spread { ulp, why, .. }) => {
                (Verdict::Held, format!("{count} of {count} within {ulp} ulp ({why})"))
            }
        },
    }
}
