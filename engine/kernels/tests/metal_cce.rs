//! The Metal sources of a head's loss and its gradients in emulation: as they are meant, and with each bug.

mod support;

use mlx_parity_kernels::Trial;
use mlx_parity_msl_emu::Mode;
use mlx_parity_tensor::Dtype;
use rstest::rstest;

use support::sweep::Subject;

/// Logits of a trial.
fn logits(trial: &Trial) -> usize {
    let rows = |name: &str| {
        trial.operands.iter().find(|of| of.name == name).map(|operand| operand.shape[0])
    };
    rows("hidden").unwrap_or(0) * rows("weight").or(rows("weight_w")).unwrap_or(0)
}

/// Each packing is compiled anew.
fn small(trial: &Trial) -> bool {
    logits(trial) <= 5000
}

fn one_packing(trial: &Trial) -> bool {
    let bits = trial.params.get("bits");
    small(trial) && (bits.is_none() || bits == Some(4.0))
}

#[rstest]
#[case("flash_cce")]
#[case("flash_cce_vjp")]
fn sources_hold(#[case] id: &str) {
    Subject::of(id, small).summing_in_order().holds(&[Dtype::F32]);
    Subject::of(id, one_packing).summing_in_order().holds(&[Dtype::Bf16]);
}

/// One trial of each under the compiler's own watch for addresses.
#[rstest]
#[case("flash_cce")]
#[case("flash_cce_vjp")]
fn addresses_are_in_bounds(#[case] id: &str) {
    let subject = Subject::of(id, one_packing).summing_in_order();
    let mut emulated = subject.emulated();
    emulated.mode = Mode::FibersAddress;
    let probes = subject.probes(Dtype::F32);
    subject.check(&emulated, &probes[1]).expect("nothing wrong");
}

#[rstest]
#[case("flash_cce")]
#[case("flash_cce_vjp")]
fn mutants_are_rejected(#[case] id: &str) {
    let survivors = Subject::of(id, one_packing).summing_in_order().survivors(&[Dtype::F32]);
    assert!(survivors.is_empty(), "{id}: nothing rejects {survivors:?}");
}
