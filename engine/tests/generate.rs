//! Greedy generation.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use std::ops::ControlFlow;

use common::{Folder, on_mlx_thread};
use mlx_parity_engine::{
    Composition, DecodeMode, Decoder, EngineError, Finish, GenerateOptions, Model, generate,
};
use mlx_parity_tensor::{Dtype, HostTensor};

const PROMPT: [u32; 5] = [3, 14, 15, 9, 26];

fn model() -> Model {
    Folder::qwen3(Dtype::F32).load().expect("a good folder")
}

fn largest(logits: &HostTensor) -> u32 {
    let last = logits.rows(logits.shape()[0] - 1..logits.shape()[0]).to_f64();
    (0..last.len()).rev().max_by(|&a, &b| last[a].total_cmp(&last[b])).expect("logits") as u32
}

/// What generation must give, by the decoder's own logits.
fn by_hand(model: &Model, count: usize) -> Vec<u32> {
    let mut decoder = Decoder::new(model, 2);
    let mut ids = vec![largest(&decoder.prefill(&PROMPT).expect("a prefill"))];
    while ids.len() < count {
        ids.push(largest(&decoder.step(ids[ids.len() - 1]).expect("a step")));
    }
    ids
}

fn options(max_tokens: usize, eos_token_ids: Vec<u32>) -> GenerateOptions {
    GenerateOptions {
        max_tokens,
        prefill_step_size: 2,
        eos_token_ids,
        mode: DecodeMode::Eager,
        composition: Composition::l1(),
    }
}

#[test]
fn tokens_are_the_likeliest_and_stream_in_order() {
    on_mlx_thread(|| {
        let model = model();
        let mut streamed = Vec::new();
        let generated = generate(&model, &PROMPT, &options(12, vec![]), |id| {
            streamed.push(id);
            ControlFlow::Continue(())
        })
        .expect("a generation");
        assert_eq!(generated.ids, by_hand(&model, 12));
        assert_eq!(streamed, generated.ids);
        assert_eq!(generated.finish, Finish::Length);
    });
}

#[test]
fn an_end_id_ends_it_and_is_left_out() {
    on_mlx_thread(|| {
        let model = model();
        let all = by_hand(&model, 12);
        let end = *all.iter().find(|id| **id != all[0]).expect("two distinct tokens");
        let until: Vec<u32> = all.iter().copied().take_while(|id| *id != end).collect();
        let go_on = |_| ControlFlow::Continue(());
        let generated =
            generate(&model, &PROMPT, &options(12, vec![end]), go_on).expect("a generation");
        assert_eq!(generated.ids, until);
        assert_eq!(generated.finish, Finish::Eos(end));
    });
}

#[test]
fn the_callback_can_break_off() {
    on_mlx_thread(|| {
        let model = model();
        let mut left = 3;
        let generated = generate(&model, &PROMPT, &options(12, vec![]), |_| {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .expect("a generation");
        assert_eq!(generated.ids, by_hand(&model, 3));
        assert_eq!(generated.finish, Finish::Stopped);
    });
}

#[test]
fn no_tokens_and_no_prompt() {
    on_mlx_thread(|| {
        let model = model();
        let go_on = |_| ControlFlow::Continue(());
        let none = generate(&model, &PROMPT, &options(0, vec![]), go_on).expect("nothing to do");
        assert!(none.ids.is_empty());
        let error = generate(&model, &[], &options(3, vec![]), go_on).expect_err("no prompt");
        assert!(matches!(error, EngineError::EmptyPrompt), "{error}");
    });
}
