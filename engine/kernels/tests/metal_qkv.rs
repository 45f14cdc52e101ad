//! The Metal source of projections with norms and positions, in emulation: as it is meant, and with each bug.

mod support;

use mlx_parity_kernels::Trial;
use mlx_parity_tensor::Dtype;

use support::sweep::Subject;

fn head_dim(trial: &Trial) -> usize {
    trial.params.get("head_dim").map_or(0, |number| number as usize)
}

/// Each size of a head is compiled anew. These have: heads that end within a tile, rotated in part and in both
/// pairings, one row and tiles, and codes of 4 and 8 bits and of both.
fn some_heads(trial: &Trial) -> bool {
    let mixed = trial.params.get("v_bits") == Some(8.0);
    matches!(head_dim(trial), 24 | 80) || head_dim(trial) == 32 && mixed
}

/// Tiles of rows of two items, and one row.
fn short_heads(trial: &Trial) -> bool {
    head_dim(trial) == 24
}

#[test]
fn qkv_holds() {
    Subject::of("fused_qkv_rope", some_heads).holds(&[Dtype::F32, Dtype::Bf16]);
}

#[test]
fn mutants_are_rejected() {
    let survivors = Subject::of("fused_qkv_rope", short_heads).survivors(&[Dtype::F32]);
    assert!(survivors.is_empty(), "nothing rejects {survivors:?}");
}
