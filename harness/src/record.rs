//! Recorded runs: a folder per run, rows flushed one by one, finished in plan order.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    fingerprint::Fingerprint,
    row::{ROW_SCHEMA, Row},
};

/// Version of `run.json`; a reader refuses any other.
pub const RUN_SCHEMA: u32 = 1;

const RUN: &str = "run.json";
const ROWS: &str = "rows.jsonl";

/// What a run set out to do, and how it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunInfo {
    /// [`RUN_SCHEMA`].
    pub schema: u32,
    /// Version of this program.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// Where the engine computes.
    pub fingerprint: Fingerprint,
    /// Digest of the plan: cases, goldens, options that change rows.
    pub plan: String,
    /// Ids of the checks, in plan order.
    pub checks: Vec<String>,
    /// Start, RFC 3339.
    pub started: String,
    /// The end, once every check has a row.
    pub finished: Option<Finished>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finished {
    /// Exit code.
    pub exit: u8,
    /// Wall time in seconds, over all sittings.
    pub seconds: f64,
}

/// A record that cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file system refused.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// `create`, `write`, `read`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line or file that is not of this version.
    #[error("{path}: {message}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// There is no run to resume.
    #[error("nothing to resume in {path}: {message}")]
    NothingToResume {
        /// Where it was looked for.
        path: PathBuf,
        /// Why none fits.
        message: String,
    },
}

impl RecordError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source }
    }
}

/// A run being recorded.
#[derive(Debug)]
pub struct Record {
    dir: PathBuf,
    info: RunInfo,
    rows: File,
    kept: Vec<Row>,
}

impl Record {
    /// Starts a new record below `base`, in a folder named after the day and the machine.
    pub fn create(base: &Path, info: RunInfo) -> Result<Self, RecordError> {
        fs::create_dir_all(base).map_err(RecordError::io("create", base))?;
        let stem = format!("{}-{}", &info.started[..10], machine(&info.fingerprint));
        let dir = free_dir(base, &stem)?;
        write_json(&dir.join(RUN), &info)?;
        let rows = append(&dir.join(ROWS))?;
        Ok(Self { dir, info, rows, kept: Vec::new() })
    }

