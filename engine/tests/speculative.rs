//! Speculative decoding chooses the ids that greedy decoding does.

mod common;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use common::{Folder, distance, on_mlx_thread};
use mlx_parity_engine::{
    Composition, Convert, DecodeMode, Decoder, EngineError, Finish, GenerateOptions, KvBits, Model,
    SpeculateOptions, Speculated, generate, speculate, speculate_with,
};
use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;
use serde_json::json;

const PROMPT: [u32; 5] = [3, 14, 15, 9, 26];

fn options(max_tokens: usize, draft_tokens: usize) -> SpeculateOptions {
    let generate = GenerateOptions {
        max_tokens,
        prefill_step_size: 3,
        eos_token_ids: Vec::new(),
        mode: DecodeMode::Eager,
        composition: Composition::l1(),
    };
    SpeculateOptions { generate, draft_tokens }
}

fn on(_: u32) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Holds speculative ids to greedy ones for every number of guesses, and returns the last run.
fn held(model: &Model, draft: &Model, prompt: &[u32], count: usize) -> Speculated {
    let mut last = None;
    for draft_tokens in 1..=8 {
        let options = options(count, draft_tokens);
        let wanted = generate(model, prompt, &options.generate, on).expect("a generation");
        let found = speculate(model, draft, prompt, &options, on).expect("a generation");
        let what = format!("{} guesses of {}", draft_tokens, model.architecture());
        assert_eq!(found.ids, wanted.ids, "{what}");
        assert_eq!(found.finish, wanted.finish);
        assert_eq!(
            found.ids.len(),
            found.calls + found.accepted,
            "{what}: a call has one of its own"
        );
        last = Some(found);
    }
    last.expect("eight runs")
}

/// A model like another whose norms are a little different: it is right now and then.
fn near(mut folder: Folder) -> Model {
    let norms: Vec<String> =
        folder.tensors.keys().filter(|name| name.ends_with("layernorm.weight")).cloned().collect();
    for name in norms {
        folder.scale(&name, |i| [0.9, 1.1][i % 2]);
    }
    folder.load().expect("a good folder")
}

#[rstest]
#[case::plain(Folder::llama)]
#[case::normed_heads(Folder::qwen3)]
#[case::a_window_three_times_over(Folder::windows)]
#[case::recurrent(Folder::qwen3_5)]
fn ids_are_greedy(#[case] folder: fn(Dtype) -> Folder) {
    on_mlx_thread(move || {
        let model = folder(Dtype::F32).load().expect("a good folder");
        let itself = held(&model, &model, &PROMPT, 24);
        assert_eq!(itself.accepted, itself.drafted, "a model guesses itself");
        let near = near(folder(Dtype::F32));
        let found = held(&model, &near, &PROMPT, 24);
        assert!(found.accepted > 0 && found.accepted < found.drafted, "{found:?}");
        let distinct: BTreeSet<&u32> = found.ids.iter().collect();
        assert!(distinct.len() > 4, "{found:?}");
    });
}

/// The draft of one kind of cache beside the model of another.
#[test]
fn kinds_of_caches_mix() {
    on_mlx_thread(|| {
        let folders = [Folder::llama, Folder::qwen3, Folder::windows];
        for (i, folder) in folders.iter().enumerate() {
            let model = folder(Dtype::F32).load().expect("a good folder");
            let draft = folders[(i + 1) % 3](Dtype::F32).load().expect("a good folder");
            held(&model, &draft, &PROMPT, 24);
        }
    });
}

#[test]
fn nothing_is_guessed_where_there_is_nothing_to_guess() {
    on_mlx_thread(|| {
        let model = Folder::llama(Dtype::F32).load().expect("a good folder");
        let run = |count| speculate(&model, &model, &PROMPT, &options(count, 4), on);
        assert_eq!(run(0).expect("nothing to do").ids, [0_u32; 0]);
        let one = run(1).expect("one token");
        assert_eq!((one.ids.len(), one.calls, one.drafted), (1, 1, 0));
        let six = run(6).expect("six tokens");
        assert_eq!((six.ids.len(), six.calls, six.drafted, six.accepted), (6, 2, 4, 4));
    });
}

