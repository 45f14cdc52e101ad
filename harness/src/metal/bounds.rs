//! How far the outputs of a case may be from its oracle.

use std::path::Path;

use super::MetalCase;
use crate::ops::{Bound, Tolerances};

/// What the table of tolerances knows emulated kernels as: no exception made for an MLX backend is theirs.
pub const BACKEND: &str = "metal-emulated";

/// The bound of each launch: the case's own, or that of its oracle's op in the table.
///
/// # Errors
/// What is missing.
pub fn bounds(case: &MetalCase, table: Option<&Path>) -> Result<Vec<Bound>, String> {
    if let Some(bound) = case.own_bound() {
        return Ok(vec![bound; case.trials().len()]);
    }
    let Some(table) = table else {
        let wanted = "give the case `units`, or name a project with --root";
        return Err(format!("no table of tolerances: {wanted}"));
    };
    let table = Tolerances::load(table, BACKEND).map_err(|error| error.to_string())?;
    let bound = |call| table.bound(call).map_err(|error| error.to_string());
    case.calls().iter().map(bound).collect()
}
