//! Which model types are supported: those whose goldens were held, in every lane, on this machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{
    case::Case,
    row::{Outcome, Row, Tier},
    synthetic::Lane,
};

/// What is known of a case, or of all cases of a lane: the worst of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Status {
    /// The golden is committed and its latest recorded run held every check that is meant to hold.
    Held {
        /// How many held.
        checks: usize,
        /// How many failed as `goldens/expectations.toml` says they must.
        expected: usize,
    },
    /// The golden is committed, but no recorded run checked it here.
    NotRun,
    /// The latest recorded run did not hold it.
    Failed {
        /// The first check that failed, and how.
        how: String,
    },
    /// There is no golden that fits this machine and this model.
    NoGolden {
        /// Why.
        why: String,
    },
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { checks, expected: 0 } => write!(f, "held {checks}"),
            Self::Held { checks, expected } => write!(f, "held {checks} + {expected}*"),
            Self::NotRun => f.write_str("not run"),
            Self::Failed { .. } => f.write_str("FAILED"),
            Self::NoGolden { .. } => f.write_str("no golden"),
        }
    }
}

impl Status {
    /// The status of a case with a golden, from the rows of its latest recorded run.
    pub fn of_rows(case: &Case, rows: &[Row]) -> Self {
        let mine: Vec<_> = rows.iter().filter(|row| row.case == case.id).collect();
        if mine.is_empty() {
            return Self::NotRun;
        }
        let is_expected = |row: &&&Row| matches!(row.outcome, Outcome::ExpectedFailure { .. });
        let expected = mine.iter().filter(is_expected).count();
        let failed = |row: &&&Row| row.outcome != Outcome::Held && !is_expected(row);
        if let Some(row) = mine.iter().find(failed) {
            return Self::Failed { how: format!("{} {}", row.id, word(&row.outcome)) };
        }
        if mine.len() < case.checks().len() {
            return Self::NotRun;
        }
        Self::Held { checks: mine.len() - expected, expected }
    }

    /// Both together: the checks add up, else the worse one counts.
    #[must_use]
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (
                Self::Held { checks, expected },
                Self::Held { checks: more, expected: more_expected },
            ) => Self::Held { checks: checks + more, expected: expected + more_expected },
            (a, b) => a.max(b),
        }
    }
}

fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Held | Outcome::ExpectedFailure { .. } => "held".to_owned(),
        Outcome::Differ => "differs".to_owned(),
        Outcome::Error { message } | Outcome::NotRun { message, .. } => message.clone(),
        Outcome::Crashed { how } => format!("crashed: {how}"),
        Outcome::UnexpectedPass { .. } => "held against expectation".to_owned(),
    }
}

/// What is known of one `model_type`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeSupport {
    /// The type.
    pub model_type: String,
    /// The rungs of the engine's ladder it may stand on, `dedicated`, `universal`.
    pub rungs: Vec<String>,
    /// The synthetic models that have it.
    pub models: Vec<String>,
    /// The tier of their cases; none without cases.
    pub tier: Option<Tier>,
    /// The status of each lane.
    pub lanes: BTreeMap<Lane, Status>,
}

impl TypeSupport {
    /// The worst of its lanes; a type that the engine does not load is never held.
    pub fn status(&self) -> Status {
        let unknown = || Status::Failed { how: "the engine loads no such type".into() };
        let lanes = self.lanes.values().cloned().chain(self.rungs.is_empty().then(unknown));
        lanes.reduce(Status::and).unwrap_or_else(|| Status::NoGolden { why: NO_CASE.into() })
    }
}

const NO_CASE: &str = "no case";

/// A synthetic model as this table needs it.
#[derive(Debug, Clone)]
pub struct SyntheticModel {
    /// Its folder's name.
    pub name: String,
    /// The `model_type` of its config.
    pub model_type: String,
}

/// The table: one entry for each type that the engine loads or a synthetic model has, by name.
///
/// Every case of every synthetic model of the type counts that asks for no composition of its own: packed
/// caches, and faults of the reference, are no part of a type. A lane without any case has no golden.
/// `rungs` tells where on the engine's ladder a type stands.
pub fn table(
    types: &[&str],
    models: &[SyntheticModel],
    cases: &[Case],
    rungs: &dyn Fn(&str) -> Vec<String>,
    status: &mut dyn FnMut(&Case) -> Status,
) -> Vec<TypeSupport> {
    let modelled = models.iter().map(|model| model.model_type.as_str());
    let all: BTreeSet<_> = types.iter().copied().chain(modelled).collect();
    let entry = |model_type| support(model_type, rungs(model_type), models, cases, status);
    all.into_iter().map(entry).collect()
}

