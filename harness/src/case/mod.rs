//! Cases are data: TOML files under `goldens/cases/<tier>/`, read strictly.
//!
//! A file holds `[[case]]` tables, and `[[deviation]]` tables in tier L1 and
//! `[[denoise]]` tables in tier L2; in tier L3 `[[prompt]]` and `[[trajectory]]` tables. The full id of a case is `<tier>/<file stem>/<name>`; the folder
//! names the tier, so that a case can be found from its id alone.

mod composition;
mod denoise;
mod denoise_file;
mod deviation;
mod file;
mod filter;
mod matrix_file;
mod meta_file;
mod metal_file;
mod op_file;
mod toml_dir;
mod trajectory;
mod trajectory_file;
mod vjp_file;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use self::toml_dir::read as read_toml;
pub use self::{
    composition::{Composition, Convert, Kv, LayerPacking, Lora, Packing, Route},
    denoise::{Denoise, DenoiseSettings, SamplerName},
    deviation::{Deviation, FaultName},
    file::{load_all, load_matrix},
    filter::{Filter, parse_shard},
    metal_file::load as load_metal,
    trajectory::{Bounds, Envelope, NamedPrompt, Trajectory},
    vjp_file::uncovered,
};
use crate::{
    gate::GateCase, gradcheck::VjpCase, meta::MetaCase, metal::MetalCase, ops::OpCase, row::Tier,
};

/// mlx-lm's default prefill chunk, in tokens.
pub const DEFAULT_PREFILL_STEP: usize = 2048;

/// The oracle that is the engine itself: its own frozen answers, and the same answer along another path.
pub const OWN: &str = "self";

/// The oracle of gradients: finite differences in float64, of ref64, of MLX or of a kernel's reference.
pub const DIFFERENCES: &str = "differences";

/// What the model is prompted with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", from = "WirePrompt")]
pub enum Prompt {
    /// Token ids, as they are.
    Ids(Vec<u32>),
    /// Text, tokenized by the model's own tokenizer without special tokens unless it adds them.
    Text(String),
}

/// A prompt as files have it.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum WirePrompt {
    Ids(Vec<u32>),
    Text(String),
    /// Ids of the generator of synthetic models, [`crate::synthetic::ids`].
    Drawn(WireDrawn),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireDrawn {
    seed: u64,
    count: usize,
    /// One more than the largest id.
    #[serde(default = "WireDrawn::default_vocabulary")]
    vocabulary: std::num::NonZero<u32>,
}

impl WireDrawn {
    const fn default_vocabulary() -> std::num::NonZero<u32> {
        crate::synthetic::VOCABULARY
    }
}

impl From<WirePrompt> for Prompt {
    fn from(wire: WirePrompt) -> Self {
        match wire {
            WirePrompt::Ids(ids) => Self::Ids(ids),
            WirePrompt::Text(text) => Self::Text(text),
            WirePrompt::Drawn(WireDrawn { seed, count, vocabulary }) => {
                Self::Ids(crate::synthetic::ids(seed, count, vocabulary))
            }
        }
    }
}

/// Where the ids of the decode steps come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecodeFrom {
    /// The oracle's greedy choice.
    #[default]
    Greedy,
    /// The last ids of the prompt, one at a time: for models whose greedy answer goes round in
    /// circles and would check little.
    Prompt,
}

/// One subject with its inputs, oracle and bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// `l1/glassllm/f32/story`.
    pub id: String,
    /// The tier, from the folder.
    pub tier: Tier,
    /// What the case is there to catch.
    pub why: String,
    /// What is done.
    pub kind: Kind,
}

/// What a case does.
#[expect(clippy::large_enum_variant, reason = "cases are few, and moved seldom")]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Replays a model against frozen logits.
    Replay(Replay),
    /// Denoises canvases beside a frozen run.
    Denoise(Denoise),
    /// Stands beside a wrong answer of the reference and beside the right one.
    Deviation(Deviation),
    /// Holds a model to its own frozen trajectory.
    Trajectory(Trajectory),
    /// Calls an op and compares with the float64 reference.
    Op(OpCase),
    /// Asks a model the same thing in several ways.
    Meta(MetaCase),
    /// Runs a Metal kernel without a Mac.
    Metal(MetalCase),
    /// Looks for evidence about a fused kernel.
    Gate(GateCase),
    /// Compares gradients with finite differences.
    Vjp(VjpCase),
}

