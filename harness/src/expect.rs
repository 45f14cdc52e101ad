//! Expected failures are data: `goldens/expectations.toml`. One that passes fails the run.

use std::{fs, path::Path};

use serde::Deserialize;

use crate::{
    case::CaseError,
    fingerprint::Fingerprint,
    row::{Outcome, Row},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFile {
    #[serde(default)]
    expect: Vec<Expectation>,
}

/// One failure that is known and filed upstream.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Row ids; `*` stands for any text, `{a|b}` for either.
    pub checks: Vec<String>,
    /// Backend it holds on, `cpu`.
    pub backend: String,
    /// MLX version it holds for.
    pub mlx: String,
    /// The kind of fault: `accumulator width`, `special values`, `NaN policy`, `integer semantics` …
    pub kind: String,
    /// Why the check must fail.
    pub reason: String,
    /// Part of the message with which the engine refuses the check; without it the check must run and
    /// differ.
    pub refusal: Option<String>,
    /// Where it is filed: `mlx#4274`, `mlx-lm PR#1903`.
    pub upstream: String,
}

impl Expectation {
    fn covers(&self, id: &str) -> bool {
        self.checks.iter().any(|pattern| fits(pattern, id))
    }

    /// Whether a failure is the one on file.
    fn meets(&self, outcome: &Outcome) -> bool {
        match (outcome, &self.refusal) {
            (Outcome::Differ, None) => true,
            (Outcome::Error { message }, Some(refusal)) => message.contains(refusal.as_str()),
            _ => false,
        }
    }

    fn applies(&self, here: &Fingerprint) -> bool {
        self.backend == here.backend && self.mlx == here.mlx
    }
}

/// Whether a pattern of `*` and `{a|b}` fits the whole text.
fn fits(pattern: &str, text: &str) -> bool {
    // Most patterns begin with the name of one op and most ids with another: told apart at once.
    let literal = pattern.find(['*', '{']).unwrap_or(pattern.len());
    if !text.starts_with(&pattern[..literal]) {
        return false;
    }
    if let Some((start, rest)) = pattern.split_once('{')
        && !start.contains('*')
        && let Some((choices, end)) = rest.split_once('}')
    {
        let rest = text.strip_prefix(start);
        let one = |choice: &str| rest.is_some_and(|rest| fits(&format!("{choice}{end}"), rest));
        return choices.split('|').any(one);
    }
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, end)) => text.strip_prefix(start).is_some_and(|rest| {
            let mut tails = rest.char_indices().map(|(at, _)| &rest[at..]);
            tails.any(|tail| fits(end, tail)) || fits(end, "")
        }),
    }
}

/// The expectations that hold on this machine.
#[derive(Debug, Clone, Default)]
pub struct Expectations(Vec<Expectation>);