fn support(
    model_type: &str,
    rungs: Vec<String>,
    models: &[SyntheticModel],
    cases: &[Case],
    status: &mut dyn FnMut(&Case) -> Status,
) -> TypeSupport {
    let names = models.iter().filter(|model| model.model_type == model_type);
    let names: Vec<_> = names.map(|model| model.name.clone()).collect();
    let mut tier = None;
    let mut lanes = BTreeMap::new();
    for lane in Lane::ALL {
        let of_type = |case: &&Case| {
            let is_model = |name: &String| case.model() == Some(&format!("{name}-{}", lane.name()));
            case.is_of_the_model() && names.iter().any(is_model)
        };
        let of_type: Vec<_> = cases.iter().filter(of_type).collect();
        tier = tier.or(of_type.first().map(|case| case.tier));
        let none =
            || Status::NoGolden { why: format!("{model_type}: {NO_CASE} in {}", lane.name()) };
        let worst = of_type.into_iter().map(&mut *status).reduce(Status::and);
        lanes.insert(lane, worst.unwrap_or_else(none));
    }
    TypeSupport { model_type: model_type.to_owned(), rungs, models: names, tier, lanes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        case::{DecodeFrom, Kind, Prompt, Replay},
        row::{NotRunKind, ROW_SCHEMA},
    };

    fn case(model: &str) -> Case {
        Case {
            id: format!("l1/{model}/window"),
            tier: Tier::L1,
            why: "test".into(),
            kind: Kind::Replay(Replay {
                model: model.into(),
                oracle: "mlx-lm".into(),
                prompt: Prompt::Ids(vec![1]),
                decode: 1,
                decode_from: DecodeFrom::Greedy,
                prefill_step: 1,
                degenerate_because: None,
                adapter: None,
                composition: None,
                not_frozen: None,
            }),
        }
    }

    fn row(case: &Case, id: &str, outcome: Outcome) -> Row {
        Row {
            schema: ROW_SCHEMA,
            id: id.to_owned(),
            case: case.id.clone(),
            tier: Tier::L1,
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
            notes: Vec::new(),
            elapsed_ms: 0.0,
            engine_ms: 0.0,
        }
    }

    fn model(name: &str, model_type: &str) -> SyntheticModel {
        SyntheticModel { name: name.into(), model_type: model_type.into() }
    }

    fn held(_: &Case) -> Status {
        Status::Held { checks: 2, expected: 0 }
    }

    fn rungs(model_type: &str) -> Vec<String> {
        (model_type == "toy").then(|| "universal".to_owned()).into_iter().collect()
    }

    #[test]
    fn rows_make_the_status_and_only_all_of_them_hold() {
        let case = case("toy-f32");
        let ids = case.checks();
        let good: Vec<_> = ids.iter().map(|id| row(&case, id, Outcome::Held)).collect();
        assert_eq!(Status::of_rows(&case, &good), Status::Held { checks: 2, expected: 0 });
        assert_eq!(Status::of_rows(&case, &good[..1]), Status::NotRun);
        assert_eq!(Status::of_rows(&case, &[]), Status::NotRun);
        let deviation = Outcome::ExpectedFailure {
            reason: "x".into(),
            fault: "x".into(),
            upstream: "x".into(),
        };
        let rows = [good[0].clone(), row(&case, &ids[1], deviation)];
        assert_eq!(Status::of_rows(&case, &rows).to_string(), "held 1 + 1*");
        let not_run =
            Outcome::NotRun { kind: NotRunKind::GoldenUnfit, message: "stale golden".into() };
        for bad in [Outcome::Differ, not_run, Outcome::Crashed { how: "SIGSEGV".into() }] {
            let rows = [good[0].clone(), row(&case, &ids[1], bad)];
            assert!(matches!(Status::of_rows(&case, &rows), Status::Failed { .. }));
        }
    }

    #[test]
    fn a_type_is_as_good_as_its_worst_lane_of_its_worst_model() {
        let models = [model("toy", "toy"), model("toy-two", "toy"), model("other", "other")];
        let lanes = ["f32", "bf16", "4bit"];
        let mut cases: Vec<_> = lanes
            .iter()
            .flat_map(|l| [format!("toy-{l}"), format!("toy-two-{l}")])
            .map(|m| case(&m))
            .collect();
        let all = table(&["toy"], &models, &cases, &rungs, &mut held);
        let names: Vec<_> = all.iter().map(|entry| entry.model_type.as_str()).collect();
        assert_eq!(names, ["other", "toy"], "a type the engine does not load is listed too");
        assert!(matches!(all[0].status(), Status::NoGolden { .. }));
        assert_eq!(all[1].status(), Status::Held { checks: 12, expected: 0 });
        assert_eq!((all[1].tier, all[1].models.len()), (Some(Tier::L1), 2));
        assert!(all[0].rungs.is_empty() && all[1].rungs == ["universal"]);

        let mut one_failed = |case: &Case| match case.id.as_str() {
            "l1/toy-two-bf16/window" => Status::Failed { how: "x".into() },
            _ => held(case),
        };
        let failed = table(&["toy"], &models, &cases, &rungs, &mut one_failed).remove(1);
        assert_eq!(failed.lanes[&Lane::F32], Status::Held { checks: 4, expected: 0 });
        assert_eq!(failed.status(), Status::Failed { how: "x".into() });

        let mut packed = case("toy-f32");
        packed.id = "l2/toy-f32/kv8".to_owned();
        if let Kind::Replay(replay) = &mut packed.kind {
            replay.composition = Some(toml::from_str("lora = 'uncast'").unwrap());
        }
        cases.push(packed);
        let mut no_packed = |case: &Case| {
            if case.id.starts_with("l2/") {
                return Status::NoGolden { why: "x".into() };
            }
            held(case)
        };
        let all = table(&["toy"], &models, &cases, &rungs, &mut no_packed).remove(1);
        assert_eq!(all.status(), Status::Held { checks: 12, expected: 0 });

        cases.retain(|case| case.id != "l1/toy-4bit/window");
        let part = table(&["toy"], &models, &cases, &rungs, &mut held).remove(1);
        assert_eq!(part.lanes[&Lane::FourBit], Status::Held { checks: 2, expected: 0 });
        cases.retain(|case| !case.id.contains("4bit"));
        let missing = table(&["toy"], &models, &cases, &rungs, &mut held).remove(1);
        assert!(matches!(missing.status(), Status::NoGolden { .. }));
        let nothing = table(&["unknown"], &[], &cases, &rungs, &mut held).remove(0);
        assert!(matches!(nothing.status(), Status::NoGolden { .. }));
    }
}
