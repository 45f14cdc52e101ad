//! Samplers and logits processors give the bits of mlx-lm's; the answers are made by `fixtures/sample.py`.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use common::{Folder, on_mlx_thread};
use mlx_parity_engine::array::{from_host, read, to_host};
use mlx_parity_engine::ops::{self, SliceAxis};
use mlx_parity_engine::sample::{Sampler, SamplerOptions};
use mlx_parity_engine::{
    Array, Composition, DecodeMode, EngineError, GenerateOptions, generate, generate_sampled,
    runtime_info,
};
use mlx_parity_tensor::safetensors::SafetensorsFile;
use mlx_parity_tensor::{Dtype, HostTensor};
use mlx_rs::{Device, Dtype as MlxDtype};
use rstest::rstest;
use serde_json::{Value, json};

const WIDE: i32 = 1 << 20;

struct Fixture {
    file: SafetensorsFile,
    cases: BTreeMap<String, SamplerOptions>,
    prompt: Vec<u32>,
}

impl Fixture {
    fn open() -> Self {
        Device::set_default(&Device::cpu());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sample.safetensors");
        let file = SafetensorsFile::open(&path).expect("the committed fixture");
        let metadata = file.metadata();
        let mlx = runtime_info().expect("mlx answers").mlx_version;
        assert_eq!(metadata["mlx"], mlx, "remake the fixture");
        let cases = serde_json::from_str(&metadata["cases"]).expect("strict options");
        let prompt = serde_json::from_str(&metadata["prompt"]).expect("ids");
        Self { file, cases, prompt }
    }

    fn tensor(&self, name: &str) -> HostTensor {
        self.file.tensor(name).expect("a tensor of the fixture")
    }

    fn logits(&self, case: &str, dtype: &str) -> Array {
        if case != "wide" {
            return from_host(&self.tensor(&format!("logits/{dtype}"))).expect("logits");
        }
        let count = self.tensor("wide/f32/ids").shape()[0] as i32;
        let row = ops::cast(&ops::arange(0, WIDE).expect("a range"), MlxDtype::Float32);
        let width = ops::scalar(f64::from(WIDE), MlxDtype::Float32).expect("a number");
        let row = ops::divide(&row.expect("a row"), &width).expect("a row");
        ops::broadcast_to(&row, &[count, WIDE]).expect("rows")
    }
}

/// What a generation over given logits shows of its sampler: rows processed, rows filtered, ids.
#[derive(Default)]
struct Shown {
    processed: Vec<Array>,
    filtered: Vec<Array>,
    ids: Vec<u32>,
}

impl Shown {
    fn rows(rows: &[Array]) -> HostTensor {
        let rows = ops::concatenate(&rows.iter().collect::<Vec<_>>(), 0).expect("rows");
        to_host(&rows).expect("rows")
    }
}

fn generation(
    options: &SamplerOptions,
    prompt: &[u32],
    logits: &Array,
) -> Result<Shown, EngineError> {
    let width = logits.dim(1);
    let mut sampler = Sampler::new(options.clone(), width as usize)?;
    let mut twin = sampler.clone();
    let mut history = Array::from_slice(prompt, &[prompt.len() as i32]);
    let mut shown = Shown::default();
    for at in 0..logits.dim(0) {
        let row = ops::slice(logits, &[SliceAxis::range(at, at + 1), SliceAxis::full(width)])?;
        let processed = sampler.process(&history, &row)?;
        let logprobs = ops::subtract(&processed, &ops::log_sum_exp(&processed)?)?;
        let filtered = sampler.filter(&logprobs)?;
        let chosen = sampler.choose(&filtered)?;
        let whole = twin.sample(&history, &row)?;
        shown.ids.extend(read::<u32>("ids", &chosen)?);
        assert_eq!(shown.ids.last(), read::<u32>("ids", &whole)?.last(), "sample is its parts");
        history = ops::concatenate(&[&history, &chosen], 0)?;
        shown.processed.push(processed);
        shown.filtered.push(filtered);
    }
    Ok(shown)
}

