//! Host kernels: each holds on its lattice and its probes, and each of its bugs is rejected there.

mod support;

use mlx_parity_kernels::How;
use mlx_parity_tensor::Dtype;
use rstest::rstest;

use support::host::Hosted;

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::Bf16];

#[rstest]
fn host_kernels_hold(
    #[values(
        "fused_geglu",
        "fused_swiglu",
        "fused_swiglu_f32",
        "fused_mlp",
        "flash_attention",
        "flash_attention_vjp"
    )]
    id: &str,
    #[values(Dtype::F32, Dtype::F16, Dtype::Bf16)] dtype: Dtype,
) {
    Hosted::of(id).holds(dtype);
}

#[rstest]
#[case("fused_geglu")]
#[case("fused_swiglu")]
#[case("fused_swiglu_f32")]
#[case("fused_mlp")]
#[case("flash_attention")]
#[case("flash_attention_vjp")]
fn host_mutants_are_rejected(#[case] id: &str) {
    if How::MUTANTS {
        let survivors = Hosted::of(id).survivors(&DTYPES);
        assert!(survivors.is_empty(), "{id}: nothing rejects {survivors:?}");
    }
}
