//! Tokens taken back right behind the call that brought them.

mod common;

use common::{Folder, distance, on_mlx_thread};
use mlx_parity_engine::cache::{KvCache, RotatingCache};
use mlx_parity_engine::{Array, Decoder, EngineError, Model};
use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;

const IDS: [u32; 31] = [
    3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 32, 38, 4, 6, 2, 6, 4, 33, 8, 3, 27, 9, 5, 0, 28, 8, 4,
    19, 7, 1,
];
/// Of the gemma folder.
const WINDOW: usize = 8;
/// Of the largest logit: f32 sums in another order.
const ROUNDING: f64 = 1e-5;

/// Rows whose numbers say their positions.
fn rows(start: i32, count: i32) -> Array {
    let data: Vec<f32> = (start..start + count).map(|position| position as f32).collect();
    Array::from_slice(&data, &[1, 1, count, 1])
}

/// The positions in a window, in buffer order, and the cache after them.
fn seen(cache: &mut KvCache, count: i32) -> Vec<f32> {
    let start = cache.offset();
    let seen = cache.update(&rows(start, count), &rows(start, count)).expect("an update");
    let (keys, _) = seen.plain().expect("plain rows");
    mlx_parity_engine::array::read::<f32>("keys", &keys).expect("numbers")
}

#[test]
fn what_a_window_has_forgotten_does_not_come_back() {
    on_mlx_thread(|| {
        let mut cache = KvCache::Rotating(RotatingCache::new(8, 0));
        (0..12).for_each(|_| drop(seen(&mut cache, 1)));
        let error = cache.rollback(2).expect_err("one of them is gone");
        assert!(matches!(error, EngineError::NotRevocable { found: 2, revocable: 1 }), "{error}");
        assert_eq!(cache.offset(), 12);
        cache.rollback(1).expect("the newest one");
        assert_eq!(seen(&mut cache, 1).len(), 8);
    });
}

fn models() -> [Model; 4] {
    [Folder::llama, Folder::qwen3, Folder::qwen3_5, Folder::windows]
        .map(|folder| folder(Dtype::F32).load().expect("a good folder"))
}

/// The logits of `IDS` one by one.
fn one_by_one(model: &Model) -> Vec<HostTensor> {
    let mut decoder = Decoder::new(model, 100);
    IDS.map(|id| decoder.step(id).expect("a step")).to_vec()
}

/// Runs `before` tokens, then `write` others in one call, takes `back` of them back and goes on; the
/// tokens that stay are those of `IDS`.
fn held(model: &Model, straight: &[HostTensor], [before, write, back]: [usize; 3]) {
    let what = format!("{}: {back} of {write} behind {before}", model.architecture());
    let stay = before + write - back;
    let mut decoder = Decoder::new(model, 100);
    decoder.prefill(&IDS[..before]).expect("a prefill");
    let mut ids = IDS[before..before + write].to_vec();
    for id in &mut ids[write - back..] {
        *id = (*id + 11) % 40;
    }
    decoder.verify(&ids).expect("a call");
    decoder.rollback(back).expect("its own tokens");
    assert_eq!(decoder.offset(), stay, "{what}");
    for (id, want) in IDS.iter().zip(straight).skip(stay).take(4) {
        let off = distance(want, &decoder.step(*id).expect("a step"));
        assert!(off <= ROUNDING, "{what}: {off}");
    }
}

#[rstest]
#[case::plain(Folder::llama)]
#[case::windows(Folder::windows)]
#[case::recurrent(Folder::qwen3_5)]
fn a_decoder_goes_on_as_if_they_had_not_been(#[case] folder: fn(Dtype) -> Folder) {
    on_mlx_thread(move || {
        let model = folder(Dtype::F32).load().expect("a good folder");
        let straight = one_by_one(&model);
        for before in [1, WINDOW - 1, WINDOW, WINDOW + 5] {
            for write in [2, 5, 9] {
                for back in 0..=write {
                    held(&model, &straight, [before, write, back]);
                }
            }
        }
    });
}

#[test]
fn all_layers_go_back_or_none_does() {
    on_mlx_thread(|| {
        let [.., gemma] = models();
        let mut decoder = Decoder::new(&gemma, 100);
        decoder.prefill(&IDS[..12]).expect("a prefill");
        decoder.verify(&IDS[12..15]).expect("a call");
        let error = decoder.rollback(4).expect_err("full layers could");
        assert!(matches!(error, EngineError::NotRevocable { found: 4, revocable: 3 }), "{error}");
        assert_eq!(decoder.offset(), 15);
        decoder.rollback(3).expect("the call");
        assert!(decoder.rollback(1).is_err(), "no call is left");
    });
}

#[test]
fn a_checkpoint_spans_calls() {
    on_mlx_thread(|| {
        for model in &models() {
            for back in 0..=6 {
                let mut decoder = Decoder::new(model, 100);
                decoder.prefill(&IDS[..12]).expect("a prefill");
                decoder.checkpoint();
                for id in &IDS[12..18] {
                    decoder.step(*id).expect("a step");
                }
                assert!(decoder.rollback(19).is_err());
                decoder.rollback(back).expect("inside the checkpoint");
                assert_eq!(decoder.offset(), 18 - back);
                // And again, from the same checkpoint.
                decoder.step(IDS[18 - back]).expect("a step");
                decoder.rollback(1).expect("the step");
                let mut straight = Decoder::new(model, 100);
                straight.prefill(&IDS[..18 - back]).expect("a prefill");
                let want = straight.step(IDS[18 - back]).expect("a step");
                let got = decoder.step(IDS[18 - back]).expect("a step");
                let off = distance(&want, &got);
                assert!(off <= ROUNDING, "{}: {back}: {off}", model.architecture());
            }
        }
    });
}

#[test]
fn a_file_of_caches_taken_back_is_read_again() {
    on_mlx_thread(|| {
        let scratch = tempfile::tempdir().expect("a folder");
        let file = scratch.path().join("caches.safetensors");
        for model in &models() {
            let mut decoder = Decoder::new(model, 100);
            decoder.prefill(&IDS[..12]).expect("a prefill");
            decoder.verify(&IDS[..4]).expect("a call");
            decoder.rollback(4).expect("the call");
            decoder.save_caches(&file).expect("a file");
            let mut loaded = Decoder::new(model, 100);
            loaded.load_caches(&file).expect("the same model");
            let want = decoder.prefill(&IDS[12..]).expect("the rest");
            assert_eq!(loaded.prefill(&IDS[12..]).expect("the rest"), want);
        }
    });
}
