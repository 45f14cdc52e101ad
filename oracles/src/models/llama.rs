//! Llama (`mlx_lm.models.llama`).

use super::config::Config;
use super::plan::Plan;
use crate::error::OracleError;

pub(super) fn plan(config: &Config) -> Result<Plan, OracleError> {
    let mut plan = Plan::common(config)?;
    plan.attention_bias = config.attention_bias().unwrap_or(false);
    plan.mlp_bias = config.mlp_bias().unwrap_or(false);
    plan.tied = config.tie_word_embeddings().unwrap_or(true);
    for layer in &mut plan.layers {
        layer.rope.traditional = config.rope_traditional().unwrap_or(false);
    }
    let Some(kinds) = config.layer_types() else { return Ok(plan) };
    if kinds.len() != plan.layers.len() {
        let found = format!("{} layer_types for {} layers", kinds.len(), plan.layers.len());
        return Err(config.error(found));
    }
    for (layer, kind) in plan.layers.iter_mut().zip(kinds) {
        layer.window = match kind.as_str() {
            "sliding_attention" => Some(config.need("sliding_window", config.sliding_window())?),
            "full_attention" => None,
            other => {
                return Err(
                    config.error(format!("layer type is `{other}`, wanted full or sliding"))
                );
            }
        };
    }
    Ok(plan)
}
