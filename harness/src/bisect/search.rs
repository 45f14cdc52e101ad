//! The search.

use mlx_parity_tensor::safetensors::SafetensorsError;

use super::{
    ends::{first_parting, steady, walk},
    error::BisectError,
    gap::{Gap, Threshold},
    locate,
    profile::Sweep,
    report::{CacheGap, Found, Outcome, Parting, SideName},
    script::Script,
    side::{Side, SideError},
    walk::{Point, Walked, Watch},
};

/// How to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// From where on two tensors part.
    pub threshold: Threshold,
    /// Unwatched runs of each path, and repeats of the verdict; at least two.
    pub repeats: usize,
}

/// Why a search goes no further.
pub(super) enum Stop {
    /// It has its outcome.
    Outcome(Outcome),
    /// It cannot go on.
    Error(BisectError),
}

impl Stop {
    pub(super) fn side(side: SideName, error: SideError) -> Self {
        Self::Error(BisectError::Side { side, error })
    }

    pub(super) fn lost(why: String) -> Self {
        Self::Outcome(Outcome::LostIt { why })
    }
}

impl From<SafetensorsError> for Stop {
    fn from(error: SafetensorsError) -> Self {
        Self::Error(error.into())
    }
}

/// Searches for the place where two paths part.
///
/// # Errors
/// Those of [`BisectError`].
pub fn search(
    good: &mut dyn Side,
    bad: &mut dyn Side,
    script: &Script,
    options: Options,
) -> Result<Outcome, BisectError> {
    match run(good, bad, script, options) {
        Ok(outcome) | Err(Stop::Outcome(outcome)) => Ok(outcome),
        Err(Stop::Error(error)) => Err(error),
    }
}

fn run(
    good: &mut dyn Side,
    bad: &mut dyn Side,
    script: &Script,
    options: Options,
) -> Result<Outcome, Stop> {
    let ends = [
        steady(SideName::Good, good, script, options)?,
        steady(SideName::Bad, bad, script, options)?,
    ];
    let Some(call) = first_parting(options.threshold, &ends[1], &ends[0])? else {
        return Ok(Outcome::Same { relative: widest(&ends)? });
    };
    let script = script.upto(call);
    Search { good, bad, script, call, options, ends, probes: 0 }.run()
}

fn widest([good, bad]: &[Walked; 2]) -> Result<f64, Stop> {
    let mut widest = 0.0;
    for call in 0..good.calls() {
        let gap = Gap::of(&bad.logits(call)?, &good.logits(call)?);
        widest = if gap.relative > widest { gap.relative } else { widest };
    }
    Ok(widest)
}

/// Two paths that repeat themselves and part in the last call of a script.
pub(super) struct Search<'a> {
    good: &'a mut dyn Side,
    bad: &'a mut dyn Side,
    script: Script,
    /// The last call of the script.
    pub(super) call: usize,
    options: Options,
    /// Unwatched runs.
    ends: [Walked; 2],
    probes: usize,
}

