//! Every op with a gradient has a gradient case, or a reason on file; every kernel with a backward too.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use mlx_parity::{
    case::{self, Kind},
    gradcheck::{COMPOSITES, Of, Point, VjpCase},
    ops::{Source, suite},
    root::Root,
};
use mlx_parity_kernels::{CANDIDATES, candidate};
use mlx_parity_oracles::OPS;
use mlx_parity_tensor::Dtype;

fn root() -> Root {
    Root::find(Some(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))).unwrap()
}

fn cases() -> Vec<VjpCase> {
    let all = case::load_all(&root().cases()).unwrap().into_iter();
    all.filter_map(|case| if let Kind::Vjp(vjp) = case.kind { Some(vjp) } else { None }).collect()
}

#[test]
fn every_op_with_a_gradient_has_a_case_and_a_quick_one_or_a_reason() {
    let reasons = case::uncovered(&root().cases()).unwrap();
    let mut covered: BTreeMap<String, bool> = BTreeMap::new();
    for case in cases() {
        if let Of::Op(op) = &case.of {
            *covered.entry(op.op.clone()).or_default() |= case.quick;
        }
    }
    for info in OPS.iter().filter(|info| info.differentiable) {
        match (covered.get(info.name), reasons.get(info.name)) {
            (Some(quick), None) => assert!(quick, "{} has no quick case", info.name),
            (None, Some(_)) => {}
            (Some(_), Some(_)) => panic!("{} has cases and a reason for none", info.name),
            (None, None) => panic!("{} has a gradient and neither a case nor a reason", info.name),
        }
    }
}

/// Floating operands, by position, that no case takes the gradient of, although their op has one.
#[test]
fn every_floating_operand_is_differentiated_somewhere() {
    let mut asked: BTreeMap<String, (BTreeSet<usize>, BTreeSet<usize>)> = BTreeMap::new();
    for case in cases() {
        for point in case.points() {
            let Point::Op(call) = point else { continue };
            let operands = suite(call.op).operands(&call, &mut Source::new(1)).unwrap();
            let entry = asked.entry(call.op.name().to_owned()).or_default();
            entry.0.extend(case.wrt.iter().copied());
            let operands = operands.iter().enumerate();
            let floats = operands.filter(|(_, operand)| operand.dtype().is_float());
            entry.1.extend(floats.map(|(at, _)| at));
        }
    }
    let left: BTreeMap<String, Vec<usize>> = asked
        .into_iter()
        .map(|(op, (wrt, floats))| (op, floats.difference(&wrt).copied().collect::<Vec<_>>()))
        .filter(|(_, left)| !left.is_empty())
        .collect();
    // Scales and biases of packed keys, values and experts are constants where models train; the weight
    // of a loss's row is no parameter; put_along_axis puts one constant; rope's periods are given.
    let constants = [
        ("cross_entropy", vec![2]),
        ("gather_qmm", vec![2, 3]),
        ("put_along_axis", vec![2]),
        ("quantized_sdpa", vec![2, 3, 5, 6]),
        ("rope", vec![1]),
    ];
    let constants: BTreeMap<String, Vec<usize>> =
        constants.into_iter().map(|(op, at)| (op.to_owned(), at)).collect();
    assert_eq!(left, constants);
}

#[test]
fn attention_is_covered_for_each_operand_mask_and_sharing_of_heads() {
    let mut found = BTreeSet::new();
    for case in cases() {
        for point in case.points() {
            let Point::Op(call) = point else { continue };
            if call.op.name() != "sdpa" {
                continue;
            }
            let mask = call.text_or("mask", "none").unwrap().to_owned();
            let heads = call.size("heads").unwrap();
            let shared = call.size_or("kv_heads", heads).unwrap() < heads;
            found.extend(case.wrt.iter().map(|&wrt| (wrt, mask.clone(), shared)));
        }
    }
    for wrt in 0..3 {
        for mask in ["none", "causal"] {
            for shared in [false, true] {
                assert!(found.contains(&(wrt, mask.to_owned(), shared)), "{wrt} {mask} {shared}");
            }
        }
        for mask in ["bool", "additive", "window", "padding"] {
            assert!(found.iter().any(|(at, m, _)| *at == wrt && m == mask), "{wrt} {mask}");
        }
    }
}

#[test]
fn quantized_products_are_covered_at_one_to_five_rows_both_ways() {
    let mut found = BTreeSet::new();
    for case in cases() {
        for point in case.points() {
            if let Point::Op(call) = point
                && call.op.name() == "quantized_matmul"
                && case.wrt == [0]
            {
                let transpose = call.bool_or("transpose", true).unwrap();
                found.insert((case.dtype, transpose, call.size("m").unwrap()));
            }
        }
    }
    for dtype in [Dtype::F32, Dtype::Bf16] {
        for transpose in [false, true] {
            for m in 1..=5 {
                assert!(found.contains(&(dtype, transpose, m)), "{dtype} {transpose} {m}");
            }
        }
    }
}

fn there_is(kernel: &str) -> bool {
    candidate(kernel).is_some()
}

#[test]
fn every_composite_and_every_kernel_with_a_backward_has_a_case() {
    let (mut composites, mut kernels) = (BTreeSet::new(), BTreeSet::new());
    for case in cases() {
        match case.of {
            Of::Composite(name) => composites.extend([name]),
            Of::Kernel(trials) => kernels.extend([trials.kernel]),
            Of::Op(_) => {}
        }
    }
    let known: BTreeSet<String> = COMPOSITES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(composites, known);
    let backward = CANDIDATES.iter().filter(|kernel| kernel.spec().backward.is_some_and(there_is));
    let wanted: BTreeSet<String> =
        backward.map(|candidate| candidate.spec().id.to_owned()).collect();
    assert_eq!(kernels, wanted);
}
