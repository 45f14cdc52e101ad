//! How far each op may be from the reference: `goldens/tolerances.toml`.
//!
//! Lines go from the general to the particular, and the last one that fits a call binds it. A line is
//! either a default, which says where its number comes from, or an exception, which says why it is
//! one. An exception must be needed: one under which no check needs more than the line before it would
//! allow is refused after the run.

use std::path::{Path, PathBuf};

use mlx_parity_oracles::ops::{Family, Op};
use mlx_parity_tensor::Dtype;
use serde::{Deserialize, Serialize};

use super::{Call, Generator};
use crate::{
    case::{Case, CaseError, Kind},
    compare::Zeros,
};

/// The bound on one call.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// Greatest error, in units of the output dtype at the condition.
    pub units: f64,
    /// Whether the sign of a zero counts.
    pub zeros: Zeros,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFile {
    #[serde(default)]
    default: Vec<WireLine>,
    #[serde(default)]
    except: Vec<WireLine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WireLine {
    #[serde(default)]
    families: Vec<String>,
    #[serde(default)]
    ops: Vec<String>,
    #[serde(default)]
    dtypes: Vec<Dtype>,
    #[serde(default)]
    generators: Vec<Generator>,
    backend: Option<String>,
    units: f64,
    zeros: Option<Zeros>,
    source: Option<String>,
    reason: Option<String>,
}

/// One line: which calls it fits, and what it allows them. Empty lists fit everything.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    families: Vec<Family>,
    ops: Vec<Op>,
    dtypes: Vec<Dtype>,
    generators: Vec<Generator>,
    backend: Option<String>,
    units: f64,
    zeros: Option<Zeros>,
    exception: bool,
    /// As the file has it, for messages.
    label: String,
}

/// The table, for one backend.
#[derive(Debug, Clone, PartialEq)]
pub struct Tolerances {
    path: PathBuf,
    lines: Vec<Line>,
}

impl Tolerances {
    /// Reads the file; keeps the lines of this backend.
    pub fn load(path: &Path, backend: &str) -> Result<Self, CaseError> {
        let wire: WireFile = crate::case::read_toml(path)?;
        let defaults = wire.default.iter().map(|line| validate(path, line, false));
        let exceptions = wire.except.iter().map(|line| validate(path, line, true));
        let mut lines = defaults.chain(exceptions).collect::<Result<Vec<_>, _>>()?;
        lines.retain(|line| line.backend.as_deref().is_none_or(|wanted| wanted == backend));
        Ok(Self { path: path.into(), lines })
    }

    /// The bound on a call, or what is missing.
    pub fn bound(&self, call: &Call) -> Result<Bound, CaseError> {
        let fitting = || self.lines.iter().rev().filter(|line| line.fits(call));
        let units = fitting().next().map(|line| line.units);
        let zeros = fitting().find_map(|line| line.zeros);
        match (units, zeros) {
            (Some(units), Some(zeros)) => Ok(Bound { units, zeros }),
            _ => Err(self.invalid(
                &format!("{}/{}", call.op, call.dtype),
                "no line gives `units` and `zeros` for it; add a default".to_owned(),
            )),
        }
    }

    /// Refuses a line that fits no call of any case.
    pub fn check_used(&self, cases: &[Case]) -> Result<(), CaseError> {
        let calls: Vec<Call> = cases.iter().flat_map(calls).map(|(_, call)| call).collect();
        for line in self.lines.iter().filter(|line| line.exception) {
            if !calls.iter().any(|call| line.fits(call)) {
                let message = "no check is bound by it; delete the line".to_owned();
                return Err(self.invalid(&line.label, message));
            }
        }
        Ok(())
    }

    /// The exceptions that loosen nothing: every check they bind holds under the line before.
    /// `needs` gives the units that each check that held needed; an exception with a check that is
    /// not among them, because it did not run, is not judged.
    pub fn idle(&self, cases: &[Case], needs: &dyn Fn(&str) -> Need) -> Vec<String> {
        let calls: Vec<(String, Call)> = cases.iter().flat_map(calls).collect();
        let exceptions = self.lines.iter().enumerate().filter(|(_, line)| line.exception);
        exceptions.filter_map(|(at, line)| self.complaint(at, line, &calls, needs)).collect()
    }