    /// Takes up the newest unfinished record of the same plan. Rows of cases that were not complete
    /// are dropped, so that those cases run again whole.
    pub fn resume(
        base: &Path,
        plan: &str,
        case_of: &dyn Fn(&str) -> String,
    ) -> Result<Self, RecordError> {
        let nothing = |message: &str| RecordError::NothingToResume {
            path: base.into(),
            message: message.into(),
        };
        let mut open: Vec<(String, PathBuf, RunInfo)> = Vec::new();
        for dir in run_dirs(base)? {
            let info: RunInfo = read_run(&dir)?;
            if info.finished.is_none() {
                open.push((info.started.clone(), dir, info));
            }
        }
        if open.is_empty() {
            return Err(nothing("no unfinished run"));
        }
        open.retain(|(_, _, info)| info.plan == plan);
        open.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        let (_, dir, info) =
            open.pop().ok_or_else(|| nothing("the unfinished runs had another plan"))?;
        let kept = complete_cases(&info, read_rows(&dir.join(ROWS))?, case_of);
        write_rows(&dir.join(ROWS), &kept)?;
        let rows = append(&dir.join(ROWS))?;
        Ok(Self { dir, info, rows, kept })
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What it set out to do.
    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// Rows so far.
    pub fn rows(&self) -> &[Row] {
        &self.kept
    }

    /// Adds a row, on disk before this returns.
    pub fn push(&mut self, row: Row) -> Result<(), RecordError> {
        let failed = RecordError::io("write", &self.dir);
        let mut line = serde_json::to_vec(&row).map_err(|error| RecordError::Format {
            path: self.dir.join(ROWS),
            message: error.to_string(),
        })?;
        line.push(b'\n');
        self.rows.write_all(&line).and_then(|()| self.rows.flush()).map_err(failed)?;
        self.kept.push(row);
        Ok(())
    }

    /// Puts the rows in plan order and marks the run as finished.
    pub fn finish(&mut self, exit: u8, seconds: f64) -> Result<(), RecordError> {
        let order: std::collections::HashMap<_, _> =
            self.info.checks.iter().enumerate().map(|(at, id)| (id.as_str(), at)).collect();
        self.kept.sort_by_key(|row| order.get(row.id.as_str()).copied().unwrap_or(usize::MAX));
        write_rows(&self.dir.join(ROWS), &self.kept)?;
        self.info.finished = Some(Finished { exit, seconds });
        write_json(&self.dir.join(RUN), &self.info)
    }
}

/// Reads the rows of a recorded run: a folder, or a `rows.jsonl`.
pub fn read(path: &Path) -> Result<Vec<Row>, RecordError> {
    if path.is_dir() { read_rows(&path.join(ROWS)) } else { read_rows(path) }
}

/// Reads what a recorded run set out to do.
pub fn read_run(dir: &Path) -> Result<RunInfo, RecordError> {
    let path = dir.join(RUN);
    let text = fs::read_to_string(&path).map_err(RecordError::io("read", &path))?;
    let info: RunInfo = serde_json::from_str(&text)
        .map_err(|error| RecordError::Format { path: path.clone(), message: error.to_string() })?;
    if info.schema == RUN_SCHEMA {
        Ok(info)
    } else {
        let message = format!("schema {}, this version reads {RUN_SCHEMA}", info.schema);
        Err(RecordError::Format { path, message })
    }
}

/// Every recorded run below `base`, in name order.
pub fn run_dirs(base: &Path) -> Result<Vec<PathBuf>, RecordError> {
    if !base.exists() {
        return Ok(Vec::new());
    }
    let mut dirs = Vec::new();
    for entry in fs::read_dir(base).map_err(RecordError::io("read", base))? {
        let path = entry.map_err(RecordError::io("read", base))?.path();
        if path.join(RUN).is_file() {
            dirs.push(path);
        }
    }
    dirs.sort();
    Ok(dirs)
}

fn read_rows(path: &Path) -> Result<Vec<Row>, RecordError> {
    let file = File::open(path).map_err(RecordError::io("read", path))?;
    let mut lines = BufReader::new(file).split(b'\n').enumerate().peekable();
    let mut rows = Vec::new();
    while let Some((number, line)) = lines.next() {
        let line = line.map_err(RecordError::io("read", path))?;
        match serde_json::from_slice::<Row>(&line) {
            Ok(row) if row.schema == ROW_SCHEMA => rows.push(row),
            Ok(row) => {
                let message = format!(
                    "line {}: row schema {}, this version reads {ROW_SCHEMA}",
                    number + 1,
                    row.schema
                );
                return Err(RecordError::Format { path: path.into(), message });
            }
            // A run killed while writing leaves a torn last line; that row was never given.
            Err(_) if lines.peek().is_none() => break,
            Err(error) => {
                let message = format!("line {}: {error}", number + 1);
                return Err(RecordError::Format { path: path.into(), message });
            }
        }
    }
    Ok(rows)
}

fn complete_cases(info: &RunInfo, rows: Vec<Row>, case_of: &dyn Fn(&str) -> String) -> Vec<Row> {
    let have: std::collections::HashSet<_> = rows.iter().map(|row| row.id.clone()).collect();
    let torn: std::collections::HashSet<_> =
        info.checks.iter().filter(|id| !have.contains(*id)).map(|id| case_of(id)).collect();
    rows.into_iter().filter(|row| !torn.contains(&row.case)).collect()
}

fn write_rows(path: &Path, rows: &[Row]) -> Result<(), RecordError> {
    let mut text = Vec::new();
    for row in rows {
        serde_json::to_writer(&mut text, row).map_err(|error| RecordError::Format {
            path: path.into(),
            message: error.to_string(),
        })?;
        text.push(b'\n');
    }
    write_atomic(path, &text)
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), RecordError> {
    let mut text = serde_json::to_vec_pretty(value)
        .map_err(|error| RecordError::Format { path: path.into(), message: error.to_string() })?;
    text.push(b'\n');
    write_atomic(path, &text)
}

/// Writes a file whole or not at all.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), RecordError> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let written = tempfile::NamedTempFile::new_in(dir).and_then(|mut file| {
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)
    });
    written.map(|_| ()).map_err(RecordError::io("write", path))
}

fn append(path: &Path) -> Result<File, RecordError> {
    OpenOptions::new().create(true).append(true).open(path).map_err(RecordError::io("write", path))
}

/// The first of `stem-1`, `stem-2` … that is not there yet, made; two runs never share one.
fn free_dir(base: &Path, stem: &str) -> Result<PathBuf, RecordError> {
    for number in 1.. {
        let dir = base.join(format!("{stem}-{number}"));
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(RecordError::io("create", &dir)(error)),
        }
    }
    unreachable!("the numbers do not end")
}

fn machine(fingerprint: &Fingerprint) -> String {
    let word = fingerprint
        .chip
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .find(|word| !["AMD", "Intel", "R", "Apple"].contains(word))
        .unwrap_or("machine");
    word.to_ascii_lowercase()
}
