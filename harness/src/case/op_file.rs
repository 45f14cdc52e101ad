//! Op cases: `goldens/cases/ops/<file>.toml`, one case for each table and dtype.

use std::path::Path;

use mlx_parity_oracles::ops::Op;
use mlx_parity_tensor::Dtype;
use serde::Deserialize;

use super::{Case, CaseError, Kind, toml_dir};
use crate::{
    ops::{Generator, Grid, OpCase},
    row::Tier,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFile {
    #[serde(default)]
    case: Vec<WireOp>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct WireOp {
    /// An op of the table, or several that share everything else.
    #[serde(default)]
    op: Option<String>,
    #[serde(default)]
    ops: Vec<String>,
    name: String,
    dtypes: Vec<Dtype>,
    generators: Vec<Generator>,
    /// Every combination of one value for each key is a call; several grids are joined.
    grid: Vec<Grid>,
    /// Repeat each call with its operands in other layouts.
    #[serde(default)]
    views: bool,
    /// Part of `verify --quick`.
    #[serde(default)]
    quick: bool,
    /// Only with `verify --large`.
    #[serde(default)]
    large: bool,
    why: String,
}

/// Reads one file.
pub fn load(path: &Path) -> Result<Vec<Case>, CaseError> {
    let wire: WireFile = toml_dir::read(path)?;
    let mut cases = Vec::new();
    for case in wire.case {
        cases.extend(validate(path, &case)?);
    }
    Ok(cases)
}

fn validate(path: &Path, wire: &WireOp) -> Result<Vec<Case>, CaseError> {
    toml_dir::check_name(path, &wire.name)?;
    let invalid = |message: String| CaseError::Invalid {
        path: path.into(),
        name: wire.name.clone(),
        message,
    };
    let names: Vec<_> = wire.op.iter().chain(&wire.ops).collect();
    for (what, empty) in [
        ("op", names.is_empty()),
        ("dtypes", wire.dtypes.is_empty()),
        ("generators", wire.generators.is_empty()),
        ("grid", wire.grid.iter().all(|grid| grid.calls().next().is_none())),
        ("why", wire.why.trim().is_empty()),
    ] {
        if empty {
            return Err(invalid(format!("`{what}` is empty")));
        }
    }
    let op = |name: &String| {
        Op::parse(name).ok_or_else(|| invalid(format!("`{name}` is not an op of the table")))
    };
    let ops = names.into_iter().map(op).collect::<Result<Vec<_>, _>>()?;
    let pairs = ops.iter().flat_map(|op| wire.dtypes.iter().map(move |dtype| (*op, *dtype)));
    Ok(pairs.map(|(op, dtype)| case(op, dtype, wire)).collect())
}

fn case(op: Op, dtype: Dtype, wire: &WireOp) -> Case {
    Case {
        id: format!("{}/{op}/{}/{}", Tier::Ops.name(), wire.name, dtype.name()),
        tier: Tier::Ops,
        why: wire.why.clone(),
        kind: Kind::Op(OpCase {
            op: op.name().to_owned(),
            dtype,
            generators: wire.generators.clone(),
            grid: wire.grid.clone(),
            views: wire.views,
            quick: wire.quick,
            large: wire.large,
        }),
    }
}
