//! Generated networks compute what the networks they unroll compute, run where their config is loaded,
//! and are what the generator writes now.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Folder, on_mlx_thread};
use mlx_parity_engine::{
    Decoder, EngineError, Fault, GENERATED_BY, LoadOptions, Model, Rung, Specialization, Taps,
    generate_networks,
};
use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).expect("a file")).expect("JSON")
}

/// Numbers that look random, the same in every run.
struct Noise(u64);

impl Noise {
    fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Within a tenth of 1.
    fn about_one(&mut self) -> f64 {
        0.9 + 0.2 * ((self.word() >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

/// A synthetic model in a lane, with weights of our own.
fn folder(name: &str, lane: &str) -> Folder {
    let source = root().join("goldens/synthetic").join(name);
    let config = read_json(&source.join("config.json"));
    let inventory = read_json(&source.join("tensors.json"));
    let mut folder = Folder { config, tensors: BTreeMap::new() };
    let dtype = if lane == "bf16" { Dtype::Bf16 } else { Dtype::F32 };
    for tensor in inventory["tensors"].as_array().expect("a list") {
        let name = tensor["name"].as_str().expect("a name");
        let shape: Vec<usize> = serde_json::from_value(tensor["shape"].clone()).expect("a shape");
        if lane == "4bit" && tensor.get("quantize").is_some() {
            pack(&mut folder, name, &shape);
        } else {
            folder.add(name, &shape, dtype);
        }
    }
    if lane == "4bit" {
        folder.config["quantization"] = json!({"group_size": 32, "bits": 4});
    }
    folder
}

/// Adds a matrix packed at 4 bits in groups of 32, its values within 0.4 of 0.
fn pack(folder: &mut Folder, name: &str, shape: &[usize]) {
    let path = name.strip_suffix(".weight").expect("the weight of a module");
    let mut noise = Noise(0x9E37_79B9_7F4A_7C15 ^ name.len() as u64);
    let words = [shape[0], shape[1] / 8];
    let bytes = (0..words[0] * words[1]).flat_map(|_| (noise.word() as u32).to_le_bytes());
    let packed = HostTensor::new(Dtype::U32, words, bytes.collect::<Vec<_>>()).expect("words");
    folder.tensors.insert(name.to_owned(), packed);
    let groups = [shape[0], shape[1] / 32];
    for (part, value) in [("scales", 0.05), ("biases", -0.375)] {
        let values: Vec<f64> =
            (0..groups[0] * groups[1]).map(|_| value * noise.about_one()).collect();
        let tensor = HostTensor::from_f64_as(Dtype::F32, groups, &values).expect("floats");
        folder.tensors.insert(format!("{path}.{part}"), tensor);
    }
}

/// The logits of a prefill in three chunks and of 24 steps, and the intermediates of all of it.
fn run(model: &Model) -> (Vec<Vec<u8>>, Vec<(String, HostTensor)>) {
    let ids: Vec<u32> = (0..65).map(|i| (i * 37 + 11) % 256).collect();
    let mut decoder = Decoder::new(model, 24);
    decoder.set_taps(Taps::All);
    let mut logits = vec![decoder.prefill(&ids[..41]).expect("a prefill").into_bytes()];
    for id in &ids[41..] {
        logits.push(decoder.step(*id).expect("a step").into_bytes());
    }
    (logits, decoder.take_taps())
}

fn load(folder: &Folder, options: LoadOptions) -> Result<Model, EngineError> {
    let dir = folder.write();
    Model::load(dir.path(), &options)
}

#[rstest]
fn a_generated_network_has_the_bits_of_the_one_it_unrolls(
    #[values(("llama-unrolled", Rung::Universal), ("gemma4", Rung::Dedicated))] of: (&str, Rung),
    #[values("f32", "bf16", "4bit")] lane: &str,
) {
    let ((name, of), lane) = ((of.0.to_owned(), of.1), lane.to_owned());
    on_mlx_thread(move || {
        let folder = folder(&name, &lane);
        let generated = load(&folder, LoadOptions::default()).expect("a good folder");
        let unrolled = load(&folder, LoadOptions { rung: Some(of), ..LoadOptions::default() });
        let unrolled = unrolled.expect("a good folder");
        assert_eq!((generated.rung(), unrolled.rung()), (Rung::Generated, of));
        assert!(matches!(generated.specialization(), Specialization::Taken { .. }));
        assert_eq!(*unrolled.specialization(), Specialization::NotAsked);

        let (mine, mut my_taps) = run(&generated);
        let (theirs, their_taps) = run(&unrolled);
        assert!(mine == theirs, "{name} in {lane}: the logits differ");
        // The mark of a generated network: three calls of the prefill and 24 steps went through it.
        let all = my_taps.len();
        my_taps.retain(|(name, _)| name != "generated");
        assert_eq!(all - my_taps.len(), 27);
        assert!(their_taps.iter().all(|(name, _)| name != "generated"));
        let count = compare(&my_taps, &their_taps);
        assert!(count > 27 * 40, "only {count} intermediates have counterparts");
    });
}

/// Intermediates of equal name, call by call; returns how many there are.
fn compare(mine: &[(String, HostTensor)], theirs: &[(String, HostTensor)]) -> usize {
    let mut by_name: BTreeMap<&str, Vec<&HostTensor>> = BTreeMap::new();
    for (name, tensor) in theirs {
        by_name.entry(name).or_default().push(tensor);
    }
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, tensor) in mine {
        let call = seen.entry(name).or_default();
        let other = by_name.get(name.as_str()).and_then(|all| all.get(*call));
        assert_eq!(Some(&tensor), other, "{name} of call {call}");
        *call += 1;
    }
    mine.len()
}

#[rstest]
#[case::llama("llama-unrolled", Rung::Universal, "rms_norm_eps", json!(1e-6))]
#[case::gemma4("gemma4", Rung::Dedicated, "text_config.rms_norm_eps", json!(1e-5))]
fn a_config_that_differs_falls_back_and_says_so(
    #[case] name: &'static str,
    #[case] of: Rung,
    #[case] key: &'static str,
    #[case] value: Value,
) {
    on_mlx_thread(move || {
        let mut folder = folder(name, "f32");
        match key.split_once('.') {
            Some((outer, inner)) => folder.config[outer][inner] = value,
            None => folder.config[key] = value,
        }
        let model = load(&folder, LoadOptions::default()).expect("a good folder");
        assert_eq!(model.rung(), of);
        let Specialization::FellBack { fingerprint } = model.specialization() else {
            panic!("{:?}", model.specialization());
        };
        let said = model.specialization().to_string();
        assert!(said.contains("fell back") && said.contains(fingerprint), "{said}");
        let only = LoadOptions { rung: Some(Rung::Generated), ..LoadOptions::default() };
        let refused = load(&folder, only).expect_err("no such network");
        assert!(matches!(refused, EngineError::NoSuchRung { .. }), "{refused}");
    });
}

#[test]
fn keys_that_change_nothing_do_not_change_the_fingerprint() {
    on_mlx_thread(|| {
        let mut folder = folder("llama-unrolled", "f32");
        folder.config["torch_dtype"] = json!("float32");
        folder.config["eos_token_id"] = json!(7);
        let model = load(&folder, LoadOptions::default()).expect("a good folder");
        assert_eq!(model.rung(), Rung::Generated);
    });
}

#[test]
fn a_type_without_generated_networks_has_none_to_fall_back_from() {
    on_mlx_thread(|| {
        let model = Folder::qwen3(Dtype::F32).load().expect("a good folder");
        assert_eq!(*model.specialization(), Specialization::NotAsked);
    });
}

#[cfg(debug_assertions)]
#[test]
fn a_deliberate_fault_is_not_lost_in_a_generated_network() {
    on_mlx_thread(|| {
        let fault = Some(Fault::parse("rope-base").expect("a fault"));
        let folder = folder("gemma4", "f32");
        let options = LoadOptions { fault, ..LoadOptions::default() };
        let model = load(&folder, options).expect("a good folder");
        assert_eq!(model.rung(), Rung::Dedicated);
        let sound = load(&folder, LoadOptions::default()).expect("a good folder");
        assert_ne!(run(&model).0, run(&sound).0);
    });
}

#[test]
fn committed_networks_are_what_the_generator_writes() {
    let folder = root().join("engine/src/model/generated");
    let mut there = BTreeMap::new();
    for entry in folder.read_dir().expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        there.insert(name, fs::read_to_string(&path).expect("a source file"));
    }
    let config = |text: &String| {
        let rest = text.strip_prefix(GENERATED_BY)?;
        Some(rest.split('`').next()?.to_owned())
    };
    let configs: Vec<String> = there.values().filter_map(config).collect();
    assert!(configs.len() >= 2, "{configs:?}");
    let files = generate_networks(&root(), &configs).expect("configs that it takes");
    assert_eq!(there.keys().collect::<Vec<_>>().len(), files.len());
    for file in files {
        let text = formatted(&file.text);
        assert!(
            there.get(&file.name) == Some(&text),
            "{}: not what `cargo xtask gen-model` writes now",
            file.name
        );
    }
}

fn formatted(text: &str) -> String {
    let mut rustfmt = Command::new("rustfmt")
        .arg("--config-path")
        .arg(root().join(".rustfmt.toml"))
        .arg("--edition=2024")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("rustfmt, a part of the toolchain");
    rustfmt.stdin.take().expect("an input").write_all(text.as_bytes()).expect("an open pipe");
    let output = rustfmt.wait_with_output().expect("an end");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("source text")
}

#[rstest]
#[case::longrope("llama-longrope", "rope_scaling")]
#[case::experts("gemma4_text-moe", "enable_moe_block")]
#[case::another_type("qwen3", "model_type")]
fn what_no_network_is_generated_for_is_refused_by_name(#[case] name: &str, #[case] key: &str) {
    let configs = [format!("goldens/synthetic/{name}")];
    let message = generate_networks(&root(), &configs).expect_err("left out").to_string();
    assert!(message.contains(key) && message.contains("config.json"), "{message}");
}
