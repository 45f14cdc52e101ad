//! Gradient cases: `goldens/cases/vjp/<file>.toml`, one case for each table, op and dtype, and the
//! reasons for which an op has none.

use std::{collections::BTreeMap, path::Path};

use mlx_parity_oracles::ops::Op;
use mlx_parity_tensor::Dtype;
use serde::Deserialize;

use super::{Case, CaseError, Kind, toml_dir};
use crate::{
    gradcheck::{Cotangent, KernelTrials, Of, VjpCase, composite},
    ops::{Generator, Grid, OpCase},
    row::Tier,
};

/// Units that a gradient may be off where a case does not say.
const UNITS: f64 = 4.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFile {
    #[serde(default)]
    case: Vec<WireVjp>,
    /// Ops of the table that have a gradient and no case, with the reason.
    #[serde(default)]
    uncovered: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WireVjp {
    /// An op of the table, or several that share everything else; or a composite, or a kernel.
    op: Option<String>,
    #[serde(default)]
    ops: Vec<String>,
    composite: Option<String>,
    kernel: Option<KernelTrials>,
    name: String,
    /// What tables say of the gradient, behind the subject's name: `dK, causal, GQA`.
    #[serde(default)]
    label: String,
    dtypes: Vec<Dtype>,
    #[serde(default = "random")]
    generators: Vec<Generator>,
    #[serde(default)]
    grid: Vec<Grid>,
    #[serde(default)]
    wrt: Vec<usize>,
    #[serde(default)]
    positive: Vec<usize>,
    units: Option<f64>,
    /// Why `units` is more than the usual.
    because: Option<String>,
    #[serde(default)]
    views: bool,
    #[serde(default)]
    batched: Vec<usize>,
    #[serde(default)]
    kinks: Vec<Cotangent>,
    #[serde(default)]
    second: bool,
    #[serde(default)]
    quick: bool,
    why: String,
}

fn random() -> Vec<Generator> {
    vec![Generator::Random]
}

/// Reads one file.
///
/// # Errors
/// A file that is not as it should be: the message names it, the case and the fix.
pub fn load(path: &Path) -> Result<Vec<Case>, CaseError> {
    let wire: WireFile = toml_dir::read(path)?;
    let mut cases = Vec::new();
    for case in wire.case {
        toml_dir::check_name(path, &case.name)?;
        let found = validate(&case).map_err(|message| CaseError::Invalid {
            path: path.into(),
            name: case.name.clone(),
            message,
        })?;
        cases.extend(found);
    }
    Ok(cases)
}

/// The ops of the table that have a gradient and no case, each with its reason, from every file of the
/// tier below `cases`.
///
/// # Errors
/// As `load`.
pub fn uncovered(cases: &Path) -> Result<BTreeMap<String, String>, CaseError> {
    let mut all = BTreeMap::new();
    for path in toml_dir::files(&cases.join(Tier::Vjp.name()))? {
        let wire: WireFile = toml_dir::read(&path)?;
        for (op, reason) in wire.uncovered {
            if Op::parse(&op).is_none() || reason.trim().is_empty() {
                let message = "wanted an op of the table and a reason".to_owned();
                return Err(CaseError::Invalid { path, name: op, message });
            }
            all.insert(op, reason);
        }
    }
    Ok(all)
}

fn validate(wire: &WireVjp) -> Result<Vec<Case>, String> {
    let kinds = [
        wire.op.is_some() || !wire.ops.is_empty(),
        wire.composite.is_some(),
        wire.kernel.is_some(),
    ];
    if kinds.into_iter().filter(|&given| given).count() != 1 {
        return Err("wanted one of `op` (or `ops`), `composite` and `kernel`".to_owned());
    }
    let of_op = kinds[0];
    for (what, empty) in [
        ("dtypes", wire.dtypes.is_empty()),
        ("why", wire.why.trim().is_empty()),
        ("wrt", wire.wrt.is_empty() && wire.kernel.is_none()),
        ("grid", of_op && wire.grid.iter().all(|grid| grid.calls().next().is_none())),
        ("generators", wire.generators.is_empty()),
    ] {
        if empty {
            return Err(format!("`{what}` is empty"));
        }
    }
    let units = wire.units.unwrap_or(UNITS);
    if !(units.is_finite() && units > 0.0) {
        return Err(format!("`units` is {units}, wanted a finite number above 0"));
    }
    if (units > UNITS) != wire.because.as_ref().is_some_and(|reason| !reason.trim().is_empty()) {
        return Err(format!("`units` above {UNITS} and `because` come together"));
    }
    let mut cases = Vec::new();
    for subject in subjects(wire)? {
        cases.extend(wire.dtypes.iter().map(|&dtype| case(&subject, dtype, units, wire)));
    }
    Ok(cases)
}

/// What the table is of, by name; several for several ops.
fn subjects(wire: &WireVjp) -> Result<Vec<String>, String> {
    if let Some(name) = &wire.composite {
        return match composite(name) {
            Some(_) => Ok(vec![name.clone()]),
            None => Err(format!("there is no composite `{name}`")),
        };
    }
    if let Some(trials) = &wire.kernel {
        if trials.sizes.is_empty() {
            return Err("`sizes` is empty".to_owned());
        }
        return Ok(vec![trials.kernel.clone()]);
    }
    let names = wire.op.iter().chain(&wire.ops);
    let known = names.map(|name| match Op::parse(name) {
        Some(op) if op.info().differentiable => Ok(name.clone()),
        Some(_) => Err(format!("`{name}` has no gradient")),
        None => Err(format!("`{name}` is not an op of the table")),
    });
    known.collect()
}

fn case(subject: &str, dtype: Dtype, units: f64, wire: &WireVjp) -> Case {
    let of = match (&wire.composite, &wire.kernel) {
        (Some(name), _) => Of::Composite(name.clone()),
        (None, Some(trials)) => Of::Kernel(trials.clone()),
        (None, None) => Of::Op(OpCase {
            op: subject.to_owned(),
            dtype,
            generators: wire.generators.clone(),
            grid: wire.grid.clone(),
            views: wire.views,
            quick: wire.quick,
            large: false,
        }),
    };
    let label = format!("{subject} {}", wire.label).trim_end().to_owned();
    Case {
        id: format!("{}/{subject}/{}/{}", Tier::Vjp.name(), wire.name, dtype.name()),
        tier: Tier::Vjp,
        why: wire.why.clone(),
        kind: Kind::Vjp(VjpCase {
            label,
            of,
            dtype,
            wrt: wire.wrt.clone(),
            positive: wire.positive.clone(),
            units,
            views: wire.views,
            batched: wire.batched.clone(),
            kinks: wire.kinks.clone(),
            second: wire.second,
            quick: wire.quick,
        }),
    }
}
