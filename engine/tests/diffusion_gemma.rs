//! Denoising: what is refused, what the options do. Exactness is checked by the harness, not here.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use std::ops::ControlFlow;
use std::path::Path;

use common::{Folder, on_mlx_thread};
use mlx_parity_engine::{
    Decoder, DenoiseOptions, Denoised, EngineError, Finish, GenerateOptions, Model, Sampler,
    generate,
};
use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;
use serde_json::{Value, json};

const PROMPT: [u32; 20] = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 32, 38, 4, 6, 2, 161, 4, 33, 8];

/// The committed synthetic model, with other values.
fn folder() -> Folder {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../goldens/synthetic/diffusion_gemma");
    let read = |name: &str| -> Value {
        let text = std::fs::read_to_string(dir.join(name)).expect("a committed file");
        serde_json::from_str(&text).expect("JSON")
    };
    let mut folder = Folder { config: read("config.json"), tensors: [].into() };
    for tensor in read("tensors.json")["tensors"].as_array().expect("a list") {
        let shape: Vec<usize> = serde_json::from_value(tensor["shape"].clone()).expect("a shape");
        folder.add(tensor["name"].as_str().expect("a name"), &shape, Dtype::F32);
    }
    folder
}

/// A model that is sure of nothing.
fn flat() -> Folder {
    let mut folder = folder();
    folder.config["text_config"]["final_logit_softcapping"] = json!(0.2);
    folder
}

fn options() -> DenoiseOptions {
    DenoiseOptions {
        denoising_steps: Some(3),
        min_canvas_length: Some(4),
        max_canvas_length: Some(8),
        max_tokens: Some(12),
        temperature: 0.8,
        sampler: Sampler::EntropyBound,
        seed: 5,
        ..DenoiseOptions::default()
    }
}

type Steps = Vec<(usize, usize, Vec<(&'static str, HostTensor)>)>;

fn run(model: &Model, options: &DenoiseOptions) -> (Denoised, Steps) {
    let mut steps = Vec::new();
    let done = model.denoise(&PROMPT, options, |step| {
        steps.push((step.canvas, step.step, step.tensors().expect("tensors")));
        ControlFlow::Continue(())
    });
    (done.expect("a run"), steps)
}

#[test]
fn a_run_shows_every_step_and_follows_its_seed() {
    on_mlx_thread(|| {
        let model = folder().load().expect("a good folder");
        let (done, steps) = run(&model, &options());
        assert_eq!((done.ids.len(), done.finish), (12, Finish::Length));
        let at: Vec<_> = steps.iter().map(|(canvas, step, _)| (*canvas, *step)).collect();
        assert_eq!(at, [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)]);
        let names = |step: usize| -> Vec<_> {
            steps[step].2.iter().map(|(name, tensor)| (*name, tensor.shape().to_vec())).collect()
        };
        let shape = |name, shape: &[usize]| (name, shape.to_vec());
        let seen = [shape("tokens", &[8]), shape("logits", &[8, 256])];
        let told = [shape("conditioning", &[8, 128])];
        let made = [shape("uncertainty", &[8]), shape("committed", &[8])];
        assert_eq!(names(0), [&seen[..], &made].concat());
        assert_eq!(names(1), [&seen[..], &told, &made].concat());
        assert_eq!(names(2), [&seen[..], &told].concat());
        // Four tokens are left for the second canvas.
        assert_eq!(names(3)[0], shape("tokens", &[4]));

        assert_eq!(run(&model, &options()), (done.clone(), steps.clone()));
        let (_, other) = run(&model, &DenoiseOptions { seed: 6, ..options() });
        assert_ne!(other[0].2[0], steps[0].2[0], "another seed is other noise");
    });
}

#[test]
fn committed_positions_stay_under_the_confidence_sampler() {
    on_mlx_thread(|| {
        let model = flat().load().expect("a good folder");
        let sampler = Sampler::ConfidenceThreshold(1.0);
        let (_, steps) = run(&model, &DenoiseOptions { sampler, ..options() });
        let tensor = |step: usize, wanted: &str| {
            let found = steps[step].2.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, tensor)| tensor.clone()).expect("a tensor")
        };
        let committed = |step| tensor(step, "committed").bytes().to_vec();
        let first = committed(0);
        assert_eq!(first.iter().filter(|&&byte| byte != 0).count(), 1, "one is forced");
        let at = first.iter().position(|&byte| byte != 0).expect("one");
        assert_eq!(committed(1)[at], 0, "it is not chosen again");
        let token = |step: usize| tensor(step, "tokens").to_f64()[at];
        assert_eq!(token(1), token(2));
    });
}

