//! Attention op by op, and kernels with their own backward inside gradients.

use mlx_parity_engine::array::to_host;
use mlx_parity_engine::kernels::{dispatches, reset_dispatches};
use mlx_parity_engine::ops::{self, Keys, Mask, ScoreMask};
use mlx_parity_engine::train::{
    TrainKernels, TrainOptions, Trainer, ValuesAndGradients, flash_attention, fused_geglu, scope,
};
use mlx_parity_engine::{Array, EngineError};
use rstest::rstest;

use crate::common::on_mlx_thread;
use crate::setting::{Setting, host, options};
use crate::ways::relative;

/// Numbers of about one, always the same.
fn drawn(seed: u64, shape: &[i32]) -> Array {
    let key = Keys::seeded(seed).unwrap().draw().unwrap();
    let whole = ops::randint(-1000, 1000, shape, &key).unwrap();
    ops::divide(&whole, &Array::from_f32(500.0)).unwrap()
}

fn attention_inputs() -> [Array; 4] {
    let (queries, keys) = ([2, 4, 6, 32], [2, 2, 9, 32]);
    [drawn(1, &queries), drawn(2, &keys), drawn(3, &keys), drawn(4, &queries)]
}

/// Values and gradients by q, k and v under a cotangent that is not uniform.
fn differentiated(
    attend: impl Fn(&Array, &Array, &Array) -> Result<Array, EngineError>,
) -> ValuesAndGradients {
    let [q, k, v, cotangent] = attention_inputs();
    scope(|scope| {
        let attend = |inputs: &[Array]| Ok(vec![attend(&inputs[0], &inputs[1], &inputs[2])?]);
        scope.vjp(attend, &[q, k, v], &[cotangent])
    })
    .unwrap()
}

/// Columns from `from` on may be seen by every query but the first.
fn odd_mask() -> Array {
    let keys = ops::expand_dims(&ops::arange(0, 9).unwrap(), 0).unwrap();
    let queries = ops::expand_dims(&ops::arange(0, 6).unwrap(), 1).unwrap();
    let parity = ops::remainder(&ops::add(&keys, &queries).unwrap(), &Array::from_int(3)).unwrap();
    ops::greater(&parity, &Array::from_int(0)).unwrap()
}

#[rstest]
#[case::full(0)]
#[case::causal(1)]
#[case::odd(2)]
#[case::odd_by_head(3)]
fn manual_attention_and_its_gradients_have_the_bits_of_mlxs_own(#[case] which: usize) {
    on_mlx_thread(move || {
        let by_head = ops::broadcast_to(&odd_mask(), &[2, 4, 6, 9]).unwrap();
        let masks = [Mask::Full, Mask::Causal, Mask::Allowed(odd_mask()), Mask::Allowed(by_head)];
        let mask = &masks[which];
        let score: ScoreMask = mask.into();
        let fast = differentiated(|q, k, v| ops::scaled_dot_product_attention(q, k, v, 0.2, mask));
        let manual = differentiated(|q, k, v| ops::manual_sdpa(q, k, v, 0.2, score));
        for (fast, manual) in fast.0.iter().chain(&fast.1).zip(manual.0.iter().chain(&manual.1)) {
            assert_eq!(to_host(fast).unwrap(), to_host(manual).unwrap());
        }
    });
}

#[rstest]
fn flash_attention_trains_as_the_composed_one_does(#[values(false, true)] causal: bool) {
    on_mlx_thread(move || {
        let mask = if causal { ScoreMask::Causal } else { ScoreMask::None };
        let manual = differentiated(|q, k, v| ops::manual_sdpa(q, k, v, 0.2, mask));
        let flash = differentiated(|q, k, v| flash_attention(q, k, v, 0.2, causal));
        near(&flash, &manual, 1e-5);
    });
}

#[test]
fn fused_geglu_trains_as_the_composed_one_does() {
    on_mlx_thread(|| {
        let inputs = [drawn(5, &[3, 70]), drawn(6, &[3, 70])];
        let cotangent = [drawn(7, &[3, 70])];
        let of = |fused: bool| {
            scope(|scope| {
                let gated = move |inputs: &[Array]| {
                    let (gate, up) = (&inputs[0], &inputs[1]);
                    Ok(vec![if fused {
                        fused_geglu(gate, up)?
                    } else {
                        ops::multiply(&ops::gelu_approx(gate)?, up)?
                    }])
                };
                scope.vjp(gated, &inputs, &cotangent)
            })
            .unwrap()
        };
        near(&of(true), &of(false), 1e-5);
    });
}

fn near(found: &ValuesAndGradients, wanted: &ValuesAndGradients, bound: f64) {
    let pairs = found.0.iter().chain(&found.1).zip(wanted.0.iter().chain(&wanted.1));
    for (at, (found, wanted)) in pairs.enumerate() {
        let [found, wanted] = [found, wanted].map(|array| to_host(array).unwrap());
        assert_eq!(found.shape(), wanted.shape());
        let off = relative(&found.to_f64(), &wanted.to_f64());
        assert!(off <= bound, "result {at}: {off:e}");
    }
}

/// Through whole models: every gradient is that of the composed path within float32's rounding.
#[rstest]
#[case::flash_attention("glassllm-f32", TrainKernels { flash_attention: true, ..TrainKernels::default() })]
#[case::flash_cce("glassllm-f32", TrainKernels { flash_cce: true, ..TrainKernels::default() })]
#[case::flash_cce_packed("glassllm-4bit", TrainKernels { flash_cce: true, ..TrainKernels::default() })]
fn models_train_with_kernels(#[case] name: &'static str, #[case] kernels: TrainKernels) {
    on_mlx_thread(move || {
        let setting = Setting::of_blocks(name, 4);
        let (mut model, adapter) = setting.load();
        let mut of = |kernels| {
            let options = TrainOptions { kernels, ..options() };
            let trainer = Trainer::new(&mut model, &adapter, options).unwrap();
            let found = trainer.gradients(&setting.rows()[1]).unwrap();
            (found.loss.value, host(&found.gradients))
        };
        let backward = if kernels.flash_cce { "flash_cce_vjp" } else { "flash_attention_vjp" };
        reset_dispatches();
        let (loss, composed) = of(TrainKernels::default());
        assert_eq!(dispatches(backward), 0);
        let (fused_loss, fused) = of(kernels);
        assert_eq!(dispatches(backward), if kernels.flash_cce { 1 } else { 4 });
        assert!((fused_loss / loss - 1.0).abs() <= 1e-6, "{fused_loss} {loss}");
        for (name, fused) in &fused {
            let off = relative(&fused.to_f64(), &composed[name].to_f64());
            assert!(off <= 2e-5, "{name}: {off:e}");
        }
    });
}
