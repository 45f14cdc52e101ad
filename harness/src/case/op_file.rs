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
    op: String,
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
        name: format!("{}/{}", wire.op, wire.name),
        message,
    };
    let op = Op::parse(&wire.op)
        .ok_or_else(|| invalid(format!("`{}` is not an op of the table", wire.op)))?;
    for (what, empty) in [
        ("dtypes", wire.dtypes.is_empty()),
        ("generators", wire.generators.is_empty()),
        ("grid", wire.grid.iter().all(|grid| grid.calls().next().is_none())),
        ("why", wire.why.trim().is_empty()),
    ] {
        if empty {
            return Err(invalid(format!("`{what}` is empty")));
        }
    }
    Ok(wire.dtypes.iter().map(|dtype| case(op, *dtype, wire)).collect())
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
