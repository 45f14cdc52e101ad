//! The formula of the caches' memory against the arrays.

use mlx_parity_engine::{Composition, Convert, Decoder, Route};
use mlx_parity_tensor::Dtype;
use rstest::rstest;

use crate::common::on_mlx_thread;
use crate::{KV4, KV8, ids, synthetic, uniform};

#[rstest]
fn caches_take_what_the_formula_says(
    #[values("qwen3", "llama-window", "gemma3_text", "qwen3_5")] name: &'static str,
    #[values(Dtype::F32, Dtype::Bf16)] dtype: Dtype,
    #[values(5, 40, 256, 300)] tokens: usize,
) {
    on_mlx_thread(move || {
        let model = synthetic(name, dtype);
        for composition in [
            Composition::l1(),
            uniform(&model, KV4, Convert::Empty, Route::Stock),
            uniform(&model, KV8, Convert::AfterForward, Route::Stock),
        ] {
            let mut decoder = Decoder::with(&model, 8, &composition).expect("it fits");
            decoder.prefill(&ids(tokens)).expect("a prefill");
            decoder.step(3).expect("a step");
            let wanted = composition.cache_bytes(&model, tokens + 1);
            assert_eq!(decoder.cache_bytes(), wanted, "{composition} of {name}");
        }
    });
}

#[test]
fn an_empty_decoder_takes_nothing() {
    on_mlx_thread(|| {
        let model = synthetic("qwen3_5", Dtype::Bf16);
        let composition = Composition::uniform(&model, KV8);
        let decoder = Decoder::with(&model, 8, &composition).expect("it fits");
        assert_eq!((decoder.cache_bytes(), composition.cache_bytes(&model, 0)), (0, 0));
    });
}
