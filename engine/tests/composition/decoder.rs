//! What must hold of answers under a composition.

use mlx_parity_engine::{Composition, Convert, Decoder, Model, Route};
use mlx_parity_tensor::{Dtype, HostTensor};
use rstest::rstest;

use crate::common::{distance, on_mlx_thread};
use crate::{KV4, KV8, ids, synthetic, uniform};

/// The logits of a prompt of 23 tokens in calls of 7, and of 6 more tokens.
fn answers(model: &Model, composition: &Composition) -> Vec<HostTensor> {
    let ids = ids(29);
    let mut decoder = Decoder::with(model, 7, composition).expect("a fitting composition");
    let mut answers = vec![decoder.prefill(&ids[..23]).expect("a prefill")];
    answers.extend(ids[23..].iter().map(|&id| decoder.step(id).expect("a step")));
    answers
}

#[rstest]
fn a_conversion_that_never_comes_changes_no_bit(
    #[values("qwen3", "llama-window")] name: &'static str,
) {
    on_mlx_thread(move || {
        let model = synthetic(name, Dtype::Bf16);
        let never = uniform(&model, KV4, Convert::FromStep(1000), Route::Tiled);
        assert_eq!(answers(&model, &never), answers(&model, &Composition::l1()));
    });
}

#[rstest]
fn a_conversion_shows_from_the_call_behind_it_on(
    #[values("qwen3", "llama-window", "gemma3_text")] name: &'static str,
) {
    on_mlx_thread(move || {
        let model = synthetic(name, Dtype::Bf16);
        let plain = answers(&model, &Composition::l1());
        let at = |convert| answers(&model, &uniform(&model, KV4, convert, Route::Stock));
        let after = at(Convert::AfterForward);
        assert_eq!(after[0].rows(0..7), plain[0].rows(0..7), "the first call sees plain rows");
        assert_ne!(after[0].rows(7..14), plain[0].rows(7..14));
        assert_eq!(at(Convert::FromStep(7)), after, "the first call reaches seven tokens");
        let later = at(Convert::FromStep(8));
        assert_eq!(later[0].rows(0..14), plain[0].rows(0..14));
        assert_ne!(later[0].rows(14..21), plain[0].rows(14..21));
        let last = at(Convert::FromStep(24));
        assert_eq!(last[..2], plain[..2], "the step that reaches 24 tokens sees plain rows");
        assert_ne!(last[2], plain[2]);
        assert_ne!(at(Convert::Empty)[0].rows(0..7), plain[0].rows(0..7));
    });
}

/// Five recipes that all could be called kv8.
#[test]
fn every_composition_has_an_answer_of_its_own() {
    on_mlx_thread(|| {
        let model = synthetic("qwen3", Dtype::Bf16);
        let mut mixed = uniform(&model, KV8, Convert::Empty, Route::Stock);
        mixed.kv[1] = None;
        let recipes = [
            Composition::l1(),
            uniform(&model, KV8, Convert::Empty, Route::Stock),
            uniform(&model, KV8, Convert::AfterForward, Route::Stock),
            uniform(&model, KV8, Convert::FromStep(20), Route::Stock),
            uniform(&model, KV8, Convert::Empty, Route::TiledPrefill),
            uniform(&model, KV8, Convert::Empty, Route::Tiled),
            uniform(&model, KV4, Convert::Empty, Route::Stock),
            mixed,
        ];
        let all: Vec<_> = recipes.iter().map(|recipe| answers(&model, recipe)).collect();
        for (i, one) in all.iter().enumerate() {
            for (j, other) in all.iter().enumerate().skip(i + 1) {
                assert_ne!(one, other, "{} and {}", recipes[i], recipes[j]);
                assert_ne!(recipes[i].to_string(), recipes[j].to_string());
            }
            // 4 bits cost most; the tiles differ by rounding alone.
            assert!(distance(&all[0][0], &one[0]) < 0.5, "{}", recipes[i]);
        }
        assert!(distance(&all[1][0], &all[5][0]) < 0.05);
    });
}

/// Tiles for several tokens only: until the last token of the prompt, which runs alone, the answers are
/// those of tiles everywhere.
#[test]
fn a_tiled_prefill_is_tiled_in_calls_of_several_tokens() {
    on_mlx_thread(|| {
        let model = synthetic("qwen3", Dtype::Bf16);
        let at = |route| answers(&model, &uniform(&model, KV8, Convert::Empty, route));
        let (stock, prefill, all) = (at(Route::Stock), at(Route::TiledPrefill), at(Route::Tiled));
        assert_eq!(prefill[0].rows(0..21), all[0].rows(0..21));
        assert_ne!(prefill[0].rows(0..21), stock[0].rows(0..21));
    });
}

/// The tiles take queries in 16 bits, causal masks, and 4 or 8 bits; all else goes the stock way.
#[rstest]
#[case::queries_in_f32("qwen3", Dtype::F32, 8)]
#[case::six_bits("qwen3", Dtype::Bf16, 6)]
fn what_the_tiles_do_not_take_goes_the_stock_way(
    #[case] name: &'static str,
    #[case] dtype: Dtype,
    #[case] bits: i32,
) {
    on_mlx_thread(move || {
        let model = synthetic(name, dtype);
        let bits = mlx_parity_engine::KvBits { bits, group: 32 };
        let at = |route| answers(&model, &uniform(&model, bits, Convert::Empty, route));
        assert_eq!(at(Route::Tiled), at(Route::Stock));
    });
}

#[rstest]
fn a_trimmed_decoder_goes_on_as_if_nothing_had_been(
    #[values("qwen3", "llama-window")] name: &'static str,
    #[values(Convert::Empty, Convert::AfterForward)] convert: Convert,
) {
    on_mlx_thread(move || {
        let model = synthetic(name, Dtype::Bf16);
        let composition = uniform(&model, KV8, convert, Route::Stock);
        let ids = ids(12);
        let new = || Decoder::with(&model, 100, &composition).expect("a fitting composition");
        let (mut straight, mut decoder) = (new(), new());
        straight.prefill(&ids[..5]).expect("a prefill");
        let want = straight.prefill(&ids[5..]).expect("the rest");
        decoder.prefill(&ids[..5]).expect("a prefill");
        decoder.prefill(&[7, 8, 9]).expect("a detour");
        assert_eq!(decoder.trim(3).expect("inside the window"), 3);
        assert_eq!(decoder.prefill(&ids[5..]).expect("the rest"), want);
    });
}

/// A recurrent layer has nothing to pack and stays as it is.
#[test]
fn layers_without_rows_are_left_alone() {
    on_mlx_thread(|| {
        let model = synthetic("qwen3_5", Dtype::Bf16);
        let composition = Composition::uniform(&model, KV8);
        let packed = composition.kv.iter().filter(|bits| bits.is_some()).count();
        assert_eq!((composition.kv.len(), packed), (6, 2));
        let (plain, packed) = (answers(&model, &Composition::l1()), answers(&model, &composition));
        assert_ne!(packed, plain);
        assert!(distance(&plain[0], &packed[0]) < 0.1);
    });
}
