//! Levers of kernels, from the command line: exact kernels keep tier L1, and a lever that cannot be pulled is an error.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use rstest::rstest;
use tempfile::TempDir;

/// `verify` of some checks with levers in the environment.
fn verify(levers: &str, checks: &str) -> Output {
    let record = TempDir::new().unwrap();
    Command::new(env!("CARGO_BIN_EXE_mlx-parity"))
        .args(["verify", checks, "--record"])
        .arg(record.path())
        .env("MLX_PARITY_KERNELS", levers)
        .output()
        .unwrap()
}

fn text(of: &[u8]) -> String {
    String::from_utf8_lossy(of).into_owned()
}

#[rstest]
#[case("fused_swiglu=on", "l1/glassllm/4-bit")]
#[case("fused_swiglu=on", "l1/glassllm/8-bit")]
#[case("fused_geglu=on", "l1/gemma3-1m/bf16/into-window")]
fn an_exact_kernel_keeps_the_bits_of_mlx_lm(#[case] levers: &str, #[case] checks: &str) {
    let output = verify(levers, checks);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
    assert!(said.contains("bit-exact"), "{said}");
}

#[test]
fn a_mutant_of_an_exact_kernel_breaks_them() {
    let output =
        verify("fused_swiglu=mutant:last_input_dropped", "l1/glassllm/4-bit/story/prefill");
    assert_eq!(output.status.code(), Some(100), "{}", text(&output.stdout));
}

#[rstest]
#[case::kernel("fused_sushi=on", "wanted one of the kernels fused_swiglu")]
#[case::position("fused_swiglu=perhaps", "off|promoted|on|mutant:NAME")]
#[case::mutant("fused_swiglu=mutant:none", "wanted one of the mutants")]
#[case::cap("fused_swiglu=on@some", "a number of calls behind @")]
fn a_lever_that_does_not_exist_is_a_usage_error(#[case] levers: &str, #[case] wanted: &str) {
    let output = verify(levers, "l1/glassllm/4-bit/story/prefill");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains(wanted), "{}", text(&output.stderr));
}

#[test]
fn a_kernel_that_was_asked_for_by_name_is_never_replaced_in_silence() {
    let output = verify("fused_swiglu=on", "l1/glassllm/f32/story/prefill");
    assert_eq!(output.status.code(), Some(100), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("wanted affine-quantized weights alone"));
}
