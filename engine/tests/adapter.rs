//! LoRA adapters on a loaded model: isolation, refusals, fusing.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{Folder, on_mlx_thread, write_tensors};
use mlx_parity_engine::array::{from_host, to_host};
use mlx_parity_engine::ops::packed::{self, Mode};
use mlx_parity_engine::ops::{Affine, eval};
use mlx_parity_engine::{Adapter, Decoder, EngineError, Model};
use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

const RANK: usize = 4;
const IDS: [u32; 9] = [3, 10, 17, 24, 31, 38, 5, 12, 19];

/// An adapter of `q_proj` and `down_proj` of the last block.
struct Lora {
    config: Value,
    tensors: BTreeMap<String, HostTensor>,
}

impl Lora {
    fn new(seed: &str, dtype: Dtype) -> Self {
        let config = json!({
            "fine_tune_type": "lora", "num_layers": 1, "iters": 100, "learning_rate": 1e-5,
            "lora_parameters": {
                "rank": RANK, "scale": 20.0, "dropout": 0.0,
                "keys": ["self_attn.q_proj", "mlp.down_proj"],
            },
        });
        let mut lora = Self { config, tensors: BTreeMap::new() };
        for (path, outputs, inputs) in [("self_attn.q_proj", 64, 64), ("mlp.down_proj", 64, 96)] {
            let path = format!("model.layers.1.{path}");
            lora.add(seed, &format!("{path}.lora_a"), &[inputs, RANK], dtype);
            lora.add(seed, &format!("{path}.lora_b"), &[RANK, outputs], dtype);
        }
        lora
    }

    fn add(&mut self, seed: &str, name: &str, shape: &[usize], dtype: Dtype) {
        let mut folder = Folder { config: json!({}), tensors: BTreeMap::new() };
        folder.add(&format!("{seed}{name}"), shape, dtype);
        self.tensors.extend(folder.tensors.into_values().map(|tensor| (name.to_owned(), tensor)));
    }

    fn write(&self) -> TempDir {
        let dir = TempDir::new().expect("a folder");
        let config = dir.path().join("adapter_config.json");
        std::fs::write(config, self.config.to_string()).expect("a config");
        write_tensors(&dir.path().join("adapters.safetensors"), self.tensors.iter());
        dir
    }

    fn load(&self) -> Result<Adapter, EngineError> {
        Adapter::load(self.write().path())
    }
}

fn adapter(seed: &str, dtype: Dtype) -> Adapter {
    Lora::new(seed, dtype).load().expect("an adapter")
}

fn logits(model: &Model) -> HostTensor {
    Decoder::new(model, 4).prefill(&IDS).expect("logits")
}

/// A llama whose matrices of the blocks are packed, 4 bits in groups of 32.
fn packed_llama() -> Folder {
    let mut folder = Folder::llama(Dtype::Bf16);
    folder.config["quantization"] = json!({"group_size": 32, "bits": 4});
    let matrix = |name: &str| name.contains("_proj");
    for (name, tensor) in folder.tensors.clone().into_iter().filter(|(name, _)| matrix(name)) {
        let path = name.trim_end_matches(".weight");
        let mode = Mode::Affine(Affine { group_size: 32, bits: 4 });
        let found = packed::quantize(&from_host(&tensor).expect("an array"), mode, None);
        let found = found.expect("whole groups");
        let biases = found.biases.expect("affine");
        eval([&found.words, &found.scales, &biases]).expect("arrays");
        for (part, array) in [("weight", found.words), ("scales", found.scales), ("biases", biases)]
        {
            let tensor = to_host(&array).expect("a tensor");
            folder.tensors.insert(format!("{path}.{part}"), tensor);
        }
    }
    folder
}

#[rstest]
#[case::f32(|| Folder::llama(Dtype::F32), Dtype::F32)]
#[case::bf16(|| Folder::llama(Dtype::Bf16), Dtype::F32)]
#[case::packed(packed_llama, Dtype::Bf16)]
fn adapters_leave_nothing_behind(#[case] folder: fn() -> Folder, #[case] dtype: Dtype) {
    on_mlx_thread(move || {
        let (a, b) = (adapter("a", dtype), adapter("b", dtype));
        let mut model = folder().load().expect("a model");
        let bare = logits(&model);
        let mut run = |adapter: &Adapter| {
            model.mount(adapter).expect("it fits");
            logits(&model)
        };
        let first = run(&a);
        let second = run(&b);
        assert_eq!(run(&a), first, "A, B, A gives A's bits back");
        assert!(first != bare && second != bare && first != second);
        assert_eq!(first.dtype(), bare.dtype());
        model.unmount();
        assert_eq!(logits(&model), bare, "and no adapter the bare model's");
        assert!(a.dtypes().expect("known dtypes").values().all(|found| *found == dtype));
    });
}