/// A model replayed against frozen logits (tiers L1 and L2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// A name from `goldens/models.toml`.
    pub model: String,
    /// The oracle that freezes the golden.
    pub oracle: String,
    /// The prompt.
    pub prompt: Prompt,
    /// Single steps frozen and replayed after the prompt.
    pub decode: usize,
    /// Where the ids of those steps come from.
    pub decode_from: DecodeFrom,
    /// Prompt tokens per prefill call; the last prompt token always goes alone.
    pub prefill_step: usize,
    /// Why the golden may be degenerate (few distinct tokens, wide margins), where it is meant.
    pub degenerate_because: Option<String>,
    /// Why the oracle cannot answer, where it cannot: the case is never run and never held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_frozen: Option<String>,
    /// What is done with the adapter in the model's folder; absent, it is left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterUse>,
    /// How keys and values are kept and attended to; absent, as mlx-lm does by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub composition: Option<Composition>,
}

/// What is done with the LoRA adapter in the folder `adapters` of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdapterUse {
    /// Its residual is added beside each layer.
    Mounted,
    /// Its product becomes part of the weights.
    Fused,
}

impl Case {
    /// A digest of all that makes an answer of this case; a golden with another one is stale.
    pub fn digest(&self) -> String {
        let identity = match &self.kind {
            Kind::Replay(replay) => replay.identity(&self.id),
            Kind::Denoise(denoise) => serde_json::json!({
                "id": self.id, "model": denoise.model, "oracle": denoise.oracle,
                "prompt": denoise.prompt, "settings": denoise.settings,
                "canvas-steps": denoise.canvas_steps,
            }),
            Kind::Deviation(deviation) => {
                serde_json::json!({ "id": self.id, "deviation": deviation })
            }
            Kind::Trajectory(trajectory) => trajectory.identity(&self.id),
            Kind::Op(op) => serde_json::json!({ "id": self.id, "op": op }),
            Kind::Meta(meta) => serde_json::json!({ "id": self.id, "meta": meta }),
            Kind::Metal(metal) => serde_json::json!({ "id": self.id, "metal": metal }),
            Kind::Gate(gate) => serde_json::json!({ "id": self.id, "gate": gate }),
            Kind::Vjp(vjp) => serde_json::json!({ "id": self.id, "vjp": vjp }),
        };
        crate::digest::of_bytes(identity.to_string().as_bytes())
    }

    /// Who says what is right.
    pub fn oracle(&self) -> &str {
        match &self.kind {
            Kind::Replay(replay) => &replay.oracle,
            Kind::Denoise(denoise) => &denoise.oracle,
            Kind::Deviation(_) => "mlx-lm",
            Kind::Op(_) | Kind::Gate(_) => "ref64",
            Kind::Trajectory(_) | Kind::Meta(_) => OWN,
            Kind::Metal(metal) => metal.oracle_name(),
            Kind::Vjp(_) => DIFFERENCES,
        }
    }

    /// The replay, where this case is one.
    pub fn replay(&self) -> Option<&Replay> {
        match &self.kind {
            Kind::Replay(replay) => Some(replay),
            Kind::Denoise(_)
            | Kind::Deviation(_)
            | Kind::Trajectory(_)
            | Kind::Op(_)
            | Kind::Meta(_)
            | Kind::Metal(_)
            | Kind::Gate(_)
            | Kind::Vjp(_) => None,
        }
    }

    /// The trajectory, where this case is one.
    pub fn trajectory(&self) -> Option<&Trajectory> {
        if let Kind::Trajectory(trajectory) = &self.kind { Some(trajectory) } else { None }
    }

    /// The composition that it asks for, where it names one.
    pub fn composition(&self) -> Option<&Composition> {
        self.replay().and_then(|replay| replay.composition.as_ref())
    }

    /// Whether a golden answers this case.
    pub fn has_golden(&self) -> bool {
        !matches!(
            self.kind,
            Kind::Op(_) | Kind::Meta(_) | Kind::Metal(_) | Kind::Gate(_) | Kind::Vjp(_)
        )
    }

    /// Whether its golden says that the model itself is right, in no composition but its own.
    pub fn is_of_the_model(&self) -> bool {
        match &self.kind {
            Kind::Replay(replay) => replay.composition.is_none(),
            Kind::Denoise(_) => true,
            Kind::Deviation(_)
            | Kind::Trajectory(_)
            | Kind::Op(_)
            | Kind::Meta(_)
            | Kind::Metal(_)
            | Kind::Gate(_)
            | Kind::Vjp(_) => false,
        }
    }