#[test]
fn an_end_id_ends_it_among_guesses_too() {
    on_mlx_thread(|| {
        let model = Folder::windows(Dtype::F32).load().expect("a good folder");
        let all = generate(&model, &PROMPT, &options(24, 1).generate, on).expect("ids").ids;
        let end = *all.iter().find(|id| **id != all[0]).expect("two ids");
        let mut options = options(24, 6);
        options.generate.eos_token_ids = vec![end];
        let wanted = generate(&model, &PROMPT, &options.generate, on).expect("ids");
        let found = speculate(&model, &model, &PROMPT, &options, on).expect("ids");
        assert_eq!((found.ids, found.finish), (wanted.ids, Finish::Eos(end)));
        let mut seen = 0;
        let stopped = speculate(&model, &model, &PROMPT, &options, |_| {
            seen += 1;
            ControlFlow::Break(())
        });
        assert_eq!((stopped.expect("an id").finish, seen), (Finish::Stopped, 1));
    });
}

#[test]
fn rotations_that_stretch_with_the_call_are_run_one_by_one() {
    on_mlx_thread(|| {
        let mut folder = Folder::llama(Dtype::F32);
        folder.config["rope_scaling"] = json!({"type": "dynamic", "factor": 4.0});
        folder.config["max_position_embeddings"] = json!(12);
        let model = folder.load().expect("a good folder");
        let found = held(&model, &model, &PROMPT, 24);
        assert!(found.calls > 12, "past position 12 a call is a token: {found:?}");
        let half: Vec<f64> = vec![1.0; 8];
        folder.config["rope_scaling"] = json!({
            "type": "longrope", "short_factor": half, "long_factor": vec![4.0; 8],
            "original_max_position_embeddings": 12,
        });
        folder.config["max_position_embeddings"] = json!(64);
        let model = folder.load().expect("a good folder");
        held(&model, &model, &PROMPT, 24);
    });
}

/// Packed from the start, behind the prompt, and in the midst of the guesses.
#[rstest]
fn ids_of_packed_caches_are_greedy(
    #[values(Convert::Empty, Convert::AfterForward, Convert::FromStep(11))] convert: Convert,
    #[values(0, 2)] shape: usize,
) {
    on_mlx_thread(move || {
        let mut folder = [Folder::llama, Folder::qwen3, Folder::windows][shape](Dtype::F32);
        widen(&mut folder);
        let model = folder.load().expect("a good folder");
        let bits = KvBits { bits: 8, group: 32 };
        let composition = Composition { convert, ..Composition::uniform(&model, bits) };
        let decoder = || Decoder::with(&model, 3, &composition).expect("a head of 32");
        for draft_tokens in 1..=8 {
            for prompt in [&PROMPT[..], &PROMPT[..1]] {
                let mut straight = decoder();
                let logits = straight.prefill(prompt).expect("a prefill");
                let mut wanted = vec![largest(&logits)];
                while wanted.len() < 24 {
                    let last = wanted[wanted.len() - 1];
                    wanted.push(largest(&straight.step(last).expect("a step")));
                }
                let found = speculate_with(
                    &mut decoder(),
                    &mut Decoder::new(&model, 3),
                    prompt,
                    &options(24, draft_tokens),
                    on,
                );
                let found = found.expect("a generation");
                assert_eq!(found.ids, wanted, "{draft_tokens} guesses, {composition}");
                assert!(found.accepted > 0);
            }
        }
    });
}

/// The likeliest id behind the last position.
fn largest(logits: &HostTensor) -> u32 {
    let last = logits.rows(logits.shape()[0] - 1..logits.shape()[0]).to_f64();
    (0..last.len()).rev().max_by(|&a, &b| last[a].total_cmp(&last[b])).expect("logits") as u32
}

/// Two heads of 32 instead of four of 16, whose width a group of packed values divides.
fn widen(folder: &mut Folder) {
    folder.config["head_dim"] = json!(32);
    folder.config["num_attention_heads"] = json!(2);
    folder.config["num_key_value_heads"] = json!(1);
    let norms: Vec<String> = folder
        .tensors
        .keys()
        .filter(|name| name.ends_with("q_norm.weight") || name.ends_with("k_norm.weight"))
        .cloned()
        .collect();
    for name in norms {
        folder.add(&name, &[32], Dtype::F32);
    }
}

