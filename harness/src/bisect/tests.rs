//! The search on paths that are nothing but their differences.

use std::collections::BTreeMap;

use mlx_parity_tensor::{
    HostTensor,
    safetensors::{SafetensorsFile, write},
};
use rstest::rstest;

use super::{
    gap::Threshold,
    report::{Found, Outcome, SideName},
    script::Script,
    search::{Options, search},
    side::{Side, SideError},
    walk::{Point, Walked, Watch},
};

const LAYERS: usize = 8;

/// What a fake adds to a point of a run.
type Offset = Box<dyn Fn(&Run, &Point) -> f32>;

/// One run of a fake.
struct Run {
    /// Counted from 0.
    index: usize,
    watch: Option<Watch>,
}

/// A path whose tensors are all ones, but for what is added to them.
struct Fake {
    runs: usize,
    without: &'static str,
    offset: Offset,
}

impl Fake {
    fn new(offset: impl Fn(&Run, &Point) -> f32 + 'static) -> Self {
        Self { runs: 0, without: "nothing", offset: Box::new(offset) }
    }

    fn good() -> Self {
        Self::new(|_, _| 0.0)
    }

    fn tensor(&self, run: &Run, point: &Point, count: usize) -> HostTensor {
        let mut values = vec![1.0; count * 3];
        values[1] += (self.offset)(run, point);
        HostTensor::from_f32([count, 3], &values).unwrap()
    }
}

fn names() -> Vec<String> {
    let layer = |i: usize| ["q", "k", "sdpa", "out"].map(|op| format!("layers.{i}.{op}"));
    let outer = |name: &str| vec![name.to_owned()];
    [outer("embed"), (0..LAYERS).flat_map(layer).collect(), outer("norm"), outer("logits")].concat()
}

/// The order of a point in a call.
fn order(point: &Point) -> usize {
    names().iter().position(|name| *name == point.name).unwrap()
}

fn at(name: &str) -> usize {
    names().iter().position(|known| known == name).unwrap()
}

impl Side for Fake {
    fn walk(&mut self, script: &Script, watch: Option<&Watch>) -> Result<Walked, SideError> {
        let run = Run { index: self.runs, watch: watch.cloned() };
        self.runs += 1;
        let mut tensors = Vec::new();
        for (call, &count) in script.calls().iter().enumerate() {
            for (order, name) in names().into_iter().enumerate() {
                let point = Point { call, name };
                let tensor = self.tensor(&run, &point, count);
                if point.name == "logits" {
                    tensors.push((format!("logits.{call}"), tensor.clone()));
                }
                if watch.is_some_and(|w| w.wants(&point)) && !point.name.contains(self.without) {
                    tensors.push((format!("tap.{call}.{order}.{}", point.name), tensor));
                }
            }
        }
        let scratch = tempfile::tempdir()?;
        let path = scratch.path().join("fake.safetensors");
        let borrowed = tensors.iter().map(|(name, tensor)| (name.clone(), tensor));
        write(&path, borrowed, &BTreeMap::new())?;
        let file = SafetensorsFile::open(&path)?;
        Ok(Walked::of_worker(file, script.calls().len(), scratch)?)
    }

    fn caches(&mut self, _: &Script, _: usize) -> Result<Option<SafetensorsFile>, SideError> {
        Ok(None)
    }

    fn computes(&self) -> bool {
        true
    }
}

fn outcome_at(threshold: Threshold, mut good: Fake, mut bad: Fake) -> Outcome {
    let script = Script::new((0..6).collect(), vec![4, 1, 1]).unwrap();
    search(&mut good, &mut bad, &script, Options { threshold, repeats: 5 }).unwrap()
}

fn outcome(bad: Fake) -> Outcome {
    outcome_at(Threshold::Bits, Fake::good(), bad)
}

#[track_caller]
fn found(outcome: Outcome) -> Found {
    match outcome {
        Outcome::Found(found) => *found,
        other => panic!("{other:?}"),
    }
}

/// A difference that begins at a point of a call and stays.
fn from(call: usize, name: &'static str) -> impl Fn(&Run, &Point) -> f32 {
    move |_, point| f32::from(u8::from((point.call, order(point)) >= (call, at(name))))
}

#[rstest]
#[case::embed("embed", None)]
#[case::first_layer("layers.0.q", Some("embed"))]
#[case::a_layer("layers.5.sdpa", Some("layers.5.k"))]
#[case::end_of_a_layer("layers.2.out", Some("layers.2.sdpa"))]
#[case::last_layer("layers.7.k", Some("layers.7.q"))]
#[case::norm("norm", Some("layers.7.out"))]
#[case::head("logits", Some("norm"))]
fn every_place_is_found(
    #[case] name: &'static str,
    #[case] before: Option<&str>,
    #[values(0, 2)] call: usize,
) {
    let found = found(outcome(Fake::new(from(call, name))));
    assert_eq!((found.call, found.first.call, found.first.name.as_str()), (call, call, name));
    assert_eq!(found.last_equal.as_ref().map(|point| point.name.as_str()), before);
    assert_eq!((found.held, found.swallowed), (5, None));
    let element = found.parting.element.unwrap();
    assert_eq!((element.coords, element.got.decimal.as_str()), (vec![0, 1], "2"));
    // One sweep, at most four halvings of a stream of ten, one look into the layer, five repeats.
    assert!((9..=11).contains(&found.probes), "{}", found.probes);
    let apart: Vec<_> = found.profile.iter().filter(|row| row.gap.differ > 0).collect();
    assert_eq!(found.profile.len(), LAYERS + 3);
    assert!(!apart.is_empty() && apart.len() < LAYERS + 4);
}

