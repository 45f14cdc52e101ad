//! The Metal sources of attention in emulation: as they are meant, and with each bug.

mod support;

use mlx_parity_kernels::Trial;
use mlx_parity_msl_emu::Mode;
use mlx_parity_tensor::Dtype;
use rstest::rstest;

use support::sweep::Subject;

/// An extent of an operand.
fn extent(trial: &Trial, name: &str, axis: usize) -> usize {
    let operand = trial.operands.iter().find(|operand| operand.name == name);
    operand.expect("an operand of every trial").shape[axis]
}

/// Products of 8 × 8 matrices that the scores of a trial take.
fn products(trial: &Trial) -> usize {
    let [batch, heads, queries, dim] = [0, 1, 2, 3].map(|axis| extent(trial, "queries", axis));
    let keys = extent(trial, "keys", 2);
    batch * heads * queries.div_ceil(8) * keys.div_ceil(8) * dim.div_ceil(8)
}

fn dim(trial: &Trial) -> usize {
    extent(trial, "queries", 3)
}

/// Each head, group and number of simdgroups is compiled anew.
fn decode(trial: &Trial) -> bool {
    matches!(dim(trial), 64 | 96) && extent(trial, "keys_w", 2) <= 333
}

fn decode_one_head(trial: &Trial) -> bool {
    dim(trial) == 64 && extent(trial, "keys_w", 2) <= 333 && trial.params.get("bits") == Some(4.0)
}

fn forward(trial: &Trial) -> bool {
    matches!(dim(trial), 32 | 64 | 80) && products(trial) <= 1500
}

fn forward_two_heads(trial: &Trial) -> bool {
    matches!(dim(trial), 32 | 64) && products(trial) <= 1500 && !trial.name.contains("heads-inside")
}

/// Products are seven times as many here. Of the views, those of one class.
fn backward(trial: &Trial) -> bool {
    let views = trial.name.contains("unused-slots") && trial.params.get("causal") == Some(0.0);
    backward_two_heads(trial) || views || dim(trial) == 256 && products(trial) <= 150
}

fn backward_two_heads(trial: &Trial) -> bool {
    let tiles = dim(trial) == 32 && extent(trial, "keys", 2) == 1025;
    matches!(dim(trial), 32 | 64) && (products(trial) <= 300 || tiles)
}

#[rstest]
#[case("fused_decode_sdpa", decode, decode_one_head)]
#[case("flash_attention", forward, forward_two_heads)]
#[case("flash_attention_vjp", backward, backward_two_heads)]
fn sources_hold(
    #[case] id: &str,
    #[case] in_float: fn(&Trial) -> bool,
    #[case] in_bfloat: fn(&Trial) -> bool,
) {
    Subject::of(id, in_float).summing_in_order().holds(&[Dtype::F32]);
    Subject::of(id, in_bfloat).summing_in_order().holds(&[Dtype::Bf16]);
}

/// One trial of each under the compiler's own watch for addresses.
#[rstest]
#[case("fused_decode_sdpa", decode_one_head)]
#[case("flash_attention", forward_two_heads)]
#[case("flash_attention_vjp", backward_two_heads)]
fn addresses_are_in_bounds(#[case] id: &str, #[case] fits: fn(&Trial) -> bool) {
    let subject = Subject::of(id, fits).summing_in_order();
    let mut emulated = subject.emulated();
    emulated.mode = Mode::FibersAddress;
    let probes = subject.probes(Dtype::F32);
    subject.check(&emulated, &probes[1]).expect("nothing wrong");
}

/// In one dtype, and few heads: each bug is compiled for each.
#[rstest]
#[case("fused_decode_sdpa", decode_one_head)]
#[case("flash_attention", forward_two_heads)]
#[case("flash_attention_vjp", backward_two_heads)]
fn mutants_are_rejected(#[case] id: &str, #[case] fits: fn(&Trial) -> bool) {
    let survivors = Subject::of(id, fits).summing_in_order().survivors(&[Dtype::F32]);
    assert!(survivors.is_empty(), "{id}: nothing rejects {survivors:?}");
}