    fn complaint(
        &self,
        at: usize,
        line: &Line,
        calls: &[(String, Call)],
        needs: &dyn Fn(&str) -> Need,
    ) -> Option<String> {
        let mut most = 0.0;
        let mut allowed: f64 = 0.0;
        for (id, call) in calls.iter().filter(|(_, call)| self.binds(at, call)) {
            let before = self.lines[..at].iter().rev().find(|line| line.fits(call))?.units;
            match needs(id) {
                Need::Unknown => return None,
                Need::Units(units) if units > before => return None,
                Need::Units(units) if units > most => most = units,
                Need::Other | Need::Units(_) => {}
            }
            allowed = if before > allowed { before } else { allowed };
        }
        // A line that tightens needs no check to lean on it.
        (line.units > allowed).then(|| {
            format!(
                "{}: the line for {} allows {} units, but its checks need at most {most:.3} and \
                 hold under {allowed}; delete it",
                self.path.display(),
                line.label,
                line.units
            )
        })
    }

    /// Whether this line is the last that fits the call.
    fn binds(&self, at: usize, call: &Call) -> bool {
        self.lines.iter().rposition(|line| line.fits(call)) == Some(at)
    }

    fn invalid(&self, name: &str, message: String) -> CaseError {
        CaseError::Invalid { path: self.path.clone(), name: name.to_owned(), message }
    }
}

/// What a check needed of its bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Need {
    /// It did not run.
    Unknown,
    /// It failed, or gave no number.
    Other,
    /// It held, and this many units are the least that let it.
    Units(f64),
}

fn calls(case: &Case) -> Vec<(String, Call)> {
    let Kind::Op(op) = &case.kind else { return Vec::new() };
    op.calls().into_iter().map(|call| (format!("{}/{}", case.id, call.name()), call)).collect()
}

impl Line {
    fn fits(&self, call: &Call) -> bool {
        let within = |empty: bool, found: bool| empty || found;
        within(self.families.is_empty(), self.families.contains(&call.op.info().family))
            && within(self.ops.is_empty(), self.ops.contains(&call.op))
            && within(self.dtypes.is_empty(), self.dtypes.contains(&call.dtype))
            && within(self.generators.is_empty(), self.generators.contains(&call.generator))
    }
}

fn validate(path: &Path, wire: &WireLine, exception: bool) -> Result<Line, CaseError> {
    let label = label(wire);
    let invalid =
        |message: String| CaseError::Invalid { path: path.into(), name: label.clone(), message };
    let said = if exception { &wire.reason } else { &wire.source };
    let missing = if exception { "reason" } else { "source" };
    if said.as_ref().is_none_or(|text| text.trim().is_empty()) {
        return Err(invalid(format!(
            "`{missing}` is missing: say where {} comes from",
            wire.units
        )));
    }
    if !(wire.units >= 0.0 && wire.units.is_finite()) {
        return Err(invalid(format!(
            "units = {}, wanted a number that is not negative",
            wire.units
        )));
    }
    let families = wire.families.iter().map(|name| {
        family(name).ok_or_else(|| invalid(format!("`{name}` is not a family of ops")))
    });
    let ops = wire.ops.iter().map(|name| {
        Op::parse(name).ok_or_else(|| invalid(format!("`{name}` is not an op of the table")))
    });
    Ok(Line {
        families: families.collect::<Result<_, _>>()?,
        ops: ops.collect::<Result<_, _>>()?,
        dtypes: wire.dtypes.clone(),
        generators: wire.generators.clone(),
        backend: wire.backend.clone(),
        units: wire.units,
        zeros: wire.zeros,
        exception,
        label: label.clone(),
    })
}

fn label(wire: &WireLine) -> String {
    let dtypes = wire.dtypes.iter().map(|dtype| dtype.name().to_owned());
    let generators = wire.generators.iter().map(|generator| generator.name().to_owned());
    let names = wire.families.iter().chain(&wire.ops).cloned();
    let parts: Vec<_> = names.chain(dtypes).chain(generators).collect();
    if parts.is_empty() { "every op".to_owned() } else { parts.join(" ") }
}