impl Search<'_> {
    fn run(mut self) -> Result<Outcome, Stop> {
        let sweep = self.sweep()?;
        let halved = locate::halve(&mut self, sweep.points())?;
        let earlier = sweep.first(self.options.threshold)?.filter(|first| *first < halved);
        let first = earlier.unwrap_or(halved);
        let swallowed = sweep.equal_behind(self.options.threshold, first)?;
        let point = sweep.points()[first].clone();
        let before = first.checked_sub(1).map(|before| sweep.points()[before].clone());
        let last_equal = before.filter(|before| before.call == point.call);
        let parting = self.confirm(last_equal.as_ref(), &point)?;
        let logits = [&self.ends[1], &self.ends[0]].map(|end| end.logits(self.call));
        let [got, want] = logits;
        Ok(Outcome::Found(Box::new(Found {
            call: self.call,
            logits: Parting::of(self.options.threshold, &got?, &want?),
            cache: self.cache(&point)?,
            last_equal,
            first: point,
            parting,
            swallowed,
            probes: self.probes,
            held: self.options.repeats,
            one_sided: sweep.one_sided(),
            profile: sweep.profile(self.call)?,
        })))
    }

    /// Everything watched once, which gives the names of what can be.
    fn sweep(&mut self) -> Result<Sweep, Stop> {
        let all = Watch::all([0, self.call]);
        let walked = self.walk(&all)?;
        let faithful = self.unfaithful(&walked)?.is_none();
        self.probes += 1;
        Ok(Sweep::new(walked, faithful))
    }

    /// Both paths, watched, with the logits that they have unwatched.
    pub(super) fn probe(&mut self, watch: &Watch) -> Result<[Walked; 2], Stop> {
        let walked = self.walk(watch)?;
        self.probes += 1;
        match self.unfaithful(&walked)? {
            None => Ok(walked),
            Some(side) => Err(self.changed(side, watch)?),
        }
    }

    fn walk(&mut self, watch: &Watch) -> Result<[Walked; 2], Stop> {
        Ok([
            walk(SideName::Good, self.good, &self.script, Some(watch))?,
            walk(SideName::Bad, self.bad, &self.script, Some(watch))?,
        ])
    }

    /// A path whose watched run gives other logits than its unwatched one.
    fn unfaithful(&self, walked: &[Walked; 2]) -> Result<Option<SideName>, Stop> {
        for (side, at) in [(SideName::Good, 0), (SideName::Bad, 1)] {
            if first_parting(self.options.threshold, &walked[at], &self.ends[at])?.is_some() {
                return Ok(Some(side));
            }
        }
        Ok(None)
    }

    /// What a watched run with other logits means: chance, if one more unwatched run has others too.
    fn changed(&mut self, name: SideName, watch: &Watch) -> Result<Stop, Stop> {
        let (side, end) = match name {
            SideName::Good => (&mut *self.good, &self.ends[0]),
            SideName::Bad => (&mut *self.bad, &self.ends[1]),
        };
        let again = walk(name, side, &self.script, None)?;
        if let Some(call) = first_parting(self.options.threshold, &again, end)? {
            let runs = self.options.repeats + 1;
            let seen_at = None;
            let side = name;
            return Ok(Stop::Outcome(Outcome::NotDeterministic {
                side,
                runs,
                differ: 1,
                call,
                seen_at,
            }));
        }
        let names = watch.names.iter().flatten().cloned().collect::<Vec<_>>().join(", ");
        Ok(Stop::lost(format!("the {name} path gives other logits when {names} is watched")))
    }

    /// Whether the tensors of a point part; they do where one path has none.
    pub(super) fn parts(&self, walked: &[Walked; 2], point: &Point) -> Result<bool, Stop> {
        let [good, bad] = walked;
        let (Some(got), Some(want)) = (bad.view(point)?, good.view(point)?) else {
            return Ok(true);
        };
        Ok(self.options.threshold.parts(&Gap::of(&got, &want)))
    }

    /// Watches the two points of the verdict and nothing else, again and again.
    fn confirm(&mut self, last_equal: Option<&Point>, first: &Point) -> Result<Parting, Stop> {
        let names = last_equal.into_iter().chain([first]).map(|point| point.name.as_str());
        let watch = Watch::some(first.call, names);
        let (mut held, mut parting) = (0, None);
        for _ in 0..self.options.repeats {
            let walked = self.probe(&watch)?;
            let equal = match last_equal {
                Some(point) => !self.parts(&walked, point)?,
                None => true,
            };
            if equal && self.parts(&walked, first)? {
                held += 1;
                let [good, bad] = &walked;
                if let (Some(got), Some(want)) = (bad.view(first)?, good.view(first)?) {
                    parting = Some(Parting::of(self.options.threshold, &got, &want));
                }
            }
        }
        let repeats = self.options.repeats;
        parting.filter(|_| held == repeats).ok_or_else(|| {
            Stop::lost(format!(
                "{first} parted when it was searched for, and then in {held} of {repeats} repeats"
            ))
        })
    }

    /// The first tensor of the caches that parts before the call of a point, among those of its layer.
    fn cache(&mut self, point: &Point) -> Result<Option<CacheGap>, Stop> {
        let (Some(layer), true) = (point.layer(), point.call > 0) else { return Ok(None) };
        let script = self.script.upto(point.call);
        let good = self.good.caches(&script, point.call);
        let good = good.map_err(|error| Stop::side(SideName::Good, error))?;
        let bad = self.bad.caches(&script, point.call);
        let bad = bad.map_err(|error| Stop::side(SideName::Bad, error))?;
        let (Some(good), Some(bad)) = (good, bad) else { return Ok(None) };
        let prefix = format!("layers.{layer}.");
        for name in good.names().filter(|name| name.starts_with(&prefix) && bad.contains(name)) {
            let (got, want) = (bad.view(name)?, good.view(name)?);
            if self.options.threshold.parts(&Gap::of(&got, &want)) {
                let parting = Parting::of(self.options.threshold, &got, &want);
                return Ok(Some(CacheGap { tensor: name.to_owned(), parting }));
            }
        }
        Ok(None)
    }
}
