//! Prompts, steps and taps. Exactness against the oracle is checked by the harness, not here.

#[expect(dead_code, reason = "this file uses a part of it")]
mod common;

use std::collections::BTreeSet;

use common::{Folder, VOCAB, distance, on_mlx_thread};
use mlx_parity_engine::{Decoder, EngineError, Model, Taps};
use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;

const IDS: [u32; 21] = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 32, 38, 4, 6, 2, 6, 4, 33, 8, 3];

fn models() -> [Model; 3] {
    [Folder::llama(Dtype::F32), Folder::qwen3(Dtype::F32), Folder::gemma3_text(Dtype::F32)]
        .map(|folder| folder.load().expect("a good folder"))
}

#[test]
fn a_bad_prompt_is_refused_before_it_runs() {
    on_mlx_thread(|| {
        let [model, ..] = models();
        let mut decoder = Decoder::new(&model, 8);
        assert!(matches!(decoder.prefill(&[]), Err(EngineError::EmptyPrompt)));
        match decoder.prefill(&[1, 2, VOCAB as u32]) {
            Err(EngineError::TokenOutOfRange { id: 40, position: 2, vocab_size: 40 }) => {}
            other => panic!("{other:?}"),
        }
        assert!(matches!(decoder.step(u32::MAX), Err(EngineError::TokenOutOfRange { .. })));
        assert_eq!(decoder.offset(), 0);
        decoder.prefill(&[1, 2]).expect("the decoder is still good");
        let mut stuck = Decoder::new(&model, 0);
        assert!(matches!(stuck.prefill(&[1, 2]), Err(EngineError::ZeroPrefillStep)));
    });
}

/// The same sequence, prefilled in chunks of the given length up to `split`, then step by step.
fn run(model: &Model, chunk: usize, split: usize) -> HostTensor {
    let mut decoder = Decoder::new(model, chunk);
    let mut bytes = decoder.prefill(&IDS[..split]).expect("a prefill").into_bytes();
    for &id in &IDS[split..] {
        let logits = decoder.step(id).expect("a step");
        assert_eq!(logits.shape(), [1, VOCAB]);
        bytes.extend(logits.into_bytes());
    }
    assert_eq!(decoder.offset(), IDS.len());
    HostTensor::new(model.dtype(), vec![IDS.len(), VOCAB], bytes).expect("all positions")
}

#[rstest]
#[case::small_chunks(3, 21)]
#[case::one_by_one(1, 21)]
#[case::steps_only(100, 1)]
#[case::chunk_of_the_window(8, 20)]
#[case::half_and_half(4, 11)]
fn the_split_of_a_sequence_changes_rounding_at_most(#[case] chunk: usize, #[case] split: usize) {
    on_mlx_thread(move || {
        for model in models() {
            // 21 positions are past two windows of the gemma model.
            let far = distance(&run(&model, 100, 21), &run(&model, chunk, split));
            assert!(far <= 1e-5, "{}: {far}", model.architecture());
        }
    });
}

#[test]
fn a_prompt_of_one_token_is_one_call() {
    on_mlx_thread(|| {
        for model in models() {
            let prefill = Decoder::new(&model, 4).prefill(&IDS[..1]).expect("a prefill");
            let step = Decoder::new(&model, 4).step(IDS[0]).expect("a step");
            assert_eq!(prefill, step, "{}", model.architecture());
        }
    });
}

#[test]
fn taps_name_every_stage_and_change_nothing() {
    on_mlx_thread(|| {
        for model in models() {
            let plain = run(&model, 100, 21);
            let mut decoder = Decoder::new(&model, 100);
            decoder.set_taps(Taps::All);
            let tapped = decoder.prefill(&IDS).expect("a prefill");
            assert_eq!(plain, tapped);
            let taps = decoder.take_taps();
            let names: BTreeSet<&str> = taps.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(taps.len(), 2 * names.len(), "two calls: 20 ids, then the last");
            for stage in [
                "input_layernorm",
                "self_attn.q",
                "self_attn.k_rope",
                "self_attn.sdpa",
                "self_attn.o",
                "post_attention_layernorm",
                "mlp.act",
                "mlp.down",
                "out",
            ] {
                for layer in 0..2 {
                    let name = format!("layers.{layer}.{stage}");
                    assert!(names.contains(name.as_str()), "{name} in {names:?}");
                }
            }
            assert!(["embed", "norm", "logits"].iter().all(|name| names.contains(name)));
            let (_, last) = taps.last().expect("taps");
            assert_eq!(last.bytes(), tapped.rows(20..21).bytes(), "the last tap is the logits");
            assert!(decoder.take_taps().is_empty());
        }
    });
}

#[test]
fn named_taps_keep_only_those() {
    on_mlx_thread(|| {
        let [model, ..] = models();
        let mut decoder = Decoder::new(&model, 100);
        let wanted = BTreeSet::from(["layers.1.self_attn.sdpa".to_owned()]);
        decoder.set_taps(Taps::Named(wanted));
        decoder.step(1).expect("a step");
        let taps = decoder.take_taps();
        assert_eq!(taps.len(), 1);
        assert_eq!(
            (taps[0].0.as_str(), taps[0].1.shape()),
            ("layers.1.self_attn.sdpa", &[1, 4, 1, 16][..])
        );
        decoder.set_taps(Taps::Off);
        decoder.step(1).expect("a step");
        assert!(decoder.take_taps().is_empty());
    });
}
