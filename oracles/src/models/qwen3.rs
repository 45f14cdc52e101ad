//! Qwen 3, dense (`mlx_lm.models.qwen3`).

use super::config::Config;
use super::plan::Plan;
use crate::error::OracleError;

pub(super) fn plan(config: &Config) -> Result<Plan, OracleError> {
    let mut plan = Plan::common(config)?;
    config.need("head_dim", config.head_dim())?;
    config.need("rope_theta", config.rope_theta())?;
    plan.tied = config.need("tie_word_embeddings", config.tie_word_embeddings())?;
    plan.head_norms = true;
    Ok(plan)
}