#[test]
fn scale_zero_is_no_adapter() {
    on_mlx_thread(|| {
        let mut zero = Lora::new("a", Dtype::F32);
        zero.config["lora_parameters"]["scale"] = json!(0.0);
        let mut model = Folder::llama(Dtype::Bf16).load().expect("a model");
        let bare = logits(&model);
        model.mount(&adapter("a", Dtype::F32)).expect("it fits");
        model.mount(&zero.load().expect("an adapter")).expect("it fits");
        assert_eq!(logits(&model), bare);
    });
}

#[test]
fn blocks_are_counted_from_the_last_and_keys_may_be_whole_paths() {
    on_mlx_thread(|| {
        let run = |change: fn(&mut Lora)| {
            let mut lora = Lora::new("a", Dtype::F32);
            change(&mut lora);
            let mut model = Folder::llama(Dtype::F32).load().expect("a model");
            model.mount(&lora.load().expect("an adapter"))?;
            Ok::<_, EngineError>(logits(&model))
        };
        let usual = run(|_| {}).expect("it fits");
        let whole = run(|lora| {
            lora.config["lora_parameters"]["keys"] =
                json!(["model.layers.1.self_attn.q_proj", "model.layers.1.mlp.down_proj"]);
        });
        assert_eq!(whole.expect("it fits"), usual);
        for layers in [0, -1, 2] {
            let error = match layers {
                0 => run(|lora| lora.config["num_layers"] = json!(0)),
                2 => run(|lora| lora.config["num_layers"] = json!(2)),
                _ => run(|lora| lora.config["num_layers"] = json!(-1)),
            };
            let message = error.expect_err("block 0 has no tensors").to_string();
            assert!(message.contains("model.layers.0.self_attn.q_proj.lora_a"), "{message}");
        }
        let every = run(|lora| {
            lora.config["lora_parameters"].as_object_mut().expect("an object").remove("keys");
        });
        let message = every.expect_err("each linear layer needs tensors").to_string();
        assert!(message.contains("model.layers.1.mlp.gate_proj.lora_b"), "{message}");
    });
}

#[rstest]
#[case::unknown_key(|lora: &mut Lora| lora.config["lora_parameters"]["keys"] = json!(["mlp.c_fc"]), "mlp.c_fc")]
#[case::other_rank(|lora: &mut Lora| lora.config["lora_parameters"]["rank"] = json!(8), "q_proj.lora_a (found [64, 4], wanted [64, 8])")]
#[case::unknown_layer(
    |lora: &mut Lora| lora.add("", "model.layers.7.self_attn.q_proj.lora_a", &[64, RANK], Dtype::F32),
    "model.layers.7.self_attn.q_proj.lora_a"
)]
#[case::half_a_layer(
    |lora: &mut Lora| drop(lora.tensors.remove("model.layers.1.mlp.down_proj.lora_b")),
    "model.layers.1.mlp.down_proj.lora_b"
)]
#[case::wrong_shape(
    |lora: &mut Lora| lora.add("", "model.layers.1.mlp.down_proj.lora_b", &[RANK, 65], Dtype::F32),
    "down_proj.lora_b (found [4, 65], wanted [4, 64])"
)]
#[case::integers(
    |lora: &mut Lora| {
        let ids = HostTensor::from_u32([RANK, 64], &[1; 64 * RANK]).expect("a tensor");
        lora.tensors.insert("model.layers.1.mlp.down_proj.lora_b".to_owned(), ids);
    },
    "down_proj.lora_b (found u32"
)]
fn what_does_not_fit_is_refused_and_the_old_one_stays(
    #[case] change: fn(&mut Lora),
    #[case] named: &'static str,
) {
    on_mlx_thread(move || {
        let mut model = Folder::llama(Dtype::F32).load().expect("a model");
        model.mount(&adapter("a", Dtype::F32)).expect("it fits");
        let before = logits(&model);
        let mut lora = Lora::new("b", Dtype::F32);
        change(&mut lora);
        let bad = lora.load().expect("a readable adapter");
        let message = model.mount(&bad).expect_err("to refuse").to_string();
        assert!(message.contains(named), "{message}");
        assert_eq!(logits(&model), before);
    });
}

