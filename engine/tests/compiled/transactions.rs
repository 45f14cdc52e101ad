//! A compiled step that fails at any point leaves the caches as they were, and an eager one behind it is
//! the one clean step.

use std::collections::BTreeSet;

use mlx_parity_engine::{Composition, Convert, DecodeMode, Decoder, EngineError, KvBits, Model};
use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;

use crate::common::on_mlx_thread;
use crate::models::{folder, segmented, state};

const NEXT: u32 = 7;

/// A model, a composition and the length of a prompt.
struct Scene<'m>(&'m Model, Composition, usize);

/// A decoder behind a prompt and `steps` compiled steps.
fn behind<'m>(Scene(model, composition, prompt): &Scene<'m>, steps: usize) -> Decoder<'m> {
    let prompt = *prompt;
    let ids: Vec<u32> = (0..prompt + steps).map(|i| (i as u32 * 37 + 11) % 200).collect();
    let mut decoder = Decoder::with(model, 24, composition).expect("a fitting composition");
    decoder.set_mode(DecodeMode::Compiled).expect("segments, and a compiler");
    decoder.prefill(&ids[..prompt]).expect("a prefill");
    for &id in &ids[prompt..] {
        decoder.step(id).expect("a step");
    }
    decoder
}

/// Lets the next step fail at every point it has; the points' names.
fn fail_everywhere(scene: &Scene, steps: usize) -> Vec<String> {
    let mut clean = behind(scene, steps);
    let before = state(&clean);
    clean.set_mode(DecodeMode::Eager).expect("eager is always there");
    let want = clean.step(NEXT).expect("the clean step");
    let after = state(&clean);
    let later = clean.step(NEXT + 1).expect("one more");
    let mut points = Vec::new();
    loop {
        let mut decoder = behind(scene, steps);
        decoder.fail_next_step(points.len()).expect("a debug build");
        match decoder.step(NEXT) {
            Err(EngineError::Injected { point }) => points.push(point),
            Ok(found) => {
                check(&decoder, &found, &want, &after, "the step without a failure");
                return points;
            }
            Err(other) => panic!("{other}"),
        }
        let point = points.last().expect("just pushed").clone();
        assert!(state(&decoder) == before, "{point}: the caches changed");
        assert_eq!(decoder.offset(), scene.2 + steps, "{point}");
        // The same step again, compiled or eager, as if the failure had not been.
        let retry = if points.len() % 2 == 0 { DecodeMode::Compiled } else { DecodeMode::Eager };
        decoder.set_mode(retry).expect("a mode");
        let found = decoder.step(NEXT).expect("the step again");
        check(&decoder, &found, &want, &after, &point);
        decoder.set_mode(DecodeMode::Eager).expect("a mode");
        let found = decoder.step(NEXT + 1).expect("one more");
        assert!(found == later, "{point}: later steps differ");
    }
}

fn check(decoder: &Decoder, found: &HostTensor, want: &HostTensor, after: &[u8], what: &str) {
    assert!(found == want, "{what}: the logits differ");
    assert!(state(decoder) == after, "{what}: the caches differ");
}

/// Full and sliding layers, shared keys and values, recurrent layers, blocks side by side, experts;
/// longrope, whose first segments run eagerly between compiled ones.
#[rstest]
#[case::plain("llama-tied", 5)]
#[case::dedicated("qwen3", 5)]
#[case::wrapped("gemma3_text", 40)]
#[case::shared("gemma4_text", 40)]
#[case::recurrent("qwen3_5", 5)]
#[case::parallel("cohere2", 40)]
#[case::experts("qwen3_moe", 5)]
#[case::eager_layers("llama-dynamic", 5)]
#[case::growth("llama-tied", 256)]
fn a_failed_step_and_another_are_one_clean_step(#[case] name: &'static str, #[case] prompt: usize) {
    on_mlx_thread(move || {
        let model = segmented(&folder(name, Dtype::F32));
        // The first step makes its traces, the third one has them.
        let scene = Scene(&model, Composition::l1(), prompt);
        let first = fail_everywhere(&scene, 0);
        let third = fail_everywhere(&scene, 2);
        let named: BTreeSet<&str> = first.iter().map(String::as_str).collect();
        for layer in 0..model.num_layers() {
            let own = format!("layers.{layer}.");
            let has =
                |kind: &str| named.iter().any(|point| point.contains(kind) && point.contains(&own));
            assert!(has("segment ") && has("trace "), "{name}: {own} in {first:?}");
        }
        for point in ["segment head", "trace head", "evaluation", "adoption"] {
            assert!(named.contains(point), "{name}: {point} in {first:?}");
        }
        let updates = |points: &[String]| points.iter().filter(|p| p.contains("update")).count();
        assert!(updates(&first) >= 2 && updates(&first) == updates(&third));
        assert!(third.iter().all(|point| !point.starts_with("trace") && point != "evaluation"));
    });
}

/// Packed caches, full and past the window; and plain ones that the failing step would pack.
#[rstest]
#[case::quantized("qwen3", 5, Convert::Empty)]
#[case::rotating_quantized("gemma3_text", 40, Convert::Empty)]
#[case::converting("qwen3", 5, Convert::FromStep(6))]
#[case::converting_a_window("gemma3_text", 40, Convert::FromStep(43))]
fn packed_caches_too(#[case] name: &'static str, #[case] prompt: usize, #[case] convert: Convert) {
    on_mlx_thread(move || {
        let model = segmented(&folder(name, Dtype::F32));
        let kv = Composition::uniform(&model, KvBits { bits: 4, group: 32 });
        let scene = Scene(&model, Composition { convert, ..kv }, prompt);
        for steps in [0, 2] {
            let points = fail_everywhere(&scene, steps);
            assert!(points.len() > 4 * model.num_layers(), "{points:?}");
        }
    });
}

#[test]
fn failures_one_after_the_other_are_no_step_either() {
    on_mlx_thread(|| {
        let model = segmented(&folder("llama-tied", Dtype::F32));
        let mut decoder = behind(&Scene(&model, Composition::l1(), 5), 3);
        let before = state(&decoder);
        for point in 0..6 {
            decoder.fail_next_step(point).expect("a debug build");
            assert!(matches!(decoder.step(NEXT), Err(EngineError::Injected { .. })));
            assert!(state(&decoder) == before);
        }
    });
}

/// What a rollback can take back behind a failed step is what it could before it.
#[rstest]
#[case::plain("llama-tied", 5)]
#[case::wrapped("gemma3_text", 40)]
#[case::recurrent("qwen3_5", 5)]
fn a_failed_step_cannot_be_taken_back(#[case] name: &'static str, #[case] prompt: usize) {
    on_mlx_thread(move || {
        let model = segmented(&folder(name, Dtype::F32));
        let scene = Scene(&model, Composition::l1(), prompt);
        for asked in [false, true] {
            let back = |failing: bool| {
                let mut decoder = behind(&scene, 0);
                if asked {
                    decoder.checkpoint();
                }
                decoder.step(NEXT).expect("a step");
                if failing {
                    decoder.fail_next_step(5).expect("a debug build");
                    decoder.step(NEXT + 1).expect_err("a failure");
                }
                let two = decoder.rollback(2).map_err(|error| error.to_string());
                let one = decoder.rollback(1).map_err(|error| error.to_string());
                let next = decoder.step(NEXT + 2).expect("a step");
                (two, one, next, state(&decoder))
            };
            assert!(back(true) == back(false), "{name}, checkpoint asked for: {asked}");
        }
    });
}
