//! One row is the outcome of one check. The on-disk form is documented in `reports/FORMAT.md`.

use serde::{Deserialize, Serialize};

use crate::{
    compare::{BitReport, ToleranceReport},
    envelope::EnvelopeReport,
    gate::GateRow,
    gradcheck::GradientReport,
};

/// Version of the row format; a reader refuses any other.
pub const ROW_SCHEMA: u32 = 1;

/// What a check is held to (design §1, §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// Single ops against the float64 reference.
    Ops,
    /// Bit-exact against mlx-lm.
    L1,
    /// Bit-exact against mlx-optiq.
    L2,
    /// Originals, inside an evidence envelope.
    L3,
    /// Gradients against finite differences.
    Vjp,
    /// The same answer along another path.
    Meta,
    /// Metal kernels, emulated on the CPU.
    Metal,
    /// Evidence about fused kernels.
    Gate,
}

impl Tier {
    /// Every tier in the order reports use.
    pub const ALL: [Self; 8] =
        [Self::Ops, Self::L1, Self::L2, Self::L3, Self::Vjp, Self::Meta, Self::Metal, Self::Gate];

    /// The name used in ids and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ops => "ops",
            Self::L1 => "l1",
            Self::L2 => "l2",
            Self::L3 => "l3",
            Self::Vjp => "vjp",
            Self::Meta => "meta",
            Self::Metal => "metal",
            Self::Gate => "gate",
        }
    }

    /// The name shown in tables.
    pub const fn label(self) -> &'static str {
        match self {
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::L3 => "L3",
            other => other.name(),
        }
    }
}

impl std::str::FromStr for Tier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|tier| tier.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|tier| tier.name()).collect();
            format!("unknown tier `{text}`, wanted one of {}", names.join(", "))
        })
    }
}

/// Before the name of the tensor in the note of a row that compares several.
pub const FIRST_IN: &str = "differs first in ";

/// Before the name of a deliberate fault in a row's notes.
pub const FAULT: &str = "deliberate fault: ";

/// Why a check did not run. Never a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NotRunKind {
    /// The weights are not on this machine.
    ModelNotProvisioned,
    /// This build or backend cannot run the subject.
    Unsupported,
    /// No golden fits this machine and none could be frozen.
    GoldenMissing,
    /// A golden is there, but damaged, or frozen from other weights or another composition.
    GoldenUnfit,
    /// The oracle is not installed or died.
    OracleUnavailable,
    /// An earlier check of the same case failed in a way that ended the case.
    Interrupted,
}

/// How a check ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Outcome {
    /// Within its bound (for L1 and L2: the same bits).
    Held,
    /// Outside its bound.
    Differ,
    /// The subject refused or failed.
    Error {
        /// What it said.
        message: String,
    },
    /// Not run, and why.
    NotRun {
        /// The class of reason; decides the exit code.
        #[serde(rename = "why")]
        kind: NotRunKind,
        /// The reason, with the way to mend it.
        message: String,
    },
    /// The worker died or was killed while this case ran.
    Crashed {
        /// `SIGSEGV`, `exit 3`, `no answer in 120 s` …
        how: String,
    },
    /// It failed, and `goldens/expectations.toml` says why it must.
    ExpectedFailure {
        /// The reason on file.
        reason: String,
        /// The kind of fault: `accumulator width`, `NaN policy` …
        fault: String,
        /// Upstream reference (issue, pull request).
        upstream: String,
    },
    /// It held although a failure is on file: the file is out of date.
    UnexpectedPass {
        /// The reason on file.
        reason: String,
    },
}

/// One outcome of one check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// [`ROW_SCHEMA`].
    pub schema: u32,
    /// `case` plus the check within it, `l1/glassllm/f32/story/decode/step-003`.
    pub id: String,
    /// The case this check belongs to.
    pub case: String,
    /// The tier of the case.
    pub tier: Tier,
    /// What is checked, as grouped in tables (model, op, kernel).
    pub subject: String,
    /// Numeric format of the subject as shown in tables (`f32`, `4-bit g32`).
    pub dtype: String,
    /// Who says what is right.
    pub oracle: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The comparison, where one was made and bits differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<BitReport>,
    /// The values against a float64 reference and their bound, for ops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<ToleranceReport>,
    /// The distance from a frozen trajectory and its bounds, for envelopes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope: Option<EnvelopeReport>,
    /// What the gate found, for its evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateRow>,
    /// The gradients beside finite differences, for tier vjp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient: Option<GradientReport>,
    /// The known wrong convention that the answer follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convention: Option<String>,
    /// The composition that the case asks for, where it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub composition: Option<String>,
    /// Remarks for people: which golden answered, which fault was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Wall time of the check in milliseconds.
    pub elapsed_ms: f64,
    /// The part of `elapsed_ms` spent inside the engine.
    pub engine_ms: f64,
}

impl Row {
    /// Did the check run to a verdict?
    pub fn ran(&self) -> bool {
        !matches!(self.outcome, Outcome::NotRun { .. })
    }

    /// Is this row a reason to fail the run?
    pub fn failed(&self) -> bool {
        match &self.outcome {
            Outcome::Held | Outcome::ExpectedFailure { .. } => false,
            Outcome::NotRun { kind, .. } => !matches!(
                kind,
                NotRunKind::ModelNotProvisioned | NotRunKind::Unsupported | NotRunKind::Interrupted
            ),
            Outcome::Differ
            | Outcome::Error { .. }
            | Outcome::Crashed { .. }
            | Outcome::UnexpectedPass { .. } => true,
        }
    }

    /// The row without its times: what two runs of the same plan must agree on.
    #[must_use]
    pub fn timeless(mut self) -> Self {
        self.elapsed_ms = 0.0;
        self.engine_ms = 0.0;
        self
    }
}
