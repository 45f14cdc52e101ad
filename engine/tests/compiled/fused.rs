//! Fused kernels: close to the eager step's results, and equal where no scalar is cut to 7 digits.

use mlx_parity_engine::{DecodeMode, Decoder};
use mlx_parity_tensor::Dtype;
use rstest::rstest;

use crate::common::{distance, on_mlx_thread};
use crate::models::{folder, segmented};

/// How far the fused steps' logits are from the eager ones', of the largest logit, at most.
fn far(name: &str, dtype: Dtype) -> f64 {
    let model = segmented(&folder(name, dtype));
    let mut eager = Decoder::new(&model, 24);
    let mut fused = Decoder::new(&model, 24);
    fused.set_mode(DecodeMode::Fused).expect("a compiler");
    eager.prefill(&[1, 2, 3, 4, 5]).expect("a prefill");
    fused.prefill(&[1, 2, 3, 4, 5]).expect("a prefill");
    let steps = (0..20).map(|id| {
        let want = eager.step(id).expect("a step");
        distance(&want, &fused.step(id).expect("a fused step"))
    });
    steps.fold(0.0, f64::max)
}

/// The relation `close` of the meta tier: rounding of the dtype, carried through a few layers.
#[rstest]
#[case("llama-tied", Dtype::F32, 1e-5)]
#[case("llama-tied", Dtype::Bf16, 3e-2)]
#[case("gemma3_text", Dtype::F32, 1e-5)]
#[case("qwen3_5", Dtype::F32, 1e-5)]
fn fused_steps_are_close(#[case] name: &'static str, #[case] dtype: Dtype, #[case] bound: f64) {
    on_mlx_thread(move || {
        let far = far(name, dtype);
        println!("{name} {dtype:?}: {far:e}");
        assert!(far <= bound, "{name}: {far:e}");
    });
}
