//! A canvas denoised beside an oracle.

use serde::{Deserialize, Serialize};

/// A diffusion model denoising canvases behind a prompt, checked step by step against a frozen run of
/// the oracle (tier L2). Both sides run freely: noise and samples come from the same seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Denoise {
    /// A registered model.
    pub model: String,
    /// The oracle that freezes the golden.
    pub oracle: String,
    /// Token ids.
    pub prompt: Vec<u32>,
    /// How the canvases are denoised.
    pub settings: DenoiseSettings,
    /// Steps of each canvas. An oracle that took others freezes nothing, an engine that does fails.
    pub canvas_steps: Vec<usize>,
    /// Why the golden may be degenerate, where it is meant.
    pub degenerate_because: Option<String>,
    /// Why the oracle cannot answer, where it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_frozen: Option<String>,
}

/// What the loop of mlx-optiq is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DenoiseSettings {
    /// The most tokens over all canvases.
    pub max_tokens: usize,
    /// Steps a canvas gets at most.
    pub steps: usize,
    /// Seed of `mx.random`.
    pub seed: u64,
    /// Of the samples, after the model's schedule; 0 takes the likeliest token.
    pub temperature: f64,
    /// Which positions a step commits.
    pub sampler: SamplerName,
    /// Confidence that commits a position under `confidence-threshold`.
    pub threshold: f64,
    /// The shortest canvas, in tokens.
    pub min_canvas: Option<usize>,
    /// The longest canvas, in tokens.
    pub max_canvas: Option<usize>,
    /// Prompt tokens per call; all in one where absent.
    pub prefill_step: Option<usize>,
    /// Ids that end the run, besides the model's own.
    pub stop: Vec<u32>,
}

/// mlx-optiq's samplers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SamplerName {
    /// Commits the most certain positions within an entropy.
    EntropyBound,
    /// Commits positions of enough confidence, for good.
    ConfidenceThreshold,
}

impl Denoise {
    /// Names of the checks, in the order they run: each step of each canvas, then the ids.
    pub(super) fn checks(&self) -> Vec<String> {
        let steps = self.canvas_steps.iter().enumerate().flat_map(|(canvas, &steps)| {
            (1..=steps).map(move |step| Self::check(canvas + 1, step))
        });
        steps.chain(["ids".to_owned()]).collect()
    }

    /// The check of a step, both counted from 1.
    pub fn check(canvas: usize, step: usize) -> String {
        format!("canvas-{canvas}/step-{step:03}")
    }

    /// The step that a check's id names, counted from 1 over all canvases.
    pub fn step_of(&self, id: &str) -> Option<usize> {
        let mut checks = self.checks();
        checks.pop();
        Some(checks.iter().position(|check| id.ends_with(&format!("/{check}")))? + 1)
    }
}
