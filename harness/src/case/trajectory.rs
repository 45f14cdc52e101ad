//! A model held to its own frozen trajectory (tier L3).

use serde::{Deserialize, Serialize};

use super::{Composition, DecodeFrom, Prompt};

/// Our own L1 path's ids and logits over several prompts, frozen: what other compositions of the same model are
/// measured from, and what the path itself must repeat bit for bit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trajectory {
    /// A registered model.
    pub model: String,
    /// The prompts; intervals resample whole ones.
    pub prompts: Vec<NamedPrompt>,
    /// Scored positions of each prompt: the last of its context, and all but the last of the ids behind it.
    pub positions: usize,
    /// Where those ids come from.
    pub decode_from: DecodeFrom,
    /// Prompt tokens per prefill call; the last one goes alone.
    pub prefill_step: usize,
    /// Left out of runs that do not ask for large cases.
    #[serde(default)]
    pub large: bool,
    /// Why the trajectory may be degenerate, where it is meant.
    pub degenerate_because: Option<String>,
    /// Compositions that may differ, and by how much.
    pub envelopes: Vec<Envelope>,
}

/// A prompt with a name for its check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedPrompt {
    /// Part of an id.
    pub name: String,
    /// The prompt.
    pub prompt: Prompt,
}

/// How far a composition may be from the trajectory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    /// Part of an id.
    pub name: String,
    /// The composition.
    pub composition: Composition,
    /// The bounds.
    pub bounds: Bounds,
}

/// Bounds of an envelope, each on the unfavourable end of a 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Most of mean KL(trajectory‖composition) above the control's, in nats.
    pub max_mean: f64,
    /// Most of the 99th percentile of KL, in nats.
    pub max_p99: f64,
    /// Least part of decided positions whose likeliest token is the trajectory's.
    pub min_agreement: f64,
}

impl Trajectory {
    /// What makes the frozen answer; envelopes do not.
    pub(super) fn identity(&self, id: &str) -> serde_json::Value {
        serde_json::json!({
            "id": id, "model": self.model, "prompts": self.prompts, "positions": self.positions,
            "decode-from": self.decode_from, "prefill-step": self.prefill_step,
        })
    }

    /// Whether a prompt is text.
    pub fn tokenizes(&self) -> bool {
        self.prompts.iter().any(|prompt| matches!(prompt.prompt, Prompt::Text(_)))
    }

    /// Names of the checks, in the order they run.
    pub(super) fn checks(&self) -> Vec<String> {
        let tokenize = self.tokenizes().then(|| "tokenize".to_owned());
        let control = self.prompts.iter().map(|prompt| format!("control/{}", prompt.name));
        let envelopes = self.envelopes.iter().map(|envelope| format!("envelope/{}", envelope.name));
        tokenize.into_iter().chain(control).chain(envelopes).collect()
    }
}
