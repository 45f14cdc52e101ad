//! Ops of more than one element against `numpy` in extended precision (`oracles/numpy/ops.py`).

mod common;

use common::{Fixture, assert_near, assert_same, differs};
use mlx_parity_oracles::ops::rope::{Offsets, Rope, RopeScaling};
use mlx_parity_oracles::ops::{
    Attention, Axes, CausalAlignment, Conv1d, CrossEntropy, Mask, NormWeight, Precision, Rounding,
    Scan, SliceAxis, addmm, argmax, argmin, argsort, conv1d, cross_entropy, cummax, cumsum, div,
    floor_divide, layer_norm, logsumexp, matmul, max, mean, min, power, remainder, rms_norm, rope,
    scatter_add, sdpa, slice, slice_update, softmax, sort, sum, take, take_along_axis, var,
};
use mlx_parity_oracles::{IntTensor, Tensor64};

/// A few units of float64, relative to the condition.
const BOUND: f64 = 4.0 * f64::EPSILON;

fn fixture() -> Fixture {
    Fixture::open("ops")
}

#[test]
fn division_at_its_edges() {
    let f = fixture();
    let (a, b) = (f.floats("floor_divide.a"), f.floats("floor_divide.b"));
    let floor = floor_divide(&a, &b, Rounding::Floor).unwrap().value;
    assert_same(&floor, &f.floats("floor_divide.y"), "floor_divide");
    let rest = remainder(&a, &b, Rounding::Floor).unwrap().value;
    assert_same(&rest, &f.floats("remainder.y"), "remainder");
    let truncated = remainder(&a, &b, Rounding::Truncate).unwrap().value;
    assert_same(&truncated, &f.floats("fmod.y"), "fmod");
    assert_same(&div(&a, &b).unwrap().value, &f.floats("div.y"), "div");
    assert_near(&power(&a, &b).unwrap(), &f.floats("power_special.y"), BOUND, "power");
}

#[test]
fn offset_reductions() {
    let f = fixture();
    let x = f.floats("reduce.x");
    let axis = Axes::Of(&[1]);
    let tight = f64::EPSILON;
    assert_near(&sum(&x, axis, false).unwrap(), &f.floats("reduce.sum"), tight, "sum");
    assert_near(&mean(&x, axis, false).unwrap(), &f.floats("reduce.mean"), tight, "mean");
    for (ddof, name) in [(0, "reduce.var"), (1, "reduce.var1")] {
        assert_near(&var(&x, axis, false, ddof).unwrap(), &f.floats(name), tight, name);
    }
    assert!(differs(&var(&x, axis, false, 0).unwrap().value, &f.floats("reduce.var1"), 1e-4));
    let outer = Axes::Of(&[0, 2]);
    assert_same(&max(&x, outer, false).unwrap().value, &f.floats("reduce.max"), "max");
    assert_same(&min(&x, outer, false).unwrap().value, &f.floats("reduce.min"), "min");
    assert_eq!(argmax(&x, 1, false).unwrap(), f.integers("reduce.argmax"));
    assert_eq!(argmin(&x, 1, false).unwrap(), f.integers("reduce.argmin"));
}

#[test]
fn nan_as_numpy_treats_it() {
    let f = fixture();
    let x = f.floats("nan.x");
    let axis = Axes::Of(&[-1]);
    assert_same(&max(&x, axis, false).unwrap().value, &f.floats("nan.max"), "max");
    assert_same(&min(&x, axis, false).unwrap().value, &f.floats("nan.min"), "min");
    assert_eq!(argmax(&x, -1, false).unwrap(), f.integers("nan.argmax"));
    assert_eq!(argmin(&x, -1, false).unwrap(), f.integers("nan.argmin"));
    assert_same(&sort(&x, -1).unwrap().value, &f.floats("nan.sort"), "sort");
    assert_eq!(argsort(&x, -1).unwrap(), f.integers("nan.argsort"));
    assert_same(&cummax(&x, Scan::default()).unwrap().value, &f.floats("nan.cummax"), "cummax");
}

#[test]
fn running_sums() {
    let f = fixture();
    let x = f.floats("cumsum.x");
    for (reverse, name) in [(false, "cumsum.y"), (true, "cumsum.reverse")] {
        let found = cumsum(&x, Scan { axis: 1, reverse, inclusive: true }).unwrap();
        assert_near(&found, &f.floats(name), f64::EPSILON, name);
    }
}

#[test]
fn softmax_and_what_is_made_of_it() {
    let f = fixture();
    let x = f.floats("softmax.x");
    let plain = softmax(&x, -1, Precision::Plain).unwrap();
    assert_near(&plain, &f.floats("softmax.y"), f64::EPSILON, "softmax");
    let precise = softmax(&x, -1, Precision::Precise).unwrap();
    assert_eq!(plain.value, precise.value);
    assert!(precise.condition.max_abs() < plain.condition.max_abs());
    let found = logsumexp(&x, Axes::Of(&[1]), false).unwrap();
    assert_near(&found, &f.floats("softmax.logsumexp"), f64::EPSILON, "logsumexp");
    let targets = f.integers("cross_entropy.targets");
    for (label_smoothing, name) in [(0.0, "cross_entropy.plain"), (0.1, "cross_entropy.smoothed")] {
        let loss = CrossEntropy { label_smoothing, ignore_index: None };
        assert_near(
            &cross_entropy(&x, &targets, loss).unwrap(),
            &f.floats(name),
            f64::EPSILON,
            name,
        );
    }
}

