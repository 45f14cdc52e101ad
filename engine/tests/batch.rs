//! Requests side by side: each as it is alone, and with the bits of mlx-lm's batches, whose answers are
//! made by `fixtures/batch.py`.

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{Folder, distance, on_mlx_thread};
use mlx_parity_engine::{
    Batch, Composition, Decoder, EngineError, KvBits, Left, Model, RowId, runtime_info,
};
use mlx_parity_tensor::safetensors::SafetensorsFile;
use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;
use serde_json::json;

/// As in the fixture.
const STEP_SIZE: usize = 5;
/// Of the largest logit: f32 sums in another order.
const ROUNDING: f64 = 1e-5;

struct Fixture {
    file: SafetensorsFile,
    prompts: BTreeMap<String, Vec<u32>>,
    forced: BTreeMap<String, Vec<u32>>,
}

impl Fixture {
    fn open() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/batch.safetensors");
        let file = SafetensorsFile::open(&path).expect("the committed fixture");
        let ids = |key: &str| serde_json::from_str(&file.metadata()[key]).expect("ids");
        let (prompts, forced) = (ids("prompts"), ids("forced"));
        Self { file, prompts, forced }
    }

    fn script(&self, name: &str) -> Vec<String> {
        serde_json::from_str(&self.file.metadata()[name]).expect("lines")
    }
}

/// A batch that is led by a script, and what it answers.
struct Led<'m, 'f> {
    fixture: &'f Fixture,
    batch: Batch<'m>,
    vocab: usize,
    rows: Vec<(String, RowId)>,
    /// Tokens that each request has run behind its prompt.
    run: BTreeMap<String, usize>,
    answers: BTreeMap<String, HostTensor>,
    /// The answers of each request, in order.
    of: BTreeMap<String, Vec<HostTensor>>,
    steps: usize,
}

impl<'m, 'f> Led<'m, 'f> {
    fn new(model: &'m Model, fixture: &'f Fixture) -> Self {
        let batch = Batch::new(model, STEP_SIZE).expect("a model of rows");
        Self {
            fixture,
            batch,
            vocab: model.vocab_size(),
            rows: Vec::new(),
            run: BTreeMap::new(),
            answers: BTreeMap::new(),
            of: BTreeMap::new(),
            steps: 0,
        }
    }

    fn run(mut self, script: &str) -> Self {
        for line in self.fixture.script(script) {
            let mut words = line.split(' ').map(str::to_owned);
            let what = words.next().expect("a word");
            let names: Vec<String> = words.collect();
            match what.as_str() {
                "join" => {
                    let row = self.batch.join(&self.fixture.prompts[&names[0]]).expect("a join");
                    self.rows.push((names[0].clone(), row));
                }
                "pad" => {
                    let prompts: Vec<&[u32]> =
                        names.iter().map(|name| self.fixture.prompts[name].as_slice()).collect();
                    let rows = self.batch.join_padded(&prompts).expect("prompts");
                    self.rows.extend(names.into_iter().zip(rows));
                }
                "step" => self.step(),
                "leave" => self.leave(&names[0]),
                other => panic!("{other}"),
            }
        }
        self
    }

    /// The token of a request's next step: forced, but the last of its prompt.
    fn next(&mut self, name: &str) -> Option<u32> {
        let run = self.run.entry(name.to_owned()).or_default();
        *run += 1;
        (*run > 1).then(|| self.fixture.forced[name][*run - 2])
    }

    fn step(&mut self) {
        for (name, row) in self.rows.clone() {
            if let Some(id) = self.next(&name) {
                self.batch.force(row, id).expect("a request of the batch");
            }
        }
        let chosen = self.batch.step().expect("a step");
        let ids: Vec<RowId> = chosen.iter().map(|(row, _)| *row).collect();
        assert_eq!(ids, self.rows.iter().map(|(_, row)| *row).collect::<Vec<_>>());
        assert_eq!(ids, self.batch.rows());
        let mut bytes = Vec::new();
        for (name, row) in &self.rows {
            let logits = self.batch.logits(*row).expect("a request").expect("a step was run");
            bytes.extend_from_slice(logits.bytes());
            self.of.entry(name.clone()).or_default().push(logits);
        }
        let logits = HostTensor::new(Dtype::F32, [ids.len(), self.vocab], bytes).expect("rows");
        self.answers.insert(self.steps.to_string(), logits);
        self.steps += 1;
    }

