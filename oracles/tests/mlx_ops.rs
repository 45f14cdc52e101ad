//! Layouts and conventions that only the reference defines, against MLX in float32
//! (`oracles/numpy/mlx_ops.py`).

mod common;

use common::{Fixture, assert_near, assert_same, differs};
use mlx_parity_oracles::ops::rope::{
    Llama3, LongRope, Offsets, Proportional, Rope, RopeScaling, Yarn,
};
use mlx_parity_oracles::ops::{
    Attention, CausalAlignment, ChannelOrder, Conv1d, CrossEntropy, GroupNorm, Mask, Mode,
    QuantizeRule, Quantized, ScaleRule, Scales, conv1d, cross_entropy, dequantize, from_fp8,
    gather_mm, gather_qmm, group_norm, quantize, quantized_matmul, quantized_sdpa, rope, sdpa,
    to_fp8, topk,
};
use mlx_parity_oracles::{Answer, Tensor64};

/// Units of float32: what MLX's float32 may be off, relative to the condition.
const BOUND: f64 = 4.0 * f32::EPSILON as f64;

fn fixture() -> Fixture {
    Fixture::open("mlx_ops")
}

#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
fn affine(f: &Fixture, name: &str, bits: u32, group_size: usize) -> Quantized {
    let scales = Scales::Affine {
        scales: f.floats(&format!("{name}.scales")),
        biases: f.floats(&format!("{name}.biases")),
    };
    let words = f.words(&format!("{name}.words"));
    Quantized::new(Mode::Affine { bits, group_size }, words, scales).unwrap()
}

#[test]
fn affine_words_scales_and_biases_are_mlxs_own() {
    let f = fixture();
    let w = f.floats("quantize.w");
    for mode in Mode::affine_modes() {
        let Mode::Affine { bits, group_size } = mode else { unreachable!() };
        let name = format!("affine.{bits}.{group_size}");
        let theirs = affine(&f, &name, bits, group_size);
        assert_eq!(quantize(&w, mode, QuantizeRule::MLX).unwrap(), theirs, "{name}");
        let back = dequantize(&theirs);
        assert_near(&back, &f.floats(&format!("{name}.y")), f64::from(f32::EPSILON), &name);
    }
}

/// MLX's CPU picks the first nearest code of a table: +0 for small negatives, and not the even one
/// of two equally near (its Metal kernel does). All else must be equal.
#[test]
fn small_float_scales_are_mlxs_own_and_codes_have_its_values() {
    let f = fixture();
    let w = f.floats("float_quantize.w");
    let modes = [
        ("mxfp4", Mode::Mxfp4),
        ("mxfp8", Mode::Mxfp8),
        ("nvfp4", Mode::Nvfp4 { global_scale: None }),
        ("nvfp4_global", Mode::Nvfp4 { global_scale: Some(w.max_abs()) }),
    ];
    for (name, mode) in modes {
        let words = f.words(&format!("{name}.words"));
        let codes = f.codes(&format!("{name}.scales"));
        let theirs = Quantized::new(mode, words, Scales::Codes(codes)).unwrap();
        let ours = quantize(&w, mode, QuantizeRule::MLX).unwrap();
        assert_eq!(ours.scales(), theirs.scales(), "{name}");
        let (found, wanted) = (dequantize(&ours).value, dequantize(&theirs).value);
        let mut ties = 0;
        for (w, (ours, theirs)) in w.data().iter().zip(found.data().iter().zip(wanted.data())) {
            let tie = (w - ours).abs() == (w - theirs).abs();
            assert!(ours == theirs || tie, "{name}: {w} to {ours}, by MLX to {theirs}");
            ties += usize::from(ours != theirs);
        }
        assert!(ties <= 4, "{name}: {ties} ties of 384");
        let y = f.floats(&format!("{name}.y"));
        assert_near(&dequantize(&theirs), &y, f64::from(f32::EPSILON), name);
        let nearest = QuantizeRule { scale_rule: ScaleRule::Nearest, ..QuantizeRule::MLX };
        let other = quantize(&w, mode, nearest).unwrap();
        let same = other.scales() == theirs.scales();
        assert_eq!(same, name.starts_with("nvfp4"), "{name}: the fixture tells the rules apart");
    }
}