#[test]
fn every_case_has_the_bits_of_the_reference() {
    let differences = on_mlx_thread(|| {
        let fixture = Fixture::open();
        let mut differences = Vec::new();
        for (case, options) in &fixture.cases {
            for dtype in if case == "wide" { vec!["f32"] } else { vec!["f32", "bf16"] } {
                let logits = fixture.logits(case, dtype);
                let shown = generation(options, &fixture.prompt, &logits).expect("a generation");
                let mut hold = |name: &str, found: &HostTensor| {
                    let name = format!("{case}/{dtype}/{name}");
                    if *found != fixture.tensor(&name) {
                        differences.push(name);
                    }
                };
                if case != "wide" {
                    hold("processed", &Shown::rows(&shown.processed));
                    hold("filtered", &Shown::rows(&shown.filtered));
                }
                hold("ids", &HostTensor::from_u32([shown.ids.len()], &shown.ids).expect("ids"));
            }
        }
        assert!(fixture.cases.len() > 20, "cases are missing");
        differences
    });
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The options of one step of a chain, by the reference's name for it.
fn only(step: &str, chain: &SamplerOptions) -> SamplerOptions {
    let mut one = SamplerOptions { temp: 1.0, ..SamplerOptions::default() };
    match step {
        "top_p" => one.top_p = chain.top_p,
        "min_p" => {
            one.min_p = chain.min_p;
            one.min_tokens_to_keep = chain.min_tokens_to_keep;
        }
        "xtc" => {
            one.xtc_probability = chain.xtc_probability;
            one.xtc_threshold = chain.xtc_threshold;
            one.xtc_special_tokens.clone_from(&chain.xtc_special_tokens);
        }
        "top_k" => one.top_k = chain.top_k,
        "bias" => one.logit_bias.clone_from(&chain.logit_bias),
        "repetition" => one.repetition_penalty = chain.repetition_penalty,
        "presence" => one.presence_penalty = chain.presence_penalty,
        _ => {
            one.frequency_penalty = chain.frequency_penalty;
            one.frequency_context_size = chain.frequency_context_size;
        }
    }
    one
}

/// The rows of a golden, made anew by single steps in the given order.
fn one_by_one(fixture: &Fixture, case: &str, dtype: &str, order: &[&str]) -> HostTensor {
    let ids = fixture.tensor(&format!("{case}/{dtype}/ids")).to_f64();
    let logits = fixture.logits(case, dtype);
    let width = logits.dim(1);
    let rows = (0..logits.dim(0)).map(|at| {
        let before = ids[..at as usize].iter().map(|id| *id as u32);
        let history: Vec<u32> = fixture.prompt.iter().copied().chain(before).collect();
        let history = Array::from_slice(&history, &[history.len() as i32]);
        let row = ops::slice(&logits, &[SliceAxis::range(at, at + 1), SliceAxis::full(width)])?;
        let row = match case {
            "filters" => ops::subtract(&row, &ops::log_sum_exp(&row)?)?,
            _ => row,
        };
        order.iter().try_fold(row, |row, step| {
            let mut sampler = Sampler::new(only(step, &fixture.cases[case]), width as usize)?;
            let row = sampler.process(&history, &row)?;
            sampler.filter(&row)
        })
    });
    Shown::rows(&rows.collect::<Result<Vec<_>, EngineError>>().expect("rows"))
}

/// The goldens of the filters and of the processors tell neighbours that changed places.
#[rstest]
#[case::filters("filters", "filtered", ["top_p", "min_p", "xtc", "top_k"])]
#[case::processors("processors", "processed", ["bias", "repetition", "presence", "frequency"])]
fn another_order_of_the_chain_has_other_bits(
    #[case] case: &'static str,
    #[case] kept: &'static str,
    #[case] right: [&'static str; 4],
) {
    on_mlx_thread(move || {
        let fixture = Fixture::open();
        for dtype in ["f32", "bf16"] {
            let golden = fixture.tensor(&format!("{case}/{dtype}/{kept}"));
            assert_eq!(one_by_one(&fixture, case, dtype, &right), golden, "{dtype}");
            for first in 0..3 {
                let mut order = right;
                order.swap(first, first + 1);
                let other = one_by_one(&fixture, case, dtype, &order);
                assert_ne!(other, golden, "{dtype} {order:?}");
            }
        }
    });
}

#[rstest]
#[case::temp(json!({"temp": -0.1}), "`temp` is -0.1")]
#[case::top_p(json!({"top_p": 1.5}), "`top_p` is 1.5, wanted 0 to 1")]
#[case::min_p(json!({"min_p": -0.5}), "`min_p` is -0.5")]
#[case::keep(json!({"min_tokens_to_keep": 0}), "`min_tokens_to_keep` is 0, wanted 1 to 8")]
#[case::keep_all(json!({"min_tokens_to_keep": 9}), "`min_tokens_to_keep` is 9")]
#[case::top_k(json!({"top_k": 8}), "`top_k` is 8, wanted fewer than 8")]
#[case::chance(json!({"xtc_probability": 1.01}), "`xtc_probability` is 1.01")]
#[case::threshold(json!({"xtc_threshold": 0.6}), "`xtc_threshold` is 0.6, wanted 0 to 0.5")]
#[case::special(json!({"xtc_special_tokens": [8]}), "`xtc_special_tokens` is 8")]
#[case::bias(json!({"logit_bias": {"8": 1.0}}), "`logit_bias` is 8, wanted ids below 8")]
#[case::repetition(json!({"repetition_penalty": -1.0}), "`repetition_penalty` is -1")]
fn options_out_of_range_are_refused(#[case] options: Value, #[case] wanted: &str) {
    let options: SamplerOptions = serde_json::from_value(options).expect("known keys");
    let error = Sampler::new(options, 8).expect_err("a refusal");
    assert!(matches!(error, EngineError::SamplerOption { .. }));
    assert!(error.to_string().contains(wanted), "{error}");
}

#[test]
fn numbers_that_are_none_and_unknown_keys_are_refused() {
    for options in [
        SamplerOptions { temp: f64::NAN, ..SamplerOptions::default() },
        SamplerOptions { temp: f64::INFINITY, ..SamplerOptions::default() },
        SamplerOptions { presence_penalty: f64::NAN, ..SamplerOptions::default() },
        SamplerOptions { frequency_penalty: f64::NEG_INFINITY, ..SamplerOptions::default() },
        SamplerOptions { logit_bias: [(1, f64::NAN)].into(), ..SamplerOptions::default() },
    ] {
        let error = Sampler::new(options, 8).expect_err("a refusal");
        assert!(matches!(error, EngineError::SamplerOption { .. }), "{error}");
    }
    let unknown = serde_json::from_value::<SamplerOptions>(json!({"temperature": 1.0}));
    assert!(unknown.expect_err("a refusal").to_string().contains("unknown field `temperature`"));
}

#[test]
fn logits_of_another_vocabulary_are_refused() {
    on_mlx_thread(|| {
        let mut sampler = Sampler::new(SamplerOptions::default(), 8).expect("options");
        let (history, logits) =
            (Array::from_slice(&[1_u32], &[1]), Array::from_slice(&[0.5_f32; 9], &[1, 9]));
        assert!(matches!(
            sampler.sample(&history, &logits),
            Err(EngineError::Op { op: "sample", .. })
        ));
    });
}

#[rstest]
#[case(Dtype::F32)]
#[case(Dtype::Bf16)]
fn generation_samples_by_the_seed_and_is_greedy_without_a_temperature(#[case] dtype: Dtype) {
    on_mlx_thread(move || {
        let model = Folder::qwen3(dtype).load().expect("a good folder");
        let prompt = [3, 14, 15, 9, 26];
        let options = GenerateOptions {
            max_tokens: 24,
            prefill_step_size: 2,
            eos_token_ids: vec![],
            mode: DecodeMode::Eager,
            composition: Composition::l1(),
        };
        let go_on = |_| ControlFlow::Continue(());
        let sampled = |sampler: &SamplerOptions| {
            generate_sampled(&model, &prompt, &options, sampler, go_on).map(|done| done.ids)
        };
        let greedy = generate(&model, &prompt, &options, go_on).expect("a generation").ids;
        let with = SamplerOptions::default;
        assert_eq!(sampled(&with()).expect("a generation"), greedy);
        let warm = SamplerOptions { temp: 1.0, repetition_penalty: 1.2, seed: 3, ..with() };
        let ids = sampled(&warm).expect("a generation");
        assert_eq!(ids, by_hand(&model, &prompt, &warm, 24));
        assert_eq!(ids, sampled(&warm).expect("a generation"));
        assert_ne!(
            ids,
            sampled(&SamplerOptions { seed: 4, ..warm.clone() }).expect("a generation")
        );
        assert_ne!(ids, greedy);
        let bad = sampled(&SamplerOptions { top_k: 40, ..with() });
        assert!(matches!(bad, Err(EngineError::SamplerOption { option: "top_k", .. })));
        let empty = generate_sampled(&model, &[], &options, &warm, go_on);
        assert!(matches!(empty, Err(EngineError::EmptyPrompt)));
    });
}

/// What sampling must give, by the decoder's own logits.
fn by_hand(
    model: &mlx_parity_engine::Model,
    prompt: &[u32],
    options: &SamplerOptions,
    count: usize,
) -> Vec<u32> {
    let mut decoder = mlx_parity_engine::Decoder::new(model, 2);
    let mut sampler = Sampler::new(options.clone(), model.vocab_size()).expect("options");
    let mut ids = prompt.to_vec();
    let mut logits = decoder.prefill(prompt).expect("a prefill");
    while ids.len() < prompt.len() + count {
        let last = logits.rows(logits.shape()[0] - 1..logits.shape()[0]);
        let history = Array::from_slice(&ids, &[ids.len() as i32]);
        let last = from_host(&last).expect("logits");
        let chosen = sampler.sample(&history, &last).expect("a choice");
        ids.push(read::<u32>("ids", &chosen).expect("an id")[0]);
        logits = decoder.step(ids[ids.len() - 1]).expect("a step");
    }
    ids.split_off(prompt.len())
}
