//! What config readers of models with experts have in common.

use crate::config::ConfigFile;
use crate::error::EngineError;
use crate::model::universal::router::Groups;

/// Experts a token goes to, under the key of `picked`, of as many as the key of `count` says.
pub(super) fn picks(
    file: &ConfigFile,
    picked: (&str, usize),
    count: (&str, usize),
) -> Result<usize, EngineError> {
    if count.1 == 0 || i32::try_from(count.1).is_err() {
        return Err(file.unsupported(count.0, count.1, "1 to 2147483647"));
    }
    if !(1..=count.1).contains(&picked.1) {
        return Err(file.unsupported(
            picked.0,
            picked.1,
            format!("1 to {} = {}", count.0, count.1),
        ));
    }
    Ok(picked.1)
}

/// `n_group` groups of `experts` experts, of which `topk_group` are kept; their weights are as they are.
pub(super) fn groups(
    file: &ConfigFile,
    count: usize,
    kept: usize,
    experts: usize,
) -> Result<Groups, EngineError> {
    if count == 0 || !experts.is_multiple_of(count) {
        return Err(file.unsupported("n_group", count, format!("a divisor of {experts} experts")));
    }
    if !(1..=count).contains(&kept) {
        return Err(file.unsupported("topk_group", kept, format!("1 to n_group = {count}")));
    }
    // Groups are ranked by their best two.
    if kept < count && experts / count < 2 {
        let wanted = format!("at most half of {experts} experts");
        return Err(file.unsupported("n_group", count, wanted));
    }
    Ok(Groups { count, kept, normalised: false, factor: 1.0 })
}
