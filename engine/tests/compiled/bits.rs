//! The eager step's bits.

use mlx_parity_engine::{
    Composition, Convert, DecodeMode, Decoder, EngineError, KvBits, LoadOptions, Model, Taps,
};
use mlx_parity_tensor::Dtype;
use rstest::rstest;

use crate::common::{Folder, VOCAB, on_mlx_thread};
use crate::models::{folder, goldens, names, segmented, state};

fn id(i: usize, vocab: usize) -> u32 {
    ((i * 37 + 11) % vocab) as u32
}

fn compare(model: &Model, prompt: usize, steps: usize) -> usize {
    compare_with(model, &Composition::l1(), prompt, steps)
}

/// Prefills and decodes in both modes side by side; the number of traces made.
fn compare_with(model: &Model, composition: &Composition, prompt: usize, steps: usize) -> usize {
    let vocab = model.vocab_size();
    let ids: Vec<u32> = (0..prompt).map(|i| id(i, vocab)).collect();
    let decoder = || Decoder::with(model, 24, composition).expect("a fitting composition");
    let (mut eager, mut compiled) = (decoder(), decoder());
    compiled.set_mode(DecodeMode::Compiled).expect("segments, and a compiler");
    let want = eager.prefill(&ids).expect("a prefill");
    assert_eq!(compiled.prefill(&ids).expect("a prefill"), want);
    assert_eq!(compiled.traces(), 0, "prompts run eagerly");
    for i in prompt..prompt + steps {
        let want = eager.step(id(i, vocab)).expect("a step");
        let found = compiled.step(id(i, vocab)).expect("a compiled step");
        assert!(found == want, "{}: position {i} differs", model.architecture());
    }
    assert!(state(&compiled) == state(&eager), "{}: the caches differ", model.architecture());
    compiled.traces()
}

/// Every synthetic model, past every window (16 at most) twice. Experts in bf16 have no CPU kernel.
#[rstest]
fn every_architecture_has_the_bits_of_its_eager_steps(
    #[values(Dtype::F32, Dtype::Bf16)] dtype: Dtype,
) {
    on_mlx_thread(move || {
        let mut compared = 0;
        for name in names() {
            let model = segmented(&folder(&name, dtype));
            if dtype == Dtype::Bf16 && Decoder::new(&model, 24).step(1).is_err() {
                continue;
            }
            let traces = compare(&model, 9, 34);
            assert!(traces > model.num_layers(), "{name}: {traces} traces");
            compared += 1;
        }
        let least = if dtype == Dtype::F32 { names().len() } else { names().len() * 2 / 3 };
        assert!(compared >= least, "{compared} of {} models were compared", names().len());
    });
}

#[rstest]
fn trained_models_have_the_bits_of_their_eager_steps(
    #[values("qwen3-1m", "gemma3-1m")] name: &'static str,
) {
    on_mlx_thread(move || {
        let dir = goldens().join("models").join(name);
        let model = Model::load(&dir, &LoadOptions::default()).expect("a model of the repository");
        compare(&model, 200, 80);
    });
}

/// Packed from the start, and plain ones that are packed behind the third compiled step, before a window
/// of 16 wraps and after it.
#[rstest]
fn packed_caches_have_the_bits_of_the_eager_steps(
    #[values("qwen3", "gemma3_text", "llama-window")] name: &'static str,
    #[values(4, 8)] bits: i32,
    #[values(Convert::Empty, Convert::FromStep(12))] convert: Convert,
) {
    on_mlx_thread(move || {
        let model = segmented(&folder(name, Dtype::F32));
        let kv = KvBits { bits, group: 32 };
        let composition = Composition { convert, ..Composition::uniform(&model, kv) };
        let traces = compare_with(&model, &composition, 9, 40);
        assert_eq!(traces, 2 * model.num_layers() + 1);
    });
}

