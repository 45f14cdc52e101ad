//! What `--explain` stands on: a right engine's intermediates are the oracle's, bit for bit, under the
//! same names, in every model that has a golden.
mod support;

use std::{collections::BTreeSet, path::Path};

use mlx_parity::{
    case,
    expect::Expectations,
    explain::{Comparison, intermediates},
    model::Registry,
    oracle::{Launch, Oracle},
    plan::{PlanOptions, Planned, Planner},
    root::Root,
    row::Tier,
    worker::{self, Worker},
};
use support::PROGRAM;

/// Intermediates of the engine that have no counterpart, without their layers, and the models they are of:
/// what the reference computes in the middle of a line, and the mark of a generated network. Any other
/// must have one, and these must have none.
const ALONE: [(&str, &[&str]); 4] = [
    ("generated", &["gemma4", "llama-unrolled"]),
    ("layers.linear_attn.beta", &["qwen3_5", "qwen3_5-flat", "qwen3_5_moe"]),
    (
        "layers.mlp.act",
        &[
            "gemma",
            "gemma2",
            "gemma2-window",
            "gemma3_text",
            "gemma4",
            "gemma4_text",
            "gemma4_text-large",
            "gemma4_text-moe",
            "gpt2",
            "gpt_neox",
            "gpt_neox-sequential",
            "nemotron",
            "nemotron-linear",
            "phi",
            "starcoder2",
            "starcoder2-untied",
        ],
    ),
    ("layers.self_attn.sdpa", &["gemma2", "gemma2-window"]),
];

fn without_layer(name: &str) -> String {
    name.split('.').filter(|part| part.parse::<usize>().is_err()).collect::<Vec<_>>().join(".")
}

fn problem(model: &str, found: &Comparison) -> Option<String> {
    if let Some((name, call, detail)) = &found.first {
        return Some(format!("{name} (call {call}) differs: {detail}"));
    }
    let alone: BTreeSet<_> = found.engine_only.iter().map(|name| without_layer(name)).collect();
    let named = ALONE.iter().filter(|(_, models)| models.contains(&model));
    let named = named.map(|(name, _)| (*name).to_owned());
    let named: BTreeSet<_> = named.collect();
    (alone != named).then(|| format!("the engine's alone are {alone:?}, on the list {named:?}"))
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
    let checks: Vec<_> = cases.iter().flat_map(case::Case::checks).collect();
    let known = Expectations::load(&root.expectations_file(), &here, &checks).unwrap();
    cases.retain(|case| case.tier == Tier::L1 && case.id.ends_with("/f32/window"));
    cases.retain(|case| !known.expects(&format!("{}/prefill", case.id)));
    assert!(cases.len() >= 3);
    let mut problems = Vec::new();
    for case in cases {
        let id = case.id.clone();
        let model = id.split('/').nth(1).unwrap().to_owned();
        let Planned::Job(job) = planner.plan(case) else { panic!("{id} cannot be run") };
        for step in [0, 1] {
            let found = intermediates(&mut oracle, &mut worker, &job, step).unwrap();
            problems
                .extend(problem(&model, &found).map(|text| format!("{id}, step {step}: {text}")));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