#[test]
fn norms() {
    let f = fixture();
    let (x, w, b) = (f.floats("norm.x"), f.floats("norm.w"), f.floats("norm.b"));
    let plain = rms_norm(&x, NormWeight::Plain(&w), 1e-6).unwrap();
    assert_near(&plain, &f.floats("norm.rms"), BOUND, "rms_norm");
    let one_plus = rms_norm(&x, NormWeight::OnePlus(&w), 1e-6).unwrap();
    assert_near(&one_plus, &f.floats("norm.rms1"), BOUND, "rms_norm 1+w");
    let layer = layer_norm(&x, Some(&w), Some(&b), 1e-5).unwrap();
    assert_near(&layer, &f.floats("norm.layer"), f64::EPSILON, "layer_norm");
}

#[test]
fn moves_by_position_and_index() {
    let f = fixture();
    let x = f.floats("take.x");
    let taken = take(&x, &f.integers("take.index"), 1).unwrap().value;
    assert_same(&taken, &f.floats("take.y"), "take");
    let along = take_along_axis(&x, &f.integers("take_along.index"), 1).unwrap().value;
    assert_same(&along, &f.floats("take_along.y"), "take_along_axis");
    let (index, updates) = (f.integers("scatter.index"), f.floats("scatter.updates"));
    let scattered = scatter_add(&x, &index, &updates, 1).unwrap();
    assert_near(&scattered, &f.floats("scatter.y"), f64::EPSILON, "scatter_add");
    let axis = |start, stop, step| SliceAxis { start, stop, step };
    let axes = [axis(1, 4, 2), axis(5, -1, -2), axis(0, 2, 1)];
    assert_same(&slice(&x, &axes).unwrap().value, &f.floats("slice.y"), "slice");
    let updated = slice_update(&x, &Tensor64::scalar(-1.5), &axes).unwrap().value;
    assert_same(&updated, &f.floats("slice.update"), "slice_update");
}

#[test]
fn products_and_their_conditions() {
    let f = fixture();
    let (a, b) = (f.floats("matmul.a"), f.floats("matmul.b"));
    let found = matmul(&a, &b).unwrap();
    // Half a unit of the value, as if summed exactly and rounded once.
    assert_near(&found, &f.floats("matmul.y"), 1e-18, "matmul in twice the precision");
    let condition = f.floats("matmul.condition");
    assert!(!differs(&found.condition, &condition, 1e-13));
    let found = addmm(&f.floats("addmm.c"), &a, &b, 0.5, -2.0).unwrap();
    assert_near(&found, &f.floats("addmm.y"), f64::EPSILON, "addmm");
}

#[test]
fn grouped_dilated_strided_convolution() {
    let f = fixture();
    let conv = Conv1d { stride: 2, padding: 2, dilation: 2, groups: 2 };
    let found = conv1d(&f.floats("conv1d.x"), &f.floats("conv1d.w"), conv).unwrap();
    assert_near(&found, &f.floats("conv1d.y"), f64::EPSILON, "conv1d");
}

#[test]
fn attention_under_every_mask() {
    let f = fixture();
    let [q, k, v] = ["q", "k", "v"].map(|name| f.floats(&format!("sdpa.{name}")));
    let (added, shown) = (f.floats("sdpa.added"), f.booleans("sdpa.shown"));
    let sinks = f.floats("sdpa.sinks");
    let causal = Attention::new(0.25, Mask::Causal(CausalAlignment::BottomRight));
    let cases = [
        ("none", Attention::new(0.25, Mask::None)),
        ("causal", causal),
        ("top_left", Attention::new(0.25, Mask::Causal(CausalAlignment::TopLeft))),
        ("window", Attention { window: Some(3), ..causal }),
        ("bool", Attention::new(0.25, Mask::Bool(&shown))),
        ("additive", Attention::new(0.25, Mask::Additive(&added))),
        ("sink", Attention { sinks: Some(sinks.data()), ..causal }),
    ];
    for (name, attention) in &cases {
        let found = sdpa(&q, &k, &v, attention).unwrap();
        for (other, _) in &cases {
            let wanted = f.floats(&format!("sdpa.{other}"));
            if other == name {
                assert_near(&found, &wanted, BOUND, name);
            } else {
                assert!(differs(&found.value, &wanted, 1e-3), "{name} and {other} agree");
            }
        }
    }
}

#[test]
fn rotation_of_part_of_the_features_at_each_items_offset() {
    let f = fixture();
    let x = f.floats("rope.x");
    let offsets = f.integers("rope.offsets");
    let table = RopeScaling::Linear { factor: 4.0 }.table(16, 500_000.0, 2048, 4).unwrap();
    for (traditional, name) in [(false, "rope.halves"), (true, "rope.pairs")] {
        let rotation = Rope {
            dims: 16,
            traditional,
            table: &table,
            offsets: Offsets::PerItem(offsets.data()),
        };
        let found = rope(&x, &rotation).unwrap();
        assert_near(&found, &f.floats(name), BOUND, name);
        let other = Rope { traditional: !traditional, ..rotation };
        assert!(differs(&rope(&x, &other).unwrap().value, &f.floats(name), 1e-3));
    }
}

#[test]
fn fixtures_hold_what_the_tests_take_them_for() {
    let f = fixture();
    assert!(f.floats("nan.x").data().iter().filter(|v| v.is_nan()).count() >= 5);
    let repeated: &IntTensor = &f.integers("scatter.index");
    assert_eq!(repeated.data()[0], repeated.data()[2]);
}
