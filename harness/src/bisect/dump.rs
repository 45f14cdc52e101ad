//! Intermediates of another engine in a file, and ours for another engine.
//!
//! A safetensors file with
//!
//! | tensor | shape | holds |
//! |---|---|---|
//! | `ids` | `[n]`, any integer dtype | the token ids, in the order they were run |
//! | `calls` | `[c]`, any integer dtype | how many of them each model call took; all in one without |
//! | `tap.<call>.<name>` | as in the engine | an intermediate of a call; `call` counts from 0 |
//!
//! Names and shapes are those of the engine's taps: `embed`, `layers.0.self_attn.q_rope`, `layers.0.out`,
//! `logits`. `tap.<call>.logits`, `[1, n, vocab]` or `[n, vocab]`, must be there for each call; any other
//! may be left out, which widens the place that a search can name.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use mlx_parity_tensor::{
    Dtype, HostTensor,
    safetensors::{self, SafetensorsError, SafetensorsFile},
};

use super::{
    script::{Script, ScriptError},
    walk::{Point, Walked},
};

/// A dump that cannot be compared with.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// No such file, or no safetensors.
    #[error(transparent)]
    File(#[from] SafetensorsError),
    /// Its ids or calls are none.
    #[error("{file}: {error}")]
    Script {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        error: ScriptError,
    },
    /// Something in it is not as the format has it.
    #[error("{file}: {what}")]
    Format {
        /// The file.
        file: PathBuf,
        /// What is wrong, and what was wanted.
        what: String,
    },
}

/// A dump of another engine.
#[derive(Debug)]
pub struct Dump {
    file: Arc<SafetensorsFile>,
    logits: Vec<String>,
    script: Script,
}

impl Dump {
    /// Opens a dump and checks its form.
    ///
    /// # Errors
    /// Those of [`DumpError`].
    pub fn open(path: &Path) -> Result<Self, DumpError> {
        let file = SafetensorsFile::open(path)?;
        let wrong = |what: String| DumpError::Format { file: path.to_owned(), what };
        let ids = integers(&file, "ids", &wrong)?
            .ok_or_else(|| wrong("no `ids`; wanted the token ids that were run, [n]".to_owned()))?;
        let ids: Vec<u32> = ids
            .into_iter()
            .map(|id| u32::try_from(id).map_err(|_| wrong(format!("`ids` hold {id}"))))
            .collect::<Result<_, _>>()?;
        let calls = match integers(&file, "calls", &wrong)? {
            Some(calls) => calls.iter().map(|&c| usize::try_from(c).unwrap_or(0)).collect(),
            None => vec![ids.len()],
        };
        let script = Script::new(ids, calls)
            .map_err(|error| DumpError::Script { file: path.to_owned(), error })?;
        let logits = logits_of(&file, &script, &wrong)?;
        Ok(Self { file: Arc::new(file), logits, script })
    }

    /// What it was run on.
    pub fn script(&self) -> &Script {
        &self.script
    }

    pub(super) fn file(&self) -> &Arc<SafetensorsFile> {
        &self.file
    }

    pub(super) fn logits_name(&self, call: usize) -> String {
        self.logits[call].clone()
    }
}

fn integers(
    file: &SafetensorsFile,
    name: &str,
    wrong: &impl Fn(String) -> DumpError,
) -> Result<Option<Vec<i64>>, DumpError> {
    if !file.contains(name) {
        return Ok(None);
    }
    let view = file.view(name)?;
    let integer = matches!(
        view.dtype(),
        Dtype::U8
            | Dtype::U16
            | Dtype::U32
            | Dtype::U64
            | Dtype::I8
            | Dtype::I16
            | Dtype::I32
            | Dtype::I64
    );
    if !integer || view.shape().len() != 1 {
        let found = format!("{} {:?}", view.dtype(), view.shape());
        return Err(wrong(format!("`{name}` is {found}; wanted integers, [n]")));
    }
    // Exact: an id above 2^53 is no id.
    Ok(Some(view.to_f64().into_iter().map(|value| value as i64).collect()))
}

/// The names of the logits, call by call, all of them the shape that their calls have.
fn logits_of(
    file: &SafetensorsFile,
    script: &Script,
    wrong: &impl Fn(String) -> DumpError,
) -> Result<Vec<String>, DumpError> {
    let mut names = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for name in file.names() {
        let Some((_, point)) = Point::parse(name) else { continue };
        if point.call >= script.calls().len() {
            return Err(wrong(format!(
                "`{name}` is of no call: there are {}",
                script.calls().len()
            )));
        }
        if !seen.insert(point.clone()) {
            return Err(wrong(format!("{point} is there twice")));
        }
        if point.name == "logits" {
            names.insert(point.call, name.to_owned());
        }
    }
    let logits = |(call, &count): (usize, &usize)| {
        let name = names
            .get(&call)
            .ok_or_else(|| wrong(format!("no `tap.{call}.logits`; wanted those of every call")))?;
        let shape = file.view(name)?.shape().to_vec();
        match shape.as_slice() {
            [1, n, _] | [n, _] if *n == count => Ok(name.clone()),
            _ => Err(wrong(format!(
                "`{name}` has shape {shape:?}; wanted [1, {count}, vocab] or [{count}, vocab]"
            ))),
        }
    };
    script.calls().iter().enumerate().map(logits).collect()
}

/// Writes what was watched in every call of a run as a dump.
///
/// # Errors
/// A file that cannot be written or read.
pub fn save_taps(path: &Path, script: &Script, walked: &Walked) -> Result<(), DumpError> {
    let wrong = |error: &dyn std::fmt::Display| DumpError::Format {
        file: path.to_owned(),
        what: error.to_string(),
    };
    let calls: Vec<u32> = script.calls().iter().map(|&count| count as u32).collect();
    let integers = |values: &[u32]| HostTensor::from_u32([values.len()], values);
    let mut tensors = vec![
        ("ids".to_owned(), integers(script.ids()).map_err(|error| wrong(&error))?),
        ("calls".to_owned(), integers(&calls).map_err(|error| wrong(&error))?),
    ];
    for point in walked.points() {
        if let Some(view) = walked.view(point)? {
            let tensor = HostTensor::new(view.dtype(), view.shape(), view.bytes().to_vec());
            let name = format!("tap.{}.{}", point.call, point.name);
            tensors.push((name, tensor.map_err(|error| wrong(&error))?));
        }
    }
    let borrowed = tensors.iter().map(|(name, tensor)| (name.clone(), tensor));
    Ok(safetensors::write(path, borrowed, &BTreeMap::new())?)
}
