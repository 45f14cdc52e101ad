//! Whole-model forwards in float64, as truth for error budgets.
//!
//! The formulas are those of `mlx_lm.models.{llama, qwen3, gemma3_text}`; the weights are the
//! checkpoint's, dense ones widened and affine-quantized ones dequantized exactly. Nothing rounds
//! below float64.

mod config;
mod forward;
mod gemma3_text;
mod llama;
mod plan;
mod qwen3;
mod rope_config;
mod weights;

use std::path::Path;

pub use forward::State64;
use mlx_parity_tensor::safetensors::Checkpoint;

use crate::error::OracleError;
use crate::tensor::Tensor64;
use config::Config;
use plan::Plan;
use weights::Weights;

/// Receives named intermediates, under the engine's names for them: `embed`,
/// `layers.0.self_attn.sdpa`, `logits`, ….
pub type Tap<'a> = &'a mut dyn FnMut(&str, &Tensor64);

/// A model whose forward is computed in float64.
#[derive(Debug)]
pub struct Model64 {
    plan: Plan,
    weights: Weights,
}

impl Model64 {
    /// Reads `config.json` and the safetensors of a folder; `model_type` must be llama, qwen3 or
    /// `gemma3_text`.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, OracleError> {
        let folder = folder.as_ref();
        let config = Config::read(&folder.join("config.json"))?;
        let architecture: fn(&Config, &Checkpoint) -> Result<Plan, OracleError> =
            match config.model_type() {
                "llama" => |config, _| llama::plan(config),
                "qwen3" => |config, _| qwen3::plan(config),
                "gemma3_text" => |config, checkpoint| {
                    gemma3_text::plan(config, checkpoint.contains("lm_head.weight"))
                },
                other => {
                    let wanted = "llama, qwen3 or gemma3_text";
                    return Err(config.error(format!("model_type is `{other}`, wanted {wanted}")));
                }
            };
        let checkpoint = Checkpoint::open(folder)
            .map_err(|error| OracleError::model(folder, error.to_string()))?;
        let plan = architecture(&config, &checkpoint)?;
        let weights = Weights::read(folder, &checkpoint, &config, &plan)?;
        Ok(Self { plan, weights })
    }

    /// Number of token ids.
    pub fn vocab_size(&self) -> usize {
        self.plan.vocab_size
    }

    /// Number of blocks.
    pub fn num_layers(&self) -> usize {
        self.plan.layers.len()
    }

    /// Logits after each of `ids`, shape `[ids, vocab]`.
    pub fn forward(&self, ids: &[u32]) -> Result<Tensor64, OracleError> {
        self.advance(&mut State64::new(self.num_layers()), ids, &mut |_, _| {})
    }

    /// Logits after each of `ids`, which follow the tokens `state` has seen; splitting a sequence
    /// changes nothing but the bases of dynamic rotary scaling, which depend on the call's last
    /// position as they do in the reference.
    pub fn advance(
        &self,
        state: &mut State64,
        ids: &[u32],
        tap: Tap,
    ) -> Result<Tensor64, OracleError> {
        forward::advance(&self.plan, &self.weights, state, ids, tap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_model_is_refused_by_name() {
        let folder = std::env::temp_dir().join(format!("ref64-no-model-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let ask = |text: &str| {
            std::fs::write(folder.join("config.json"), text).unwrap();
            Model64::open(&folder).unwrap_err().to_string()
        };
        assert!(ask("{").contains("config.json"));
        assert!(ask(r#"{"hidden_size": 4}"#).contains("model_type"));
        assert!(ask(r#"{"model_type": "llama"}"#).contains("safetensors"));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(Model64::open(&folder).unwrap_err().to_string().contains("config.json"));
    }
}