#[test]
fn buffers_grow_without_a_new_trace() {
    on_mlx_thread(|| {
        for model in [Folder::llama(Dtype::F32), Folder::gemma3_text(Dtype::F32)] {
            let model = model.load().expect("a good folder");
            // The plain buffers grow at 256 and at 512 positions, the window of 8 wraps many times.
            let traces = compare(&model, 250, 300);
            assert_eq!(traces, 2 * model.num_layers() + 1, "two segments a layer, and the head");
        }
    });
}

#[test]
fn a_trim_needs_no_new_trace() {
    on_mlx_thread(|| {
        let model = Folder::llama(Dtype::F32).load().expect("a good folder");
        let decode = |mode| {
            let mut decoder = Decoder::new(&model, 24);
            decoder.set_mode(mode).expect("a mode");
            decoder.prefill(&[1, 2, 3]).expect("a prefill");
            let mut logits = Vec::new();
            for i in 0..12 {
                logits.push(decoder.step(id(i, VOCAB)).expect("a step"));
                if i % 4 == 3 {
                    assert_eq!(decoder.trim(3).expect("a trim"), 3);
                }
            }
            (logits, state(&decoder), decoder.traces())
        };
        let (want, want_state, none) = decode(DecodeMode::Eager);
        let (found, found_state, traces) = decode(DecodeMode::Compiled);
        assert_eq!((none, traces), (0, 2 * model.num_layers() + 1));
        assert!(found == want && found_state == want_state);
    });
}

#[test]
fn another_batch_size_is_traced_anew() {
    on_mlx_thread(|| {
        let model = Folder::qwen3(Dtype::F32).load().expect("a good folder");
        let segments = 2 * model.num_layers() + 1;
        for rows in [2, 3] {
            let prompt: [&[u32]; 3] = [&[1, 2, 3], &[4, 5, 6], &[7, 8, 9]];
            let mut eager = Decoder::new(&model, 24);
            let mut compiled = Decoder::new(&model, 24);
            compiled.set_mode(DecodeMode::Compiled).expect("a mode");
            eager.prefill_batch(&prompt[..rows]).expect("a prefill");
            compiled.prefill_batch(&prompt[..rows]).expect("a prefill");
            for i in 0..4 {
                let ids: Vec<u32> = (0..rows).map(|row| id(3 * i + row, VOCAB)).collect();
                let want = eager.step_batch(&ids).expect("a step");
                assert_eq!(compiled.step_batch(&ids).expect("a step"), want);
            }
            assert_eq!(compiled.traces(), segments);
        }
    });
}

#[test]
fn the_mode_changes_between_steps() {
    on_mlx_thread(|| {
        let model = Folder::gemma3_text(Dtype::F32).load().expect("a good folder");
        let mut eager = Decoder::new(&model, 24);
        let mut mixed = Decoder::new(&model, 24);
        for i in 0..30 {
            let mode = if i / 5 % 2 == 0 { DecodeMode::Compiled } else { DecodeMode::Eager };
            mixed.set_mode(mode).expect("a mode");
            assert_eq!(mixed.mode(), mode);
            let want = eager.step(id(i, VOCAB)).expect("a step");
            assert_eq!(mixed.step(id(i, VOCAB)).expect("a step"), want);
        }
    });
}

#[test]
fn a_step_with_taps_is_an_eager_one() {
    on_mlx_thread(|| {
        let model = Folder::llama(Dtype::F32).load().expect("a good folder");
        let mut decoder = Decoder::new(&model, 24);
        decoder.set_mode(DecodeMode::Compiled).expect("a mode");
        decoder.set_taps(Taps::All);
        decoder.step(1).expect("a step");
        assert!(decoder.take_taps().len() > 20);
        assert_eq!(decoder.traces(), 0);
    });
}

#[test]
fn a_network_without_segments_is_refused() {
    on_mlx_thread(|| {
        let model = folder("llama-unrolled", Dtype::F32).load().expect("a good folder");
        let mut decoder = Decoder::new(&model, 24);
        match decoder.set_mode(DecodeMode::Compiled) {
            Err(EngineError::NotCompilable { model_type: "llama", rung: "generated" }) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(decoder.mode(), DecodeMode::Eager);
        decoder.step(1).expect("it decodes eagerly");
    });
}