#[test]
fn products_with_quantized_and_gathered_matrices() {
    let f = fixture();
    let w = affine(&f, "qmm", 5, 32);
    let (x, narrow) = (f.floats("qmm.x"), f.floats("qmm.narrow"));
    assert_near(&quantized_matmul(&x, &w, true).unwrap(), &f.floats("qmm.y"), BOUND, "transposed");
    let straight = quantized_matmul(&narrow, &w, false).unwrap();
    assert_near(&straight, &f.floats("qmm.straight"), BOUND, "straight");
    let (lhs, rhs) = (f.integers("qmm.lhs"), f.integers("qmm.rhs"));
    let gathered = gather_qmm(&x, &w, Some(&lhs), Some(&rhs), true).unwrap();
    assert_near(&gathered, &f.floats("qmm.gathered"), BOUND, "gather_qmm");
    let dense = gather_mm(&narrow, &f.floats("qmm.dense"), Some(&lhs), Some(&rhs)).unwrap();
    assert_near(&dense, &f.floats("qmm.gather_mm"), BOUND, "gather_mm");
}

#[test]
fn fp8_codes_but_for_the_nan_codes_mlx_gets_wrong() {
    let f = fixture();
    let codes = mlx_parity_oracles::Tensor::vector((0..=255).collect::<Vec<u8>>());
    let (found, theirs) = (from_fp8(&codes).value, f.floats("from_fp8.y"));
    for (code, (ours, theirs)) in found.data().iter().zip(theirs.data()).enumerate() {
        let nan_code = code & 0x7f == 0x7f;
        assert!(ours == theirs || (nan_code && ours.is_nan()), "{code:#x}: {ours} {theirs}");
    }
    assert_eq!(to_fp8(&f.floats("to_fp8.x")), f.codes("to_fp8.codes"));
}

#[test]
fn groups_of_channels() {
    let f = fixture();
    let x = f.floats("group_norm.x");
    let both = [("strided", ChannelOrder::Strided), ("contiguous", ChannelOrder::Contiguous)];
    for (name, order) in both {
        let norm = GroupNorm { groups: 3, order, weight: None, bias: None, eps: 1e-5 };
        let found = group_norm(&x, &norm).unwrap();
        assert_near(&found, &f.floats(&format!("group_norm.{name}")), BOUND, name);
    }
    assert!(differs(&f.floats("group_norm.strided"), &f.floats("group_norm.contiguous"), 1e-2));
}

#[test]
fn attention_conventions() {
    let f = fixture();
    let [q, k, v] = ["q", "k", "v"].map(|name| f.floats(&format!("sdpa.{name}")));
    let sinks = f.floats("sdpa.sinks");
    let causal = Attention::new(0.2, Mask::Causal(CausalAlignment::BottomRight));
    let ask = |attention: Attention, name: &str| {
        let found = sdpa(&q, &k, &v, &attention).unwrap();
        assert_near(&found, &f.floats(&format!("sdpa.{name}")), BOUND, name);
    };
    ask(causal, "causal");
    ask(Attention { window: Some(3), ..causal }, "window");
    ask(Attention { sinks: Some(sinks.data()), ..causal }, "sink");
    let packed = ["k4", "v4"].map(|name| affine(&f, &format!("sdpa.{name}"), 4, 32));
    let found = quantized_sdpa(&q, &packed[0], &packed[1], &causal).unwrap();
    assert_near(&found, &f.floats("sdpa.quantized"), BOUND, "quantized");
}