/// Of the largest logit, in f32 and in bf16: sums in another order.
fn rounding(dtype: Dtype) -> f64 {
    if dtype == Dtype::F32 { 1e-5 } else { 0.1 }
}

/// The logits behind `ids`, which are run in calls of `width`, the first one of what is left over.
fn behind(model: &Model, ids: &[u32], width: usize) -> HostTensor {
    let mut decoder = Decoder::new(model, 3);
    let (first, rest) = ids.split_at(ids.len() % width);
    let mut last = None;
    for call in first.chunks(width).chain(rest.chunks(width)) {
        last = Some(decoder.verify(call).expect("a call"));
    }
    let logits = last.expect("some ids");
    logits.rows(logits.shape()[0] - 1..logits.shape()[0])
}

#[rstest]
#[case::plain(Folder::llama)]
#[case::normed_heads(Folder::qwen3)]
#[case::windows(Folder::windows)]
#[case::recurrent(Folder::qwen3_5)]
fn a_call_of_several_tokens_is_close_to_those_tokens(
    #[case] folder: fn(Dtype) -> Folder,
    #[values(Dtype::F32, Dtype::Bf16)] dtype: Dtype,
) {
    on_mlx_thread(move || {
        let model = folder(dtype).load().expect("a good folder");
        for length in [9, 12, 20] {
            let ids: Vec<u32> = (0..length).map(|i| (i * i * 7 + 3) % 40).collect();
            let alone = behind(&model, &ids, 1);
            for width in 2..=9 {
                let off = distance(&alone, &behind(&model, &ids, width));
                assert!(off <= rounding(dtype), "{width} of {length}: {off}");
            }
        }
    });
}

/// In bf16 ids may part, but only where the two are nearer to each other than what calls of other widths
/// make of the same logits.
#[rstest]
#[case::plain(Folder::llama)]
#[case::normed_heads(Folder::qwen3)]
#[case::windows(Folder::windows)]
#[case::recurrent(Folder::qwen3_5)]
fn ids_part_at_ties_only(#[case] folder: fn(Dtype) -> Folder) {
    on_mlx_thread(move || {
        let model = folder(Dtype::Bf16).load().expect("a good folder");
        for draft_tokens in [1, 2, 5, 8] {
            let options = options(32, draft_tokens);
            let wanted = generate(&model, &PROMPT, &options.generate, on).expect("ids").ids;
            let found = speculate(&model, &model, &PROMPT, &options, on).expect("ids").ids;
            let Some(at) = (0..32).find(|&at| wanted[at] != found[at]) else { continue };
            let ids = [&PROMPT[..], &wanted[..at]].concat();
            let alone = behind(&model, &ids, 1).to_f64();
            let margin = (alone[wanted[at] as usize] - alone[found[at] as usize]).abs();
            let spread = |width| {
                let other = behind(&model, &ids, width).to_f64();
                alone.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
            };
            let noise = (2..=ids.len().min(9)).map(spread).fold(0.0, f64::max);
            assert!(margin <= 2.0 * noise, "at {at}: {margin} apart, rounding {noise}");
        }
    });
}

#[test]
fn bad_options_are_refused_before_anything_runs() {
    on_mlx_thread(|| {
        let model = Folder::llama(Dtype::F32).load().expect("a good folder");
        let mut small = Folder::llama(Dtype::F32);
        small.config["vocab_size"] = json!(39);
        small.add("model.embed_tokens.weight", &[39, common::HIDDEN], Dtype::F32);
        let small = small.load().expect("a good folder");
        let refusal = |draft: &Model, prompt: &[u32], draft_tokens| {
            speculate(&model, draft, prompt, &options(4, draft_tokens), on).expect_err("a refusal")
        };
        let error = refusal(&model, &PROMPT, 0).to_string();
        assert_eq!(error, "speculative decoding: `draft_tokens` is 0, wanted 1 or more");
        let error = refusal(&small, &PROMPT, 2).to_string();
        assert!(error.contains("is 39, wanted 40, the model's"), "{error}");
        assert!(matches!(refusal(&model, &[], 2), EngineError::EmptyPrompt));
        assert!(matches!(refusal(&model, &[40], 2), EngineError::TokenOutOfRange { .. }));
    });
}
