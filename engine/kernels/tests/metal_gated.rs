//! The Metal sources of gated networks and of their activation, in emulation: as they are meant, and with each bug.

mod support;

use mlx_parity_kernels::Trial;
use mlx_parity_tensor::Dtype;
use rstest::rstest;

use support::sweep::Subject;

/// Each packing is compiled anew: these have every width of codes and a group of each kind.
const PACKINGS: [[Option<f64>; 4]; 4] = [
    [Some(4.0), Some(64.0), Some(4.0), Some(64.0)],
    [Some(4.0), Some(32.0), Some(4.0), Some(32.0)],
    [Some(8.0), Some(64.0), Some(8.0), Some(64.0)],
    [Some(8.0), Some(128.0), Some(4.0), Some(64.0)],
];

fn packing(trial: &Trial) -> [Option<f64>; 4] {
    ["gate_bits", "gate_group", "up_bits", "up_group"].map(|name| trial.params.get(name))
}

/// Elements of the operands.
fn size(trial: &Trial) -> usize {
    trial.operands.iter().map(|operand| operand.view().len()).sum()
}

fn every_packing(trial: &Trial) -> bool {
    PACKINGS.contains(&packing(trial)) && size(trial) < 12_000
}

fn one_packing(trial: &Trial) -> bool {
    packing(trial) == PACKINGS[0] && size(trial) < 25_000
}

fn small(trial: &Trial) -> bool {
    size(trial) < 20_000
}

const BOTH: [Dtype; 2] = [Dtype::F32, Dtype::Bf16];

/// Bits and group of the gate and of the way down, with a tail of results behind a tile; and whole tiles.
const DOWN: [[Option<f64>; 4]; 4] = [
    [Some(4.0), Some(32.0), Some(4.0), Some(128.0)],
    [Some(4.0), Some(64.0), Some(4.0), Some(64.0)],
    [Some(8.0), Some(32.0), Some(8.0), Some(32.0)],
    [Some(8.0), Some(128.0), Some(4.0), Some(64.0)],
];

fn down(trial: &Trial) -> [Option<f64>; 4] {
    ["gate_bits", "gate_group", "down_bits", "down_group"].map(|name| trial.params.get(name))
}

fn every_down(trial: &Trial) -> bool {
    DOWN.contains(&down(trial)) && size(trial) < 19_000
}

fn two_downs(trial: &Trial) -> bool {
    DOWN[..2].contains(&down(trial)) && size(trial) < 19_000
}

#[test]
fn swiglu_holds() {
    Subject::of("fused_swiglu", every_packing).holds(&BOTH);
}

#[test]
fn swiglu_in_float_holds() {
    Subject::of("fused_swiglu_f32", one_packing).holds(&BOTH);
}

#[test]
fn mlp_holds() {
    Subject::of("fused_mlp", every_down).holds(&BOTH);
}

#[test]
fn geglu_holds() {
    Subject::of("fused_geglu", |_| true).rounding_steps().holds(&BOTH);
}

#[test]
fn geglu_gradients_hold() {
    Subject::of("fused_geglu_vjp", |_| true).holds(&BOTH);
}

/// One packing and one dtype: each bug is compiled at most twice.
#[rstest]
#[case("fused_swiglu", one_packing)]
#[case("fused_swiglu_f32", one_packing)]
#[case("fused_mlp", two_downs)]
#[case("fused_geglu", small)]
#[case("fused_geglu_vjp", small)]
fn mutants_are_rejected(#[case] id: &str, #[case] fits: fn(&Trial) -> bool) {
    let survivors = Subject::of(id, fits).survivors(&[Dtype::F32]);
    assert!(survivors.is_empty(), "{id}: nothing rejects {survivors:?}");
}
