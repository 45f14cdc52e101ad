//! Every op of the table has cases, every generator is used, every exception of the tolerances binds.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use mlx_parity::{
    case::{self, Case, Kind},
    ops::{Generator, OpCase, Tolerances},
    root::Root,
};
use mlx_parity_oracles::OPS;
use mlx_parity_tensor::Dtype;

fn root() -> Root {
    Root::find(Some(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))).unwrap()
}

fn op_cases() -> Vec<(Case, OpCase)> {
    let cases = case::load_all(&root().cases()).unwrap().into_iter();
    cases
        .filter_map(|case| match &case.kind {
            Kind::Op(op) => Some((case.clone(), op.clone())),
            _ => None,
        })
        .collect()
}

#[test]
fn every_op_has_cases_in_every_floating_dtype_and_a_quick_one() {
    let mut covered: BTreeMap<String, BTreeSet<Dtype>> = BTreeMap::new();
    let mut quick = BTreeSet::new();
    for (_, op) in op_cases() {
        covered.entry(op.op.clone()).or_default().insert(op.dtype);
        if op.quick {
            quick.insert(op.op);
        }
    }
    let mut missing = Vec::new();
    for info in OPS {
        let found = covered.get(info.name).cloned().unwrap_or_default();
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            if !found.contains(&dtype) {
                missing.push(format!("{} {dtype}", info.name));
            }
        }
        if !quick.contains(info.name) {
            missing.push(format!("{} quick", info.name));
        }
    }
    assert!(missing.is_empty(), "no case for: {}", missing.join(", "));
}

#[test]
fn every_check_has_operands_a_reference_and_a_bound() {
    let tolerances = Tolerances::load(&root().tolerances_file(), "cpu").unwrap();
    let mut ids = BTreeSet::new();
    for (case, op) in op_cases() {
        for (call, id) in op.calls().iter().zip(case.checks()) {
            assert!(tolerances.bound(call).is_ok(), "{id} has no bound");
            assert!(ids.insert(id.clone()), "{id} is there twice");
        }
    }
}

#[test]
fn every_generator_is_used() {
    let used: BTreeSet<Generator> =
        op_cases().into_iter().flat_map(|(_, op)| op.generators).collect();
    let idle: Vec<_> = Generator::ALL.into_iter().filter(|g| !used.contains(g)).collect();
    assert!(idle.is_empty(), "{idle:?}");
}

#[test]
fn every_exception_binds_a_check() {
    let cases: Vec<_> = op_cases().into_iter().map(|(case, _)| case).collect();
    let tolerances = Tolerances::load(&root().tolerances_file(), "cpu").unwrap();
    tolerances.check_used(&cases).unwrap();
}
