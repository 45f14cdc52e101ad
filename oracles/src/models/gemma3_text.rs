//! Gemma 3, text only (`mlx_lm.models.gemma3_text`).

use super::config::Config;
use super::plan::{Activation, BlockNorms, Plan, RopePlan};
use crate::error::OracleError;
use crate::format::BF16;
use crate::ops::RopeScaling;

/// `has_head`: the checkpoint has an output projection of its own.
pub(super) fn plan(config: &Config, has_head: bool) -> Result<Plan, OracleError> {
    let mut plan = Plan::common(config)?;
    // The reference's own defaults, where they are not those of the others.
    plan.head_dim = config.head_dim().unwrap_or(256);
    plan.kv_heads = config.num_key_value_heads().unwrap_or(1);
    plan.max_position = config.max_position_embeddings().unwrap_or(32_768);
    plan.attention_scale = 1.0 / config.query_pre_attn_scalar().unwrap_or(256.0).sqrt();
    plan.head_norms = true;
    plan.block_norms = BlockNorms::Sandwich;
    plan.activation = Activation::GeluTanh;
    // The reference rounds this factor to bfloat16 whatever the model's dtype.
    plan.embedding_scale = BF16.round((plan.hidden as f64).sqrt());
    plan.tied = !has_head;

    let pattern = config.sliding_window_pattern().unwrap_or(6);
    if pattern == 0 {
        return Err(config.error("`sliding_window_pattern` is 0, wanted 1 or more"));
    }
    let window = config.sliding_window().unwrap_or(512);
    let local = RopePlan {
        base: config.rope_local_base_freq().unwrap_or(10_000.0),
        scaling: RopeScaling::Default,
        traditional: false,
    };
    for (i, layer) in plan.layers.iter_mut().enumerate() {
        if (i + 1).is_multiple_of(pattern) {
            layer.rope.base = config.rope_theta().unwrap_or(1_000_000.0);
        } else {
            layer.rope = local.clone();
            layer.window = Some(window);
        }
    }
    Ok(plan)
}