#[test]
fn a_run_ends_where_it_is_told_to() {
    on_mlx_thread(|| {
        let model = folder().load().expect("a good folder");
        let (done, _) = run(&model, &options());
        let end = done.ids[5];
        let first = done.ids.iter().position(|&id| id == end).expect("it is there");
        let (ended, _) = run(&model, &DenoiseOptions { stop_token_ids: vec![end], ..options() });
        assert_eq!(ended, Denoised { ids: done.ids[..first].to_vec(), finish: Finish::Eos(end) });

        let mut seen = 0;
        let stopped = model.denoise(&PROMPT, &options(), |_| {
            seen += 1;
            if seen == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let nothing = Denoised { ids: Vec::new(), finish: Finish::Stopped };
        assert_eq!((stopped.expect("no error"), seen), (nothing, 2));
    });
}

#[test]
fn one_step_has_its_intermediates_kept() {
    on_mlx_thread(|| {
        let model = folder().load().expect("a good folder");
        let mut found = Vec::new();
        let options = DenoiseOptions { tapped_step: Some(2), ..options() };
        let watch = |step: &mlx_parity_engine::DenoiseStep| {
            found.push(step.taps().iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
            ControlFlow::Continue(())
        };
        model.denoise(&PROMPT, &options, watch).expect("a run");
        assert!(found.iter().enumerate().all(|(at, taps)| (at == 1) != taps.is_empty()));
        for name in ["embed", "self_conditioning.gate", "layers.3.experts", "norm"] {
            assert!(found[1].iter().any(|tap| tap == name), "{name} of {:?}", found[1]);
        }
    });
}

#[test]
fn decoding_token_by_token_is_refused_with_what_to_call() {
    on_mlx_thread(|| {
        let model = folder().load().expect("a good folder");
        let mut decoder = Decoder::new(&model, 8);
        let generated = generate(&model, &[1, 2], &GenerateOptions::for_model(&model, 3), |_| {
            ControlFlow::Continue(())
        });
        let refusals = [
            decoder.prefill(&[1, 2]).map(|_| ()),
            decoder.step(1).map(|_| ()),
            decoder.prefill_batch(&[&[1, 2], &[3, 4]]).map(|_| ()),
            decoder.step_batch(&[1, 2]).map(|_| ()),
            generated.map(|_| ()),
        ];
        for refusal in refusals {
            let error = refusal.expect_err("it has no next token");
            let EngineError::NotAutoregressive { model_type } = &error else { panic!("{error}") };
            assert_eq!(*model_type, "diffusion_gemma");
            assert!(error.to_string().contains("call `Model::denoise`"), "{error}");
        }
        assert_eq!(decoder.offset(), 0);

        let llama = Folder::llama(Dtype::F32).load().expect("a good folder");
        let error = llama.denoise(&[1], &options(), |_| ControlFlow::Continue(()));
        let error = error.expect_err("it has no canvas");
        assert!(matches!(error, EngineError::NotDiffusion { model_type: "llama" }), "{error}");
    });
}

#[test]
fn bad_options_are_refused_before_anything_runs() {
    on_mlx_thread(|| {
        let model = folder().load().expect("a good folder");
        let refusal = |prompt: &[u32], options: &DenoiseOptions| {
            let ran = model.denoise(prompt, options, |_| panic!("no step may run"));
            ran.expect_err("a bad option")
        };
        let zero = Some(0);
        let cases = [
            ("max_tokens", DenoiseOptions { max_tokens: zero, ..options() }),
            ("denoising_steps", DenoiseOptions { denoising_steps: zero, ..options() }),
            ("min_canvas_length", DenoiseOptions { min_canvas_length: zero, ..options() }),
            ("max_canvas_length", DenoiseOptions { max_canvas_length: zero, ..options() }),
            ("prefill_step_size", DenoiseOptions { prefill_step_size: zero, ..options() }),
            ("temperature", DenoiseOptions { temperature: f64::NAN, ..options() }),
            ("temperature", DenoiseOptions { temperature: -1.0, ..options() }),
            (
                "threshold",
                DenoiseOptions { sampler: Sampler::ConfidenceThreshold(1.1), ..options() },
            ),
        ];
        for (name, options) in cases {
            match refusal(&[1], &options) {
                EngineError::DenoiseOption { option, .. } => assert_eq!(option, name),
                other => panic!("{other}"),
            }
        }
        assert!(matches!(refusal(&[], &options()), EngineError::EmptyPrompt));
        let beyond = refusal(&[1, 256], &options());
        assert!(matches!(beyond, EngineError::TokenOutOfRange { id: 256, position: 1, .. }));
    });
}

#[test]
fn tensors_that_sanitize_drops_or_renames_change_nothing() {
    on_mlx_thread(|| {
        let plain = run(&folder().load().expect("a good folder"), &options());
        let mut raw = folder();
        for layer in 0..4 {
            for name in ["gate_up_proj", "down_proj"] {
                let path = format!("model.decoder.layers.{layer}.experts.{name}");
                let tensor = raw.tensors.remove(&format!("{path}.weight")).expect("experts");
                raw.tensors.insert(path, tensor);
            }
        }
        for dropped in [
            "lm_head.weight",
            "model.encoder.language_model.embed_tokens.weight",
            "model.encoder.vision_tower.layers.0.weight",
            "model.encoder.embed_vision.weight",
            "model.decoder.layers.0.self_attn.rotary_emb.inv_freq",
        ] {
            raw.add(dropped, &[2, 2], Dtype::F32);
        }
        assert_eq!(run(&raw.load().expect("a good folder"), &options()), plain);

        let mut extra = folder();
        extra.add("model.decoder.other.weight", &[2], Dtype::F32);
        let error = extra.load().expect_err("a tensor nothing reads").to_string();
        assert!(error.contains("model.decoder.other.weight"), "{error}");
    });
}

#[test]
fn an_image_token_is_read_as_padding() {
    on_mlx_thread(|| {
        let mut other = folder();
        let (with, _) = run(&other.load().expect("a good folder"), &options());
        other.config["image_token_id"] = json!(200);
        let (without, _) = run(&other.load().expect("a good folder"), &options());
        assert_ne!(with, without, "token 161 of the prompt is an image's in the first");
    });
}

#[rstest]
#[case::unknown("surprise", json!(1), "`surprise`")]
#[case::untied("tie_word_embeddings", json!(false), "`tie_word_embeddings`")]
#[case::no_image_token("image_token_id", json!(null), "`image_token_id`")]
#[case::no_canvas("canvas_length", json!(0), "`canvas_length`")]
#[case::activation("text_config.hidden_activation", json!("silu"), "`text_config.hidden_activation`")]
#[case::text_unknown("text_config.surprise", json!(1), "`surprise`")]
#[case::all_bidirectional(
    "text_config.use_bidirectional_attention", json!("all"), "use_bidirectional_attention"
)]
#[case::layer_names("text_config.layer_types", json!(["chunked", "full_attention"]), "layer_types")]
#[case::layer_kind(
    "text_config.layer_types",
    json!(["chunked", "full_attention", "full_attention", "full_attention"]),
    "`chunked`"
)]
#[case::rope_type(
    "text_config.rope_parameters.full_attention.rope_type", json!("yarn"),
    "`text_config.rope_parameters.full_attention.rope_type` is `yarn`"
)]
#[case::partial_default(
    "text_config.rope_parameters.sliding_attention.partial_rotary_factor", json!(0.5),
    "partial_rotary_factor"
)]
#[case::rope_layers("text_config.rope_parameters.other", json!({}), "rope_parameters.other")]
#[case::too_many_experts("text_config.top_k_experts", json!(9), "1 to num_experts = 8")]
#[case::softcap("text_config.final_logit_softcapping", json!(null), "final_logit_softcapping")]
#[case::kv_heads("text_config.num_global_key_value_heads", json!(3), "num_global_key_value_heads")]
#[case::window("text_config.sliding_window", json!(0), "sliding_window")]
#[case::padding("text_config.pad_token_id", json!(256), "pad_token_id")]
#[case::shared_kv("text_config.num_kv_shared_layers", json!(2), "num_kv_shared_layers")]
#[case::sampler(
    "generation_config.sampler_config._cls_name", json!("Other"), "sampler_config._cls_name"
)]
#[case::schedule(
    "generation_config.linear_temperature_schedule_config.t_min", json!(0.0), "t_min"
)]
#[case::decoding("generation_config.top_p", json!(0.9), "`top_p`")]
fn a_config_that_means_other_maths_is_refused(
    #[case] path: &str,
    #[case] value: Value,
    #[case] says: &str,
) {
    let mut folder = folder();
    let pointer = format!("/{}", path.replace('.', "/"));
    let (parent, key) = pointer.rsplit_once('/').expect("a path");
    folder.config.pointer_mut(parent).expect("its parent")[key] = value;
    let says = says.to_owned();
    on_mlx_thread(move || {
        let error = folder.load().expect_err("it must be refused").to_string();
        assert!(error.contains(&says) && error.contains("config.json"), "{error}");
    });
}

#[cfg(debug_assertions)]
#[rstest]
#[case::entropy(Sampler::EntropyBound)]
#[case::confidence(Sampler::ConfidenceThreshold(1.0))]
fn the_early_commit_fault_commits_one_more(#[case] sampler: Sampler) {
    use mlx_parity_engine::{Fault, LoadOptions};
    on_mlx_thread(move || {
        let dir = flat().write();
        let count = |fault| {
            let options = LoadOptions { fault, ..LoadOptions::default() };
            let model = Model::load(dir.path(), &options).expect("a good folder");
            let (_, steps) = run(&model, &DenoiseOptions { sampler, ..self::options() });
            let committed = steps[0].2.iter().find(|(name, _)| *name == "committed");
            let committed = committed.map(|(_, tensor)| tensor.bytes().to_vec());
            committed.expect("a mask").iter().filter(|&&byte| byte != 0).count()
        };
        assert_eq!(count(Some(Fault::EarlyCommit)), count(None) + 1);
    });
}