impl Expectations {
    /// Reads the file; a missing file holds none. `checks` are all row ids there are, of every case:
    /// an entry that covers none of them is out of date and refused.
    pub fn load(path: &Path, here: &Fingerprint, checks: &[String]) -> Result<Self, CaseError> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = fs::read_to_string(path)
            .map_err(|source| CaseError::Read { path: path.into(), source })?;
        let wire: WireFile =
            toml::from_str(&text).map_err(|error| CaseError::parse(path, &error))?;
        for pattern in wire.expect.iter().flat_map(|entry| &entry.checks) {
            if !checks.iter().any(|id| fits(pattern, id)) {
                return Err(CaseError::Invalid {
                    path: path.into(),
                    name: pattern.clone(),
                    message: "no check has this id; delete the entry".into(),
                });
            }
        }
        Ok(Self(wire.expect.into_iter().filter(|entry| entry.applies(here)).collect()))
    }

    /// Whether a failure of this check is on file.
    pub fn expects(&self, id: &str) -> bool {
        self.0.iter().any(|entry| entry.covers(id))
    }

    /// The row in the light of what is expected of it.
    #[must_use]
    pub fn judge(&self, mut row: Row) -> Row {
        let Some(entry) = self.0.iter().find(|entry| entry.covers(&row.id)) else { return row };
        row.outcome = match row.outcome {
            Outcome::Held => Outcome::UnexpectedPass { reason: entry.reason.clone() },
            found if entry.meets(&found) => Outcome::ExpectedFailure {
                reason: entry.reason.clone(),
                fault: entry.kind.clone(),
                upstream: entry.upstream.clone(),
            },
            other => other,
        };
        row
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::row::{ROW_SCHEMA, Tier};

    const FILE: &str = r#"
        [[expect]]
        checks = ["ops/argmax/*"]
        backend = "cpu"
        mlx = "0.32.2"
        kind = "NaN policy"
        reason = "NaN is skipped"
        upstream = "mlx#4274"
    "#;

    fn here(backend: &str) -> Fingerprint {
        Fingerprint {
            mlx: "0.32.2".into(),
            backend: backend.into(),
            arch: "x86_64".into(),
            os: "linux".into(),
            chip: "x".into(),
            env: BTreeMap::new(),
        }
    }

    fn load(text: &str, backend: &str) -> Result<Expectations, CaseError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        Expectations::load(file.path(), &here(backend), &["ops/argmax/nan".into()])
    }

    fn row(id: &str, outcome: Outcome) -> Row {
        Row {
            schema: ROW_SCHEMA,
            id: id.into(),
            case: id.into(),
            tier: Tier::Ops,
            subject: String::new(),
            dtype: String::new(),
            oracle: String::new(),
            outcome,
            report: None,
            tolerance: None,
            envelope: None,
            gate: None,
            gradient: None,
            convention: None,
            composition: None,
            notes: vec![],
            elapsed_ms: 0.0,
            engine_ms: 0.0,
        }
    }

    #[test]
    fn an_expected_failure_holds_and_its_passing_fails() {
        let expectations = load(FILE, "cpu").unwrap();
        let differ = expectations.judge(row("ops/argmax/nan", Outcome::Differ));
        assert!(matches!(differ.outcome, Outcome::ExpectedFailure { .. }) && !differ.failed());
        let pass = expectations.judge(row("ops/argmax/nan", Outcome::Held));
        assert!(matches!(pass.outcome, Outcome::UnexpectedPass { .. }) && pass.failed());
        let other = expectations.judge(row("ops/argmin/nan", Outcome::Differ));
        assert_eq!(other.outcome, Outcome::Differ);
    }

    #[rstest::rstest]
    #[case("ops/sum/*", "ops/sum/f16/ones", true)]
    #[case("ops/*/{f16|bf16}/ones", "ops/sum/bf16/ones", true)]
    #[case("ops/*/{f16|bf16}/ones", "ops/sum/f32/ones", false)]
    #[case("ops/{sum|mean}/*/ones", "ops/mean/x/f16/ones", true)]
    #[case("ops/sum/*/ones", "ops/sum/f16/ones/more", false)]
    #[case("ops/sum", "ops/sum", true)]
    #[case("ops/sum", "ops/summary", false)]
    fn patterns_fit_whole_ids(#[case] pattern: &str, #[case] id: &str, #[case] wanted: bool) {
        assert_eq!(fits(pattern, id), wanted);
    }

    #[test]
    fn a_refusal_is_expected_only_in_its_own_words() {
        let file = FILE.replace("upstream", "refusal = 'only float32'\nupstream");
        let judged = |outcome| load(&file, "cpu").unwrap().judge(row("ops/argmax/nan", outcome));
        let error = |message: &str| Outcome::Error { message: message.into() };
        let right = judged(error("mlx op eval: only float32 here"));
        assert!(matches!(right.outcome, Outcome::ExpectedFailure { .. }));
        assert_eq!(judged(error("out of memory")).outcome, error("out of memory"));
        assert_eq!(judged(Outcome::Differ).outcome, Outcome::Differ);
        let unasked = load(FILE, "cpu").unwrap().judge(row("ops/argmax/nan", error("x")));
        assert_eq!(unasked.outcome, error("x"));
    }

    #[test]
    fn a_crash_is_never_an_expected_failure() {
        let crashed = Outcome::Crashed { how: "SIGSEGV".into() };
        let row = load(FILE, "cpu").unwrap().judge(row("ops/argmax/nan", crashed.clone()));
        assert_eq!(row.outcome, crashed);
    }

    #[test]
    fn another_backend_expects_nothing() {
        let judged = load(FILE, "metal").unwrap().judge(row("ops/argmax/nan", Outcome::Differ));
        assert_eq!(judged.outcome, Outcome::Differ);
    }

    #[test]
    fn an_entry_without_a_check_is_refused() {
        let error = load(&FILE.replace("argmax", "argmux"), "cpu").unwrap_err().to_string();
        assert!(error.contains("ops/argmux/*") && error.contains("delete the entry"), "{error}");
    }
}
