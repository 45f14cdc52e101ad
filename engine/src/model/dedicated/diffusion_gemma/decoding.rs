//! `generation_config` of the model's own `config.json`: how `stream_diffusion_generate` of mlx-optiq
//! decodes unless it is told otherwise.

use serde::Deserialize;
use serde_json::Value;

use crate::config::ConfigFile;
use crate::error::EngineError;

/// The keys that the reference reads, as they stand. `eos_token_id` is harmless elsewhere and read
/// apart.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireDecoding {
    max_new_tokens: Option<usize>,
    max_denoising_steps: Option<usize>,
    sampler_config: Option<WireSampler>,
    linear_temperature_schedule_config: Option<WireSchedule>,
    t_min: Option<f64>,
    t_max: Option<f64>,
    diffusion_stopping_config: Option<WireStopping>,
    stability_threshold: Option<usize>,
    confidence_threshold: Option<f64>,
    #[serde(rename = "_from_model_config")]
    _from_model_config: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireSampler {
    #[serde(rename = "_cls_name")]
    class: Option<String>,
    entropy_bound: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireSchedule {
    t_min: Option<f64>,
    t_max: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireStopping {
    stability_threshold: Option<usize>,
    confidence_threshold: Option<f64>,
}

/// When a canvas is left before its last step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stopping {
    /// So many canvases before this one must have been the same.
    pub(super) stability: usize,
    /// And the mean entropy must lie below this.
    pub(super) confidence: f64,
}

/// The decoding that a model asks for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Decoding {
    pub(super) max_new_tokens: usize,
    /// At least 1.
    pub(super) denoising_steps: usize,
    /// The entropy that one step may commit beyond its most uncertain position.
    pub(super) entropy_bound: f64,
    /// The temperature that the last step approaches; above 0.
    pub(super) t_min: f64,
    /// The temperature of the first step; above 0.
    pub(super) t_max: f64,
    pub(super) stopping: Option<Stopping>,
    /// Ids that end a generation.
    pub(super) stop_token_ids: Vec<u32>,
}

impl Default for Decoding {
    fn default() -> Self {
        Self {
            max_new_tokens: 256,
            denoising_steps: 48,
            entropy_bound: 0.1,
            t_min: 0.4,
            t_max: 0.8,
            stopping: None,
            stop_token_ids: Vec::new(),
        }
    }
}

impl Decoding {
    /// Gives the keys of the section their meaning.
    pub(super) fn read(file: &ConfigFile, wire: WireDecoding) -> Result<Self, EngineError> {
        let default = Self::default();
        let sampler = wire.sampler_config;
        let class = sampler.as_ref().and_then(|sampler| sampler.class.as_ref());
        let known = ["EntropyBoundSamplerConfig".to_owned()];
        file.only("sampler_config._cls_name", class, &known)?;
        // An object without keys counts as none.
        let schedule = wire
            .linear_temperature_schedule_config
            .filter(|given| *given != WireSchedule { t_min: None, t_max: None })
            .unwrap_or(WireSchedule { t_min: wire.t_min, t_max: wire.t_max });
        let flat = WireStopping {
            stability_threshold: wire.stability_threshold,
            confidence_threshold: wire.confidence_threshold,
        };
        let empty = WireStopping { stability_threshold: None, confidence_threshold: None };
        let given = [wire.diffusion_stopping_config.unwrap_or(empty), flat];
        let stopping = given.into_iter().find(|given| *given != empty).map(|given| Stopping {
            stability: given.stability_threshold.unwrap_or(1),
            confidence: given.confidence_threshold.unwrap_or(0.005),
        });
        let decoding = Self {
            max_new_tokens: wire.max_new_tokens.unwrap_or(default.max_new_tokens),
            // The reference takes 0 for absent too.
            denoising_steps: wire
                .max_denoising_steps
                .filter(|&steps| steps > 0)
                .unwrap_or(default.denoising_steps),
            entropy_bound: sampler
                .and_then(|sampler| sampler.entropy_bound)
                .unwrap_or(default.entropy_bound),
            t_min: schedule.t_min.unwrap_or(default.t_min),
            t_max: schedule.t_max.unwrap_or(default.t_max),
            stopping,
            stop_token_ids: stop_token_ids(file)?,
        };
        for (key, temperature) in [("t_min", decoding.t_min), ("t_max", decoding.t_max)] {
            if !(temperature > 0.0 && temperature.is_finite()) {
                return Err(file.unsupported(key, temperature, "a number above 0"));
            }
        }
        Ok(decoding)
    }

    /// `_diffusion_linear_temperature` with `left` of `steps` steps to go, this one among them.
    pub(super) fn temperature(&self, left: usize, steps: usize) -> f64 {
        self.t_min + (self.t_max - self.t_min) * (left as f64 / steps as f64)
    }
}

fn stop_token_ids(file: &ConfigFile) -> Result<Vec<u32>, EngineError> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    let Some(value) = file.get("eos_token_id") else { return Ok(Vec::new()) };
    let ids: Option<Vec<u32>> = match value {
        Value::Array(ids) => ids.iter().map(id).collect(),
        single => id(single).map(|id| vec![id]),
    };
    ids.ok_or_else(|| file.unsupported("eos_token_id", value, "a token id or a list of them"))
}
