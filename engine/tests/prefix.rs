//! Prompts that begin as earlier ones did.

mod common;

use common::{Folder, distance, on_mlx_thread};
use mlx_parity_engine::{Decoder, EngineError, Model, PrefixStore};
use mlx_parity_tensor::Dtype;
use rstest::rstest;
use serde_json::json;

const IDS: [u32; 21] = [3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 32, 38, 4, 6, 2, 6, 4, 33, 8, 3];
/// Of the largest logit: f32 sums in another order.
const ROUNDING: f64 = 1e-5;
const ROOM: usize = 1 << 30;

/// A store that has kept the sequences.
fn store(model: &Model, sequences: &[&[u32]]) -> PrefixStore {
    let mut store = PrefixStore::new(8, ROOM);
    for ids in sequences {
        let mut decoder = Decoder::new(model, 6);
        decoder.prefill(ids).expect("a prefill");
        store.keep(&decoder, ids).expect("its own ids");
    }
    store
}

/// How much of a prompt is reused; what is left gives the logits of the whole.
fn reused(store: &mut PrefixStore, model: &Model, prompt: &[u32]) -> usize {
    let mut decoder = Decoder::new(model, 6);
    let length = store.resume(&mut decoder, prompt).expect("a look-up");
    assert_eq!(decoder.offset(), length);
    let got = decoder.prefill(&prompt[length..]).expect("the rest");
    let want = Decoder::new(model, 6).prefill(prompt).expect("a prefill");
    let off = distance(&want.rows(length..prompt.len()), &got);
    assert!(off <= ROUNDING, "{}: {off}", model.architecture());
    length
}

/// The ids with another one at a place.
fn parting(at: usize) -> Vec<u32> {
    let mut ids = IDS.to_vec();
    ids[at] = (ids[at] + 1) % 40;
    ids
}

#[rstest]
#[case::plain(Folder::llama)]
#[case::normed_heads(Folder::qwen3)]
fn the_longest_common_beginning_is_reused(#[case] folder: fn(Dtype) -> Folder) {
    on_mlx_thread(move || {
        let model = folder(Dtype::F32).load().expect("a good folder");
        let mut store = store(&model, &[&IDS[..6], &parting(9)]);
        assert_eq!(store.len(), 1, "the first is the beginning of the second");
        for at in [1, 4, 9, 12, 20] {
            let prompt = parting(at);
            assert_eq!(reused(&mut store, &model, &prompt), if at == 9 { 20 } else { at.min(9) });
        }
        assert_eq!(reused(&mut store, &model, &parting(0)), 0);
        assert_eq!(reused(&mut store, &model, &parting(9)), 20, "one token is left to run");
        assert_eq!(reused(&mut store, &model, &[3]), 0);
        assert_eq!(reused(&mut store, &model, &[3, 14]), 1, "a beginning of one token");
    });
}

#[rstest]
#[case::wrapped(Folder::windows)]
#[case::recurrent(Folder::qwen3_5)]
fn what_cannot_be_cut_is_reused_whole_or_not(#[case] folder: fn(Dtype) -> Folder) {
    on_mlx_thread(move || {
        let model = folder(Dtype::F32).load().expect("a good folder");
        let mut store = store(&model, &[&IDS[..4], &IDS[..12]]);
        assert_eq!(store.len(), 2, "the first is of use where the second cannot be cut");
        assert_eq!(reused(&mut store, &model, &IDS), 12);
        assert_eq!(reused(&mut store, &model, &parting(6)), 4);
        assert_eq!(reused(&mut store, &model, &parting(2)), if store_cuts(&model) { 2 } else { 0 });
    });
}

/// Whether four tokens can be cut: inside a window.
fn store_cuts(model: &Model) -> bool {
    let mut decoder = Decoder::new(model, 6);
    decoder.prefill(&IDS[..4]).expect("a prefill");
    decoder.trim(1).is_ok()
}

#[test]
fn decoders_that_share_arrays_do_not_share_tokens() {
    on_mlx_thread(|| {
        let model = Folder::windows(Dtype::F32).load().expect("a good folder");
        let mut store = store(&model, &[&IDS[..12]]);
        for at in [13, 15, 13] {
            assert_eq!(reused(&mut store, &model, &parting(at)), 12);
        }
    });
}

#[test]
fn the_least_recently_used_goes_first() {
    on_mlx_thread(|| {
        let model = Folder::llama(Dtype::F32).load().expect("a good folder");
        let sequences: Vec<Vec<u32>> = (0..4).map(|first| vec![first, 7, 8]).collect();
        let mut store = PrefixStore::new(3, ROOM);
        let keep = |store: &mut PrefixStore, ids: &[u32]| {
            let mut decoder = Decoder::new(&model, 6);
            decoder.prefill(ids).expect("a prefill");
            store.keep(&decoder, ids).expect("its own ids");
        };
        for ids in &sequences[..3] {
            keep(&mut store, ids);
        }
        assert_eq!(reused(&mut store, &model, &[0, 7, 8, 9]), 3);
        keep(&mut store, &sequences[3]);
        assert_eq!(store.len(), 3);
        assert_eq!(reused(&mut store, &model, &[1, 7, 8, 9]), 0, "gone");
        assert_eq!(reused(&mut store, &model, &[0, 7, 8, 9]), 3, "used lately");
        let one = store.bytes() / 3;
        let mut small = PrefixStore::new(3, 2 * one);
        for ids in &sequences {
            keep(&mut small, ids);
        }
        assert_eq!((small.len(), small.bytes()), (2, 2 * one));
    });
}

#[test]
fn another_model_is_not_answered() {
    on_mlx_thread(|| {
        let model = Folder::llama(Dtype::F32).load().expect("a good folder");
        let mut store = store(&model, &[&IDS]);
        let mut folder = Folder::llama(Dtype::F32);
        folder.scale("model.norm.weight", |_| 2.0);
        let other = folder.load().expect("a good folder");
        assert_eq!(reused(&mut store, &other, &IDS), 0);
        let mut decoder = Decoder::new(&model, 6);
        decoder.prefill(&IDS[..3]).expect("a prefill");
        let error = store.keep(&decoder, &IDS).expect_err("too many ids");
        assert!(matches!(error, EngineError::PrefixLength { found: 21, wanted: 3 }), "{error}");
        assert!(store.resume(&mut decoder, &IDS).is_err(), "it has seen something");
    });
}

#[test]
fn rotations_that_change_are_made_anew() {
    on_mlx_thread(|| {
        let mut folder = Folder::llama(Dtype::F32);
        folder.config["rope_scaling"] = json!({
            "type": "longrope", "short_factor": vec![1.0; 8], "long_factor": vec![4.0; 8],
            "original_max_position_embeddings": 12,
        });
        let model = folder.load().expect("a good folder");
        for kept in [8, 12, 16] {
            for prompt in [10, 12, 13, 20] {
                let mut store = store(&model, &[&IDS[..kept]]);
                assert_eq!(reused(&mut store, &model, &IDS[..prompt]), kept.min(prompt - 1));
            }
        }
    });
}