    /// Why the oracle cannot answer, where it cannot: the case is never run and never held.
    pub fn not_frozen(&self) -> Option<&str> {
        match &self.kind {
            Kind::Replay(replay) => replay.not_frozen.as_deref(),
            Kind::Denoise(denoise) => denoise.not_frozen.as_deref(),
            Kind::Deviation(_)
            | Kind::Trajectory(_)
            | Kind::Op(_)
            | Kind::Meta(_)
            | Kind::Metal(_)
            | Kind::Gate(_)
            | Kind::Vjp(_) => None,
        }
    }

    /// Why its golden may be degenerate, where it is meant.
    pub fn degenerate_because(&self) -> Option<&str> {
        match &self.kind {
            Kind::Replay(replay) => replay.degenerate_because.as_deref(),
            Kind::Denoise(denoise) => denoise.degenerate_because.as_deref(),
            Kind::Trajectory(trajectory) => trajectory.degenerate_because.as_deref(),
            Kind::Deviation(_)
            | Kind::Op(_)
            | Kind::Meta(_)
            | Kind::Metal(_)
            | Kind::Gate(_)
            | Kind::Vjp(_) => None,
        }
    }

    /// The name of the model that this case needs, where it needs one.
    pub fn model(&self) -> Option<&str> {
        match &self.kind {
            Kind::Replay(replay) => Some(&replay.model),
            Kind::Denoise(denoise) => Some(&denoise.model),
            Kind::Deviation(deviation) => Some(&deviation.model),
            Kind::Trajectory(trajectory) => Some(&trajectory.model),
            Kind::Op(_) | Kind::Metal(_) | Kind::Gate(_) | Kind::Vjp(_) => None,
            Kind::Meta(meta) => Some(&meta.model),
        }
    }

    /// The name of the model that drafts, where one does.
    pub fn draft(&self) -> Option<&str> {
        match &self.kind {
            Kind::Deviation(deviation) => deviation.draft.as_deref(),
            Kind::Replay(_)
            | Kind::Denoise(_)
            | Kind::Trajectory(_)
            | Kind::Op(_)
            | Kind::Meta(_)
            | Kind::Metal(_)
            | Kind::Gate(_)
            | Kind::Vjp(_) => None,
        }
    }

    /// Ids of the checks in this case, in the order they run.
    pub fn checks(&self) -> Vec<String> {
        let names = match &self.kind {
            Kind::Replay(replay) => replay.checks(),
            Kind::Denoise(denoise) => denoise.checks(),
            Kind::Deviation(_) => deviation::CHECKS.map(str::to_owned).to_vec(),
            Kind::Trajectory(trajectory) => trajectory.checks(),
            Kind::Op(op) => op.calls().iter().map(crate::ops::Call::name).collect(),
            Kind::Meta(meta) => meta.checks(),
            Kind::Metal(metal) => metal.trials().iter().map(crate::metal::Trial::name).collect(),
            Kind::Gate(gate) => gate.checks(),
            Kind::Vjp(vjp) => vjp.points().iter().map(crate::gradcheck::Point::name).collect(),
        };
        names.into_iter().map(|check| format!("{}/{check}", self.id)).collect()
    }
}

impl Replay {
    fn identity(&self, id: &str) -> serde_json::Value {
        let mut identity = serde_json::json!({
            "id": id, "model": self.model, "oracle": self.oracle,
            "prompt": self.prompt, "decode": self.decode,
            "decode-from": self.decode_from, "prefill-step": self.prefill_step,
        });
        if let Some(adapter) = self.adapter {
            identity["adapter"] = serde_json::json!(adapter);
        }
        if let Some(composition) = &self.composition {
            identity["composition"] = serde_json::json!(composition);
        }
        identity
    }

    fn checks(&self) -> Vec<String> {
        let tokenize = matches!(self.prompt, Prompt::Text(_)).then(|| "tokenize".to_owned());
        let steps = (1..=self.decode).map(|step| format!("decode/step-{step:03}"));
        let composition = self.composition.as_ref().map(|_| "composition".to_owned());
        let prefill = ["prefill".to_owned()];
        tokenize.into_iter().chain(prefill).chain(steps).chain(composition).collect()
    }
}

/// A case file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The file could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Not TOML, or a key that is not known.
    #[error("{path}: {message}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and what.
        message: String,
    },
    /// Well-formed, but not a usable case.
    #[error("{path}: case `{name}`: {message}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The case.
        name: String,
        /// What is wrong and what is wanted.
        message: String,
    },
    /// The synthetic models could not be listed.
    #[error(transparent)]
    Synthetic(#[from] crate::synthetic::SyntheticError),
}

impl CaseError {
    pub(crate) fn parse(path: &Path, error: &impl ToString) -> Self {
        Self::Parse {
            path: path.into(),
            message: error.to_string().trim_end().replace('\n', "\n  "),
        }
    }
}
