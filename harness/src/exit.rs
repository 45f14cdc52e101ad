//! Exit codes of the `mlx-parity` binary: exhaustive, and part of its contract.

use crate::row::{NotRunKind, Outcome, Row};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCode {
    /// Everything that ran held.
    Held,
    /// An unexpected fault of the harness itself.
    Internal,
    /// A command line, case file or request that cannot be honoured as written.
    Usage,
    /// No check was selected, or none of those selected ran.
    NothingRan,
    /// At least one check differed, failed with an error, or passed although a failure is on file.
    Mismatch,
    /// A golden is missing, stale, damaged or refused.
    Golden,
    /// The oracle could not be asked.
    Oracle,
    /// A worker crashed or ran past its time limit.
    Crashed,
}

impl ExitCode {
    /// Every code, for documentation and tests.
    pub const ALL: [Self; 8] = [
        Self::Held,
        Self::Internal,
        Self::Usage,
        Self::NothingRan,
        Self::Mismatch,
        Self::Golden,
        Self::Oracle,
        Self::Crashed,
    ];

    /// The number handed to the operating system.
    pub const fn code(self) -> u8 {
        match self {
            Self::Held => 0,
            Self::Internal => 1,
            Self::Usage => 2,
            Self::NothingRan => 4,
            Self::Mismatch => 100,
            Self::Golden => 101,
            Self::Oracle => 102,
            Self::Crashed => 103,
        }
    }

    /// The meaning, in the words of the documentation.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Held => "all that ran held",
            Self::Internal => "internal error of the harness",
            Self::Usage => "usage: the request cannot be honoured as written",
            Self::NothingRan => "nothing ran",
            Self::Mismatch => "mismatch",
            Self::Golden => "golden missing or stale",
            Self::Oracle => "oracle unavailable",
            Self::Crashed => "worker crashed",
        }
    }

    /// The verdict on a finished run: the gravest row decides, crashes first.
    pub fn of_rows<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        let mut ran = false;
        let mut worst = Self::Held;
        for row in rows {
            let (row_ran, code) = Self::of_outcome(&row.outcome);
            ran |= row_ran;
            if code.gravity() > worst.gravity() {
                worst = code;
            }
        }
        if worst == Self::Held && !ran { Self::NothingRan } else { worst }
    }

    fn of_outcome(outcome: &Outcome) -> (bool, Self) {
        match outcome {
            Outcome::Held | Outcome::ExpectedFailure { .. } => (true, Self::Held),
            Outcome::Differ | Outcome::Error { .. } | Outcome::UnexpectedPass { .. } => {
                (true, Self::Mismatch)
            }
            Outcome::Crashed { .. } => (true, Self::Crashed),
            Outcome::NotRun { kind, .. } => (
                false,
                match kind {
                    // The row that interrupted the case decides, not those it left out.
                    NotRunKind::ModelNotProvisioned
                    | NotRunKind::Unsupported
                    | NotRunKind::Interrupted => Self::Held,
                    NotRunKind::GoldenMissing | NotRunKind::GoldenUnfit => Self::Golden,
                    NotRunKind::OracleUnavailable => Self::Oracle,
                },
            ),
        }
    }

    const fn gravity(self) -> u8 {
        match self {
            Self::Held => 0,
            Self::NothingRan => 1,
            Self::Oracle => 2,
            Self::Golden => 3,
            Self::Mismatch => 4,
            Self::Crashed => 5,
            Self::Usage => 6,
            Self::Internal => 7,
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.code())
    }
}
