//! Evidence, and what follows from it.

use std::fmt;
use std::str::FromStr;

/// The kinds of evidence, as the design numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// Shape, dtype and class; inputs and guard regions untouched; outputs fully written.
    Sanity,
    /// Bits of the baseline on the whole lattice, for those that claim so.
    Exactness,
    /// Errors against float64 beside the baseline's.
    Error,
    /// The float32 kernel beside float64.
    Twin,
    /// Calls that show one kind of bug each.
    Probes,
    /// The same bits again and again, or within the declared spread.
    Repeat,
    /// The kernel ran, and was not the baseline.
    Engaged,
    /// Whole models.
    Model,
    /// Gradients.
    Vjp,
    /// Wrong variants are rejected.
    Power,
    /// Faster than the baseline, and not faster than the machine.
    Speed,
}

impl Evidence {
    /// Every kind, in order: the one at `n` is `En`.
    pub const ALL: [Self; 11] = [
        Self::Sanity,
        Self::Exactness,
        Self::Error,
        Self::Twin,
        Self::Probes,
        Self::Repeat,
        Self::Engaged,
        Self::Model,
        Self::Vjp,
        Self::Power,
        Self::Speed,
    ];

    /// `E0` to `E10`.
    pub const fn code(self) -> &'static str {
        ["E0", "E1", "E2", "E3", "E4", "E5", "E6", "E7", "E8", "E9", "E10"][self as usize]
    }

    /// The word beside the code on a decision card.
    pub const fn word(self) -> &'static str {
        [
            "sanity", "exact", "error", "f32 twin", "probes", "repeat", "engaged", "model", "vjp",
            "power", "speed",
        ][self as usize]
    }

    /// Whether failing this is a wrong kernel, not one that lacks evidence.
    pub const fn rejects(self) -> bool {
        !matches!(self, Self::Model | Self::Power | Self::Speed)
    }
}

/// What became of one kind of evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Held,
    /// It was looked for, and the opposite found.
    Failed,
    /// It was not looked for, or could not be.
    Missing,
    /// It was looked for, and what was found does not tell.
    Weak,
    /// It does not apply to this kernel.
    NotApplicable,
}

impl Verdict {
    const ALL: [Self; 5] =
        [Self::Held, Self::Failed, Self::Missing, Self::Weak, Self::NotApplicable];

    /// The word in the ledger and on cards.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Failed => "failed",
            Self::Missing => "missing",
            Self::Weak => "weak",
            Self::NotApplicable => "n/a",
        }
    }

    /// Whether it stands in no promotion's way.
    pub const fn holds(self) -> bool {
        matches!(self, Self::Held | Self::NotApplicable)
    }
}

/// One kind of evidence: what became of it, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The kind.
    pub evidence: Evidence,
    /// What became of it.
    pub verdict: Verdict,
    /// The numbers, in words.
    pub what: String,
}

impl Finding {
    /// A finding.
    pub fn new(evidence: Evidence, verdict: Verdict, what: impl Into<String>) -> Self {
        Self { evidence, verdict, what: what.into() }
    }
}

/// `held: 24 shapes, guards intact`
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.verdict.word(), self.what)
    }
}

impl FromStr for Verdict {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|verdict| verdict.word() == text).ok_or_else(|| {
            let words = Self::ALL.map(Self::word).join(", ");
            format!("unknown verdict `{text}`, wanted one of {words}")
        })
    }
}

/// What follows from the evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// On by default.
    Promote,
    /// Off, for want of evidence.
    Hold,
    /// Off, for it is wrong.
    Reject,
}

impl Decision {
    const ALL: [Self; 3] = [Self::Promote, Self::Hold, Self::Reject];

    /// The word in the ledger.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Promote => "promote",
            Self::Hold => "hold",
            Self::Reject => "reject",
        }
    }
}

impl FromStr for Decision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|decision| decision.word() == text).ok_or_else(|| {
            let words = Self::ALL.map(Self::word).join(", ");
            format!("unknown decision `{text}`, wanted one of {words}")
        })
    }
}

/// Reject where evidence of a wrong kernel was found, promote where every kind of evidence holds, hold otherwise.
pub fn decide(findings: &[Finding]) -> Decision {
    let wrong = |of: &Finding| of.verdict == Verdict::Failed && of.evidence.rejects();
    if findings.iter().any(wrong) {
        return Decision::Reject;
    }
    let holds = |kind: &Evidence| {
        let mut of_kind = findings.iter().filter(|finding| finding.evidence == *kind).peekable();
        of_kind.peek().is_some() && of_kind.all(|finding| finding.verdict.holds())
    };
    if Evidence::ALL.iter().all(holds) { Decision::Promote } else { Decision::Hold }
}