#[rstest]
#[case::dora("fine_tune_type", json!("dora"))]
#[case::layers("num_layers", json!("all"))]
#[case::no_parameters("lora_parameters", json!(null))]
#[case::alpha("alpha", json!({"rank": 4, "scale": 1.0, "alpha": 16}))]
#[case::no_scale("scale", json!({"rank": 4}))]
#[case::rank_zero("rank", json!({"rank": 0, "scale": 1.0}))]
fn a_config_of_another_kind_is_refused_by_name(#[case] named: &str, #[case] value: Value) {
    let mut lora = Lora::new("a", Dtype::F32);
    let top = lora.config.as_object().expect("an object").contains_key(named);
    lora.config[if top { named } else { "lora_parameters" }] = value;
    let message = lora.load().expect_err("to refuse").to_string();
    assert!(message.contains(named) && message.contains("adapter_config.json"), "{message}");
}

#[test]
fn a_folder_without_an_adapter_is_named() {
    let error = Adapter::load(Path::new("no-such-folder")).expect_err("nothing there");
    assert!(error.to_string().contains("no-such-folder"), "{error}");
}

#[rstest]
#[case::f32(|| Folder::llama(Dtype::F32), 1e-5, 1e-5)]
// Sums below 32: half a unit for the product and half a unit for the sum.
#[case::bf16(|| Folder::llama(Dtype::Bf16), 0.125, 1.0)]
// A fifteenth of a range below 60, and as much again for rounded scales.
#[case::packed(packed_llama, 4.0, 20.0)]
fn fusing_says_what_it_costs_and_can_be_undone(
    #[case] folder: fn() -> Folder,
    #[case] weights: f64,
    #[case] of_logits: f64,
) {
    on_mlx_thread(move || {
        let mut model = folder().load().expect("a model");
        assert!(matches!(model.fuse(&IDS), Err(EngineError::NoAdapter)));
        model.mount(&adapter("a", Dtype::F32)).expect("it fits");
        let mounted = logits(&model);
        let fusion = model.fuse(&IDS).expect("an adapter to fuse");
        let names: Vec<_> = fusion.weights.keys().map(String::as_str).collect();
        assert_eq!(names, ["model.layers.1.mlp.down_proj", "model.layers.1.self_attn.q_proj"]);
        for (name, loss) in &fusion.weights {
            assert!(loss.mean <= loss.max && loss.max <= weights, "{name}: {loss:?}");
        }
        assert!(fusion.logits.max <= of_logits, "{:?}", fusion.logits);
        let fused = logits(&model);
        let distance = common::distance(&mounted, &fused);
        assert!((distance > 0.0) == (fusion.logits.max > 0.0), "{distance}");
        let other = model.mount(&adapter("b", Dtype::F32));
        assert!(matches!(other, Err(EngineError::AdapterFused)));
        assert!(matches!(model.fuse(&IDS), Err(EngineError::AdapterFused)));
        model.unfuse();
        assert_eq!(logits(&model), mounted, "bit for bit");
    });
}

#[test]
fn caches_of_another_adapter_are_refused() {
    on_mlx_thread(|| {
        let dir = TempDir::new().expect("a folder");
        let file = dir.path().join("caches.safetensors");
        let mut model = Folder::llama(Dtype::F32).load().expect("a model");
        model.mount(&adapter("a", Dtype::F32)).expect("it fits");
        let mut decoder = Decoder::new(&model, 4);
        decoder.prefill(&IDS).expect("logits");
        decoder.save_caches(&file).expect("a file");
        model.mount(&adapter("b", Dtype::F32)).expect("it fits");
        let error = Decoder::new(&model, 4).load_caches(&file).expect_err("another adapter's");
        assert!(matches!(error, EngineError::SavedCaches { .. }), "{error}");
        model.mount(&adapter("a", Dtype::F32)).expect("it fits");
        Decoder::new(&model, 4).load_caches(&file).expect("the same adapter's");
    });
}