#[test]
fn dead_rows_answer_as_mlx_answers_each_kind_of_mask() {
    let f = fixture();
    let [q, k, v] = ["q", "k", "v"].map(|name| f.floats(&format!("sdpa.{name}")));
    let shown: Vec<bool> = (0..45).map(|i| i >= 9).collect();
    let shown = mlx_parity_oracles::BoolTensor::new([5, 9], shown).unwrap();
    let added = shown.map(|seen| if seen { 0.0 } else { f64::NEG_INFINITY });
    let found = sdpa(&q, &k, &v, &Attention::new(0.2, Mask::Bool(&shown))).unwrap();
    assert_near(&found, &f.floats("sdpa.dead_bool"), BOUND, "boolean");
    let found = sdpa(&q, &k, &v, &Attention::new(0.2, Mask::Additive(&added))).unwrap();
    assert_near(&found, &f.floats("sdpa.dead_additive"), BOUND, "additive");
    assert!(found.value.data()[0].is_nan());
    let first = |x: &Tensor64| {
        let rows = x.data().chunks(9 * 32).flat_map(|head| head[..3 * 32].to_vec()).collect();
        Tensor64::new([2, 2, 3, 32], rows).unwrap()
    };
    let causal = Attention::new(0.2, Mask::Causal(CausalAlignment::BottomRight));
    let found = sdpa(&q, &first(&k), &first(&v), &causal).unwrap();
    assert_near(&found, &f.floats("sdpa.dead_causal"), BOUND, "causal");
}

fn scalings() -> [(&'static str, RopeScaling); 7] {
    let long_factor: Vec<f64> = (0..16).map(|i| 1.0 + 0.25 * f64::from(i)).collect();
    [
        ("default", RopeScaling::Default),
        ("linear", RopeScaling::Linear { factor: 4.0 }),
        ("dynamic", RopeScaling::Dynamic { factor: 2.0 }),
        (
            "llama3",
            RopeScaling::Llama3(Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_max_position_embeddings: 128.0,
            }),
        ),
        (
            "yarn",
            RopeScaling::Yarn(Yarn {
                factor: 4.0,
                original_max_position_embeddings: 64.0,
                beta_fast: 16.0,
                beta_slow: 2.0,
                mscale: 0.8,
                mscale_all_dim: 0.3,
            }),
        ),
        (
            "longrope",
            // mlx-lm takes the long factors whatever the length.
            RopeScaling::LongRope(LongRope {
                original_max_position_embeddings: 64.0,
                short_factor: long_factor.clone(),
                long_factor,
                short_mscale: None,
                long_mscale: None,
            }),
        ),
        (
            "proportional",
            RopeScaling::Proportional(Proportional { partial_rotary_factor: 0.5, factor: 2.0 }),
        ),
    ]
}

#[test]
fn every_rotary_scaling() {
    let f = fixture();
    let x = f.floats("rope.x");
    let turn = |scaling: &RopeScaling, offset: i64| {
        let table = scaling.table(32, 10_000.0, 256, offset as usize + 7).unwrap();
        let offsets = Offsets::One(offset);
        rope(&x, &Rope { dims: 32, traditional: false, table: &table, offsets }).unwrap()
    };
    for offset in [0, 300] {
        for (name, scaling) in &scalings() {
            let found = turn(scaling, offset);
            assert_near(&found, &f.floats(&format!("rope.{name}.{offset}")), BOUND, name);
            let plain = f.floats(&format!("rope.default.{offset}"));
            // Dynamic scaling starts past 256 tokens.
            let same = *name == "default" || (*name == "dynamic" && offset == 0);
            assert_eq!(differs(&found.value, &plain, 1e-2), !same, "{name} at {offset}");
        }
    }
    let table = RopeScaling::Default.table(32, 10_000.0, 256, 7).unwrap();
    let offsets = Offsets::PerItem(&[3, 50]);
    let found = rope(&x, &Rope { dims: 32, traditional: true, table: &table, offsets }).unwrap();
    assert_near(&found, &f.floats("rope.traditional"), BOUND, "traditional");
}

#[test]
fn losses_convolution_and_the_largest() {
    let f = fixture();
    let loss = CrossEntropy { label_smoothing: 0.2, ignore_index: None };
    let targets = f.integers("cross_entropy.targets");
    let found = cross_entropy(&f.floats("cross_entropy.x"), &targets, loss).unwrap();
    assert_near(&found, &f.floats("cross_entropy.smoothed"), BOUND, "cross_entropy");
    let conv = Conv1d { stride: 2, padding: 2, dilation: 2, groups: 2 };
    let found = conv1d(&f.floats("conv1d.x"), &f.floats("conv1d.w"), conv).unwrap();
    assert_near(&found, &f.floats("conv1d.y"), BOUND, "conv1d");
    let found: Answer = topk(&f.floats("topk.x"), 5, -1).unwrap();
    assert_same(&found.value, &f.floats("topk.y"), "topk");
}
