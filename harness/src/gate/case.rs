//! One piece of the gate's work, for one worker: its rows are the evidence of one stage of one cell.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mlx_parity_kernels::ledger::{Evidence, Verdict};
use mlx_parity_tensor::Dtype;
use serde::{Deserialize, Serialize};

use super::mutants::MutantReport;
use crate::{case::NamedPrompt, composition::Spelled, metal::Files};

/// Evidence to look for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateCase {
    /// The candidate.
    pub kernel: String,
    /// Dtype of activations.
    pub dtype: Dtype,
    /// Class of shapes.
    pub class: String,
    /// Digest of its sources.
    pub digest: String,
    /// Less of everything.
    pub quick: bool,
    /// What to do.
    pub stage: Stage,
}

/// What a worker does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Stage {
    /// E0 to E6 on the lattice and the probes.
    Trials,
    /// E9.
    Power {
        /// Models on which mutants are screened too, where that is asked.
        screen: Option<Box<ModelTask>>,
    },
    /// E7, and the counter of E6.
    Model(Box<ModelTask>),
    /// E10.
    Speed,
    /// E0 and E2 to E5 of the Metal source, emulated; with its mutants, E9.
    Emulated {
        /// What the compiler needs.
        files: Files,
        /// Whether its mutants are run.
        mutants: bool,
    },
    /// One trial or probe by its name, for a replay by hand.
    Replay {
        /// The trial.
        trial: String,
        /// The bug.
        mutant: Option<String>,
    },
}

/// A model, and how it is to compute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelTask {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub folder: PathBuf,
    /// The composition with the lever off.
    pub base: Spelled,
    /// Texts; the last ids of each are the scored positions.
    pub prompts: Vec<NamedPrompt>,
    /// Scored positions of each.
    pub positions: usize,
}

impl GateCase {
    /// `fused_swiglu/bf16/decode/trials`
    pub fn name(&self) -> String {
        let Self { kernel, dtype, class, stage, .. } = self;
        format!("{kernel}/{dtype}/{class}/{}", stage.name())
    }

    /// The evidence it gives, in order.
    pub fn evidence(&self) -> Vec<Evidence> {
        use Evidence::{
            Engaged, Error, Exactness, Model, Power, Probes, Repeat, Sanity, Speed, Twin,
        };
        match &self.stage {
            Stage::Trials => vec![Sanity, Exactness, Error, Twin, Probes, Repeat, Engaged],
            Stage::Power { .. } => vec![Power],
            Stage::Model(_) => vec![Model],
            Stage::Speed => vec![Speed],
            Stage::Emulated { mutants, .. } => {
                let mut all = vec![Sanity, Error, Twin, Probes, Repeat];
                all.extend(mutants.then_some(Power));
                all
            }
            Stage::Replay { .. } => vec![Sanity, Exactness, Error, Twin, Probes],
        }
    }

    /// Names of its rows.
    pub fn checks(&self) -> Vec<String> {
        self.evidence().iter().map(|evidence| evidence.code().to_owned()).collect()
    }
}

impl Stage {
    /// The last part of a case's name.
    pub fn name(&self) -> String {
        match self {
            Self::Trials => "trials".to_owned(),
            Self::Power { .. } => "power".to_owned(),
            Self::Model(task) => format!("model-{}", task.name),
            Self::Speed => "speed".to_owned(),
            Self::Emulated { .. } => "metal-emulated".to_owned(),
            Self::Replay { trial, .. } => format!("replay/{trial}"),
        }
    }
}

/// What one row of the gate says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateRow {
    /// `E0` to `E10`.
    pub evidence: String,
    /// `held`, `failed`, `missing`, `weak`, `n/a`.
    pub verdict: String,
    /// What was found, in a line.
    pub what: String,
    /// The command that shows it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
    /// The numbers behind it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<String, f64>,
    /// Mutants and what rejected them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mutants: Vec<MutantReport>,
}

impl GateRow {
    /// A row without numbers.
    pub fn new(evidence: Evidence, verdict: Verdict, what: impl Into<String>) -> Self {
        Self {
            evidence: evidence.code().to_owned(),
            verdict: verdict.word().to_owned(),
            what: what.into(),
            replay: None,
            numbers: BTreeMap::new(),
            mutants: Vec::new(),
        }
    }

    /// Its verdict; one that cannot be read is missing.
    pub fn verdict(&self) -> Verdict {
        self.verdict.parse().unwrap_or(Verdict::Missing)
    }
}

/// `mlx-parity case kernel/fused_swiglu/bf16/decode/rows=1 --lever fused_swiglu=mutant:scale_off`
pub fn replay_line(
    kernel: &str,
    dtype: Dtype,
    class: &str,
    trial: &str,
    mutant: Option<&str>,
) -> String {
    let name = format!("kernel/{kernel}/{dtype}/{class}/{trial}");
    let quoted = if name.contains([' ', '(', ')', '*', '[', '\'', '&', ';', '<', '>', '|']) {
        format!("'{name}'")
    } else {
        name
    };
    let lever =
        mutant.map(|mutant| format!(" --lever {kernel}=mutant:{mutant}")).unwrap_or_default();
    format!("mlx-parity case {quoted}{lever}")
}
