//! Ten mistakes that people make when they port a model. Each must fail the suite on a model that has
//! what the mistake is about, and `--explain` must name the first intermediate it shows in.

mod support;

use rstest::rstest;
use support::Project;

#[rstest]
#[case::norm_order("norm-order", "llama/f32", "layers.0.post_attention_layernorm")]
#[case::norm_order_sandwich("norm-order", "gemma3_text/f32", "layers.0.pre_feedforward_layernorm")]
#[case::forgotten_one_plus("forgotten-one-plus", "gemma3_text/f32", "layers.0.input_layernorm")]
#[case::wrong_softcap("wrong-softcap", "gemma2/f32", "layers.0.self_attn.o")]
#[case::scale_after_softcap("scale-after", "gemma2/f32", "layers.0.self_attn.o")]
#[case::scale_after("scale-after", "qwen3/f32", "layers.0.self_attn.sdpa")]
#[case::qk_norm_after_rope("qk-norm-after-rope", "qwen3/f32", "layers.0.self_attn.q_rope")]
#[case::wrong_shared_kv("wrong-shared-kv", "gemma4_text/f32", "layers.4.self_attn.sdpa")]
#[case::unnormalised_top_k("unnormalised-top-k", "qwen3_moe/f32", "layers.3.mlp")]
#[case::unnormalised_top_k_mixtral(
    "unnormalised-top-k",
    "mixtral/4bit",
    "layers.0.block_sparse_moe"
)]
#[case::swapped_gate_up("swapped-gate-up", "llama/f32", "layers.0.mlp.act")]
#[case::embed_scale_dtype("embed-scale-dtype", "gemma3_text/bf16", "embed")]
#[case::tied_head_ignored("tied-head-ignored", "qwen3/f32", "logits")]
fn a_porting_mistake_fails_and_is_located(
    #[case] fault: &str,
    #[case] model: &str,
    #[case] first: &str,
) {
    let project = Project::new();
    let case = format!("l1/{model}/window");
    let ran = project.run(&["verify", &case, "--fault", fault]).expect(100);
    assert!(ran.stdout.contains(&format!("FAIL {case}/prefill")), "{}", ran.stdout);
    let ran = project.run(&["case", &case, "--explain", "--fault", fault]).expect(100);
    let wanted = format!("intermediates of the prefill: first difference at {first} (call 0);");
    assert!(ran.stdout.contains(&wanted), "{}", ran.stdout);
    // A right engine passes the same case: it is the fault that fails.
    project.run(&["verify", &case]).expect(0);
}
