//! What `--explain` stands on: a right engine's intermediates are the oracle's, bit for bit, under the
//! same names, in every model that has a golden.
mod support;

use std::path::Path;

use mlx_parity::{
    case,
    explain::{Comparison, intermediates},
    model::Registry,
    oracle::{Launch, Oracle},
    plan::{PlanOptions, Planned, Planner},
    root::Root,
    row::Tier,
    worker::{self, Worker},
};
use support::PROGRAM;

/// Of an engine's intermediates at least this part must have a counterpart in the reference. What the
/// reference computes in the middle of a line has none: gemma2's attention and gated gelu, 18 of its 156.
const NAMED: f64 = 0.85;

fn problem(found: &Comparison) -> Option<String> {
    if let Some((name, call, detail)) = &found.first {
        return Some(format!("{name} (call {call}) differs: {detail}"));
    }
    let (equal, alone) = (found.equal.len(), found.engine_only.len());
    let poor = (equal as f64) < NAMED * (equal + alone) as f64;
    poor.then(|| {
        format!("{alone} of {} are the engine's alone: {:?}", equal + alone, found.engine_only)
    })
}

#[test]
fn a_right_engine_has_the_intermediates_of_the_oracle() {
    let root = Root::find(Some(&support::checkout())).unwrap();
    let registry = Registry::load(&root).unwrap();
    let here = worker::probe(Path::new(PROGRAM)).unwrap();
    let mut planner = Planner::new(&root, &registry, &here, PlanOptions::default());
    let mut oracle = Oracle::start(Launch::of(&root, "mlx-lm")).unwrap();
    let mut worker = Worker::start(Path::new(PROGRAM)).unwrap();
    let mut cases = case::load_all(&root.cases()).unwrap();
    cases.retain(|case| case.tier == Tier::L1 && case.id.ends_with("/f32/window"));
    // There the engine deviates from mlx-lm on purpose (goldens/expectations.toml).
    cases.retain(|case| !case.id.starts_with("l1/qwen3_moe-yarn/"));
    assert!(cases.len() >= 3);
    let mut problems = Vec::new();
    for case in cases {
        let id = case.id.clone();
        let Planned::Job(job) = planner.plan(case) else { panic!("{id} cannot be run") };
        for step in [0, 1] {
            let found = intermediates(&mut oracle, &mut worker, &job, step).unwrap();
            problems.extend(problem(&found).map(|text| format!("{id}, step {step}: {text}")));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
