//! Asking mlx-lm once which tensors the model of a config has.

use std::path::Path;

use super::{
    SyntheticError,
    inventory::{SCHEMA, config_file, read_config, tensors_file},
};
use crate::oracle::{Answer, InventoryAnswer, Oracle, OracleError, Request};

/// Why `tensors.json` could not be made.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// A file.
    #[error(transparent)]
    Synthetic(#[from] SyntheticError),
    /// The oracle.
    #[error(transparent)]
    Oracle(#[from] OracleError),
}

/// Writes `tensors.json` of a folder that has a `config.json`; true if it is another than before.
///
/// # Errors
/// A config that cannot be read or that mlx-lm refuses, or a file that cannot be written.
pub fn ask(oracle: &mut Oracle, dir: &Path) -> Result<bool, AskError> {
    let (_, config_digest) = read_config(dir)?;
    let answer = match oracle.ask(&Request::Inventory { config: config_file(dir) })? {
        Answer::Inventory(answer) => answer,
        other => {
            return Err(OracleError::Protocol {
                name: oracle.hello().oracle.clone(),
                message: format!("it answered {other:?} to an inventory request"),
            }
            .into());
        }
    };
    let path = tensors_file(dir);
    let text = text(&config_digest, &answer);
    if std::fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(false);
    }
    crate::record::write_atomic(&path, text.as_bytes())
        .map_err(|error| SyntheticError::invalid(&path, error.to_string()))?;
    Ok(true)
}

/// One line a tensor, so that a change is one line of a diff.
fn text(config_digest: &str, answer: &InventoryAnswer) -> String {
    let digests: Vec<_> = answer
        .digests
        .iter()
        .map(|(lane, digest)| format!("    {}: {}", quoted(lane), quoted(digest)))
        .collect();
    let tensors: Vec<_> = answer.tensors.iter().map(|tensor| format!("    {tensor}")).collect();
    format!(
        "{{\n  \"schema\": {SCHEMA},\n  \"config\": {},\n  \"digests\": {{\n{}\n  }},\n  \
         \"tensors\": [\n{}\n  ]\n}}\n",
        quoted(config_digest),
        digests.join(",\n"),
        tensors.join(",\n"),
    )
}

fn quoted(text: &str) -> serde_json::Value {
    text.into()
}