/// A family by the name of its variant in lower case.
fn family(name: &str) -> Option<Family> {
    let families = mlx_parity_oracles::ops::OPS.iter().map(|info| info.family);
    families.into_iter().find(|family| format!("{family:?}").to_lowercase() == name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::ops::OpCase;

    const TABLE: &str = r#"
        [[default]]
        families = ["unary"]
        units = 1.0
        zeros = "signed"
        source = "one rounding"

        [[except]]
        ops = ["exp"]
        dtypes = ["f32"]
        units = 4.0
        reason = "the library's own bound"

        [[except]]
        ops = ["exp"]
        generators = ["wide"]
        backend = "metal"
        units = 9.0
        reason = "elsewhere"
    "#;

    fn load(text: &str) -> Result<Tolerances, CaseError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tolerances.toml");
        fs::write(&path, text).unwrap();
        Tolerances::load(&path, "cpu")
    }

    fn case(op: &str, dtype: Dtype) -> Case {
        let grid = serde_json::from_str("{\"shape\": \"3\"}").unwrap();
        Case {
            id: format!("ops/{op}/x/{dtype}"),
            tier: crate::row::Tier::Ops,
            why: "test".into(),
            kind: Kind::Op(OpCase {
                op: op.into(),
                dtype,
                generators: vec![Generator::Random, Generator::Wide],
                grid: vec![grid],
                views: false,
                quick: true,
                large: false,
            }),
        }
    }

    fn call(op: &str, dtype: Dtype) -> Call {
        calls(&case(op, dtype)).remove(0).1
    }

    #[test]
    fn the_last_line_that_fits_binds() {
        let table = load(TABLE).unwrap();
        assert_eq!(table.bound(&call("log", Dtype::F32)).unwrap().units, 1.0);
        assert_eq!(table.bound(&call("exp", Dtype::F32)).unwrap().units, 4.0);
        assert_eq!(table.bound(&call("exp", Dtype::F16)).unwrap().units, 1.0);
        let message = table.bound(&call("sum", Dtype::F16)).unwrap_err().to_string();
        assert!(message.contains("sum/f16") && message.contains("add a default"), "{message}");
    }

    #[test]
    fn a_line_that_fits_no_case_is_refused() {
        let table = load(TABLE).unwrap();
        table.check_used(&[case("exp", Dtype::F32)]).unwrap();
        let message = table.check_used(&[case("exp", Dtype::F16)]).unwrap_err().to_string();
        assert!(message.contains("exp f32") && message.contains("delete the line"), "{message}");
    }

    #[test]
    fn a_line_that_loosens_nothing_is_named() {
        let table = load(TABLE).unwrap();
        let cases = [case("exp", Dtype::F32)];
        let idle = |needed: f64| table.idle(&cases, &|_| Need::Units(needed));
        assert_eq!(idle(1.5), Vec::<String>::new());
        assert_eq!(idle(1.0).len(), 1, "one unit is what the default allows");
        assert!(idle(0.7)[0].contains("exp f32") && idle(0.7)[0].contains("0.700"));
        assert_eq!(table.idle(&cases, &|_| Need::Other).len(), 1, "failures are no need");
        assert!(table.idle(&cases, &|_| Need::Unknown).is_empty(), "not judged unless it all ran");
    }

    #[rstest::rstest]
    #[case::no_reason(&TABLE.replace("the library's own bound", " "), "`reason` is missing")]
    #[case::negative(&TABLE.replace("4.0", "-4.0"), "units = -4")]
    #[case::nan(&TABLE.replace("4.0", "nan"), "units = NaN")]
    #[case::op(&TABLE.replace("\"exp\"", "\"exq\""), "`exq` is not an op")]
    #[case::family(&TABLE.replace("unary", "unitary"), "`unitary` is not a family")]
    #[case::key(&TABLE.replace("units = 4.0", "unit = 4.0"), "unknown field `unit`")]
    fn bad_tables_are_refused(#[case] text: &str, #[case] wanted: &str) {
        let message = load(text).unwrap_err().to_string();
        assert!(message.contains(wanted), "{message}");
    }
}