    fn leave(&mut self, name: &str) {
        let at = self.rows.iter().position(|(known, _)| known == name).expect("a request");
        let (_, row) = self.rows.remove(at);
        let Left { mut decoder, .. } = self.batch.leave(row).expect("a request");
        let prompt = self.fixture.prompts[name].len();
        assert_eq!(decoder.offset(), prompt - 1 + self.run[name]);
        let mut bytes = Vec::new();
        for _ in 0..4 {
            let id = self.next(name).expect("behind the prompt");
            let logits = decoder.step(id).expect("a step");
            bytes.extend_from_slice(logits.bytes());
            self.of.entry(name.to_owned()).or_default().push(logits);
        }
        let logits = HostTensor::new(Dtype::F32, [4, self.vocab], bytes).expect("rows");
        self.answers.insert(format!("{name}/alone"), logits);
        assert!(matches!(self.batch.leave(row), Err(EngineError::NoSuchRow { .. })));
    }

    /// Holds each request to what it answers alone.
    fn each_is_as_alone(&self, model: &Model) {
        for (name, logits) in &self.of {
            let mut alone = Decoder::new(model, STEP_SIZE);
            let prompt = alone.prefill(&self.fixture.prompts[name]).expect("a prefill");
            let last = prompt.shape()[0];
            let mut want = prompt.rows(last - 1..last);
            for (at, got) in logits.iter().enumerate() {
                let off = distance(&want, got);
                assert!(off <= ROUNDING, "{} {name} {at}: {off}", model.architecture());
                want = alone.step(self.fixture.forced[name][at]).expect("a step");
            }
        }
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[rstest]
#[case::plain("llama", Folder::llama)]
#[case::normed_heads("qwen3", Folder::qwen3)]
#[case::windows("gemma3_text", Folder::windows)]
fn batches_have_the_bits_of_the_reference(
    #[case] name: &'static str,
    #[case] folder: fn(Dtype) -> Folder,
    #[values("script", "padded")] script: &'static str,
) {
    let differences = on_mlx_thread(move || {
        mlx_rs::Device::set_default(&mlx_rs::Device::cpu());
        let fixture = Fixture::open();
        let mlx = runtime_info().expect("mlx answers").mlx_version;
        assert_eq!(fixture.file.metadata()["mlx"], mlx, "remake the fixture");
        let model = folder(Dtype::F32).load().expect("a good folder");
        let led = Led::new(&model, &fixture).run(script);
        let kind = if script == "padded" { format!("{name}-padded") } else { name.to_owned() };
        let prefix = format!("{kind}/");
        let frozen = fixture.file.names().filter(|known| known.starts_with(&prefix));
        assert_eq!(frozen.count(), led.answers.len());
        let differs = |(what, got): (&String, &HostTensor)| {
            let want = fixture.file.tensor(&format!("{kind}/{what}")).expect("a frozen answer");
            (want != *got).then(|| what.clone())
        };
        led.answers.iter().filter_map(differs).collect::<Vec<_>>()
    });
    assert!(differences.is_empty(), "{differences:?}");
}

/// `gemma2` as a folder: scores under a softcap, two heads of keys.
fn gemma2(dtype: Dtype) -> Folder {
    let mut folder = Folder::gemma3_text(dtype);
    folder.tensors.retain(|name, _| !name.contains("q_norm") && !name.contains("k_norm"));
    folder.scale("model.embed_tokens.weight", |_| 0.02);
    folder.config["model_type"] = json!("gemma2");
    folder.config["attn_logit_softcapping"] = json!(5.0);
    for key in ["sliding_window", "sliding_window_pattern"] {
        folder.config.as_object_mut().expect("an object").remove(key);
    }
    folder
}

#[rstest]
#[case::plain(Folder::llama)]
#[case::normed_heads(Folder::qwen3)]
#[case::windows(Folder::windows)]
#[case::recurrent(Folder::qwen3_5)]
#[case::softcap(gemma2)]
fn each_request_is_as_it_is_alone(
    #[case] folder: fn(Dtype) -> Folder,
    #[values("script", "padded")] script: &'static str,
) {
    on_mlx_thread(move || {
        let fixture = Fixture::open();
        let model = folder(Dtype::F32).load().expect("a good folder");
        Led::new(&model, &fixture).run(script).each_is_as_alone(&model);
    });
}

/// mlx-lm's `gemma2` aligns the masks of sequences with heads where there are as many of both.
#[rstest]
fn as_many_requests_as_heads_of_keys_are_no_exception(#[values(1, 2, 3)] requests: usize) {
    on_mlx_thread(move || {
        let fixture = Fixture::open();
        let model = gemma2(Dtype::F32).load().expect("a good folder");
        let mut batch = Batch::new(&model, STEP_SIZE).expect("a batch");
        let prompts: Vec<&[u32]> =
            fixture.prompts.values().take(requests).map(Vec::as_slice).collect();
        let rows = batch.join_padded(&prompts).expect("prompts");
        batch.step().expect("a step");
        for (row, prompt) in rows.iter().zip(prompts) {
            let got = batch.logits(*row).expect("a request").expect("a step was run");
            let alone = Decoder::new(&model, STEP_SIZE).prefill(prompt).expect("a prefill");
            let off = distance(&alone.rows(prompt.len() - 1..prompt.len()), &got);
            assert!(off <= ROUNDING, "{off}");
        }
    });
}

#[test]
fn what_is_chosen_is_run_next() {
    on_mlx_thread(|| {
        let fixture = Fixture::open();
        let model = Folder::qwen3(Dtype::F32).load().expect("a good folder");
        let mut batch = Batch::new(&model, STEP_SIZE).expect("a batch");
        assert_eq!(batch.step().expect("nothing to do"), []);
        let go_on = |_| std::ops::ControlFlow::Continue(());
        let options = mlx_parity_engine::GenerateOptions {
            eos_token_ids: Vec::new(),
            ..mlx_parity_engine::GenerateOptions::for_model(&model, 6)
        };
        let mut wanted = Vec::new();
        let mut found = vec![Vec::new(); 2];
        for name in ["long", "short"] {
            let prompt = &fixture.prompts[name];
            batch.join(prompt).expect("a join");
            let ids = mlx_parity_engine::generate(&model, prompt, &options, go_on);
            wanted.push(ids.expect("a generation").ids);
        }
        for _ in 0..6 {
            for (ids, (_, chosen)) in found.iter_mut().zip(batch.step().expect("a step")) {
                ids.push(chosen);
            }
        }
        assert_eq!(found, wanted);
    });
}

#[test]
fn what_cannot_stand_beside_others_is_refused() {
    on_mlx_thread(|| {
        let model = Folder::llama(Dtype::F32).load().expect("a good folder");
        let mut batch = Batch::new(&model, STEP_SIZE).expect("a batch");
        assert!(matches!(batch.join(&[]), Err(EngineError::EmptyPrompt)));
        let error = batch.join(&[1, 40]).expect_err("an id of no row");
        assert!(matches!(error, EngineError::TokenOutOfRange { id: 40, .. }), "{error}");
        let row = batch.join(&[1, 2, 3]).expect("a join");
        assert!(batch.logits(row).expect("a request").is_none());
        assert!(matches!(batch.force(row, 40), Err(EngineError::TokenOutOfRange { .. })));
        let mut two = Decoder::new(&model, STEP_SIZE);
        two.prefill_batch(&[&[1, 2], &[3, 4]]).expect("two rows");
        assert!(batch.resume(two, 1).is_err());
        let other = Folder::llama(Dtype::F32).load().expect("a good folder");
        let error = batch.resume(Decoder::new(&other, 4), 1).map(drop);
        assert!(error.is_err());
        let error = Batch::new(&model, 0).map(drop).expect_err("no step");
        assert!(matches!(error, EngineError::ZeroPrefillStep));

        let mut folder = Folder::llama(Dtype::F32);
        folder.config["rope_scaling"] = json!({"type": "dynamic", "factor": 4.0});
        let dynamic = folder.load().expect("a good folder");
        let error = Batch::new(&dynamic, 4).map(drop).expect_err("one base a call").to_string();
        assert!(error.contains("`llama`") && error.contains("rotations"), "{error}");
    });
}

#[test]
fn packed_rows_and_kept_ones_stay_alone() {
    on_mlx_thread(|| {
        let mut folder = Folder::llama(Dtype::F32);
        folder.config["head_dim"] = json!(32);
        folder.config["num_attention_heads"] = json!(2);
        folder.config["num_key_value_heads"] = json!(1);
        let model = folder.load().expect("a good folder");
        let mut batch = Batch::new(&model, STEP_SIZE).expect("a batch");
        let composition = Composition::uniform(&model, KvBits { bits: 8, group: 32 });
        let mut packed = Decoder::with(&model, 4, &composition).expect("a decoder");
        packed.prefill(&[1, 2, 3]).expect("a prefill");
        let error = batch.resume(packed, 1).expect_err("packed rows").to_string();
        assert!(error.contains("quantized(8 bits, group 32)"), "{error}");
        let mut bounded = Decoder::bounded(&model, 4, 8).expect("a decoder");
        bounded.prefill(&[1, 2, 3]).expect("a prefill");
        let error = batch.resume(bounded, 1).expect_err("kept rows").to_string();
        assert!(error.contains("keeps its first 4 positions"), "{error}");
        assert!(batch.rows().is_empty());
        batch.join(&[1, 2]).expect("the batch is still good");
    });
}