#[test]
fn equal_paths_are_the_same() {
    assert_eq!(outcome(Fake::good()), Outcome::Same { relative: 0.0 });
    // A difference that no logits show is none.
    let inner = Fake::new(|_, point| f32::from(u8::from(point.name == "layers.3.q")));
    assert_eq!(outcome(inner), Outcome::Same { relative: 0.0 });
}

#[test]
fn what_an_earlier_layer_swallows_is_told() {
    let bad = Fake::new(|_, point| {
        let early = point.name == "layers.1.k" && point.call == 0;
        f32::from(u8::from(early || (point.call == 2 && order(point) >= at("layers.6.q"))))
    });
    let found = found(outcome(bad));
    assert_eq!((found.call, found.first.to_string().as_str()), (2, "layers.1.k (call 0)"));
    assert_eq!(found.swallowed.unwrap().to_string(), "layers.1.out (call 0)");
}

#[test]
fn a_branch_that_stays_equal_does_not_mislead() {
    // q parts, k does not, and sdpa parts again.
    let bad = Fake::new(|_, point| {
        let later = order(point) >= at("layers.4.sdpa");
        f32::from(u8::from(point.name == "layers.4.q" || later))
    });
    assert_eq!(found(outcome(bad)).first.name, "layers.4.q");
}

#[test]
fn a_path_that_changes_from_run_to_run_is_not_deterministic() {
    let flaky = || {
        Fake::new(|run, point| {
            let wrong = run.index % 2 == 1 && order(point) >= at("layers.3.sdpa");
            f32::from(u8::from(wrong))
        })
    };
    let wanted = |side| Outcome::NotDeterministic {
        side,
        runs: 5,
        differ: 2,
        call: 0,
        seen_at: Some(Point { call: 0, name: "layers.3.sdpa".to_owned() }),
    };
    assert_eq!(outcome(flaky()), wanted(SideName::Bad));
    assert_eq!(outcome_at(Threshold::Bits, flaky(), Fake::good()), wanted(SideName::Good));
}

#[test]
fn what_changes_later_is_not_deterministic_either() {
    let bad = Fake::new(|run, point| {
        let size = if run.index > 8 { 2.0 } else { 1.0 };
        if order(point) >= at("layers.3.sdpa") { size } else { 0.0 }
    });
    let outcome = outcome(bad);
    assert!(
        matches!(
            outcome,
            Outcome::NotDeterministic { side: SideName::Bad, runs: 6, differ: 1, .. }
        ),
        "{outcome:?}"
    );
}

#[test]
fn what_goes_when_watched_is_lost() {
    let bad = Fake::new(|run, point| {
        f32::from(u8::from(run.watch.is_none() && order(point) >= at("layers.3.sdpa")))
    });
    let Outcome::LostIt { why } = outcome(bad) else { panic!("it must be lost") };
    assert!(why.contains("the bad path gives other logits when layers.4.out is watched"), "{why}");
}

#[test]
fn a_verdict_that_does_not_repeat_is_lost() {
    // The tap of the verdict parts in every second run, whatever the logits do.
    let bad = Fake::new(|run, point| {
        let shown = point.name != "layers.3.sdpa" || run.index % 2 == 1;
        f32::from(u8::from(shown && order(point) >= at("layers.3.sdpa")))
    });
    let outcome = outcome(bad);
    assert!(matches!(outcome, Outcome::LostIt { .. }), "{outcome:?}");
}

#[test]
fn watching_everything_may_change_what_watching_one_does_not() {
    let bad = Fake::new(|run, point| {
        let all = run.watch.as_ref().is_some_and(|watch| watch.names.is_none());
        f32::from(u8::from(!all && order(point) >= at("layers.3.sdpa")))
    });
    let found = found(outcome(bad));
    assert_eq!((found.first.name.as_str(), found.profile.len()), ("layers.3.sdpa", 0));
}

#[test]
fn points_of_one_path_only_are_named_and_left_out() {
    let mut bad = Fake::new(from(0, "layers.5.sdpa"));
    bad.without = "sdpa";
    let found = found(outcome(bad));
    assert_eq!(found.first.name, "layers.5.out");
    assert_eq!(found.last_equal.unwrap().name, "layers.5.k");
    assert_eq!(found.one_sided.len(), LAYERS);
}

#[test]
fn a_threshold_lets_the_error_grow() {
    // Half of a thousandth a layer.
    let bad = || Fake::new(|_, point| point.layer().map_or(0.0, |layer| 5e-4 * layer as f32));
    let ends = |point: &Point| if point.name == "logits" { 5e-3 } else { 0.0 };
    let both = move |run: &Run, point: &Point| (bad().offset)(run, point) + ends(point);
    let found = found(outcome_at(Threshold::Relative(2.2e-3), Fake::good(), Fake::new(both)));
    assert_eq!(found.first.name, "layers.5.q");
    assert_eq!(found.last_equal.unwrap().name, "layers.4.out");
    let outcome = outcome_at(Threshold::Relative(1e-2), Fake::good(), Fake::new(both));
    assert!(matches!(outcome, Outcome::Same { relative } if (relative - 5e-3).abs() < 1e-6));
}

#[test]
fn a_nan_parts_at_any_threshold() {
    let nan = |_: &Run, point: &Point| {
        if order(point) >= at("layers.2.q") { f32::NAN } else { 0.0 }
    };
    let found = found(outcome_at(Threshold::Relative(1e30), Fake::good(), Fake::new(nan)));
    assert_eq!(found.first.name, "layers.2.q");
}
