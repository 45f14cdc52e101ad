//! A run on disk: what was scored, window by window, so that a killed run loses no window.
//!
//! ```text
//! <base>/<digest>/lock             held by the process that writes
//! <base>/<digest>/positions.jsonl  a line for each window, in order
//! <base>/<digest>/control/         logits of the first windows, until the control lanes are done
//! <base>/<digest>/control.json     the control lanes
//! ```

use std::{
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{control::ControlLane, error::KlError, windows::Window};
use crate::stats::{NonFinite, Position};

/// The positions of a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scored {
    /// The window, counted from 0.
    pub window: usize,
    /// Its scored positions, in order.
    pub positions: Vec<Position>,
    /// The first NaNs and infinities, by number of the position among all that are scored.
    pub nonfinite: Vec<NonFinite>,
    /// NaNs and infinities in the teacher's logits.
    pub nonfinite_teacher: u64,
    /// NaNs and infinities in the student's logits.
    pub nonfinite_student: u64,
}

/// A run being recorded.
#[derive(Debug)]
pub struct Record {
    dir: PathBuf,
    rows: File,
    done: Vec<Scored>,
    _lock: File,
}

const ROWS: &str = "positions.jsonl";
const CONTROL: &str = "control";
const LANES: &str = "control.json";

impl Record {
    /// Starts the run of a digest anew, or, with `resume`, takes it up behind its last whole window.
    ///
    /// # Errors
    /// [`KlError::NothingToResume`], [`KlError::Busy`], [`KlError::Damaged`], [`KlError::Record`].
    pub fn open(
        base: &Path,
        digest: &str,
        windows: &[Window],
        resume: bool,
    ) -> Result<Self, KlError> {
        let dir = base.join(&digest.trim_start_matches("sha256:")[..16]);
        let path = dir.join(ROWS);
        if resume && !path.is_file() {
            return Err(KlError::NothingToResume(base.into()));
        }
        fs::create_dir_all(dir.join(CONTROL)).map_err(failed("create", &dir))?;
        let lock = lock(&dir.join("lock"))?;
        let mut rows = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed("open", &path))?;
        let mut done = Vec::new();
        let mut kept = 0;
        if resume {
            let mut text = Vec::new();
            rows.read_to_end(&mut text).map_err(failed("read", &path))?;
            (done, kept) = whole(&path, &text, windows)?;
        } else {
            clear(&dir.join(CONTROL))?;
            remove(&dir.join(LANES))?;
        }
        // A torn line goes, and whatever a run before wrote.
        rows.set_len(kept).map_err(failed("write", &path))?;
        rows.seek(SeekFrom::End(0)).map_err(failed("write", &path))?;
        Ok(Self { dir, rows, done, _lock: lock })
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The windows so far, in order.
    pub fn done(&self) -> &[Scored] {
        &self.done
    }

    /// Writes a window; once this returns it outlives the process.
    ///
    /// # Errors
    /// [`KlError::Record`].
    pub fn push(&mut self, scored: Scored) -> Result<(), KlError> {
        let path = self.dir.join(ROWS);
        let mut line =
            serde_json::to_vec(&scored).map_err(|error| failed("write", &path)(error.into()))?;
        line.push(b'\n');
        self.rows.write_all(&line).map_err(failed("write", &path))?;
        self.done.push(scored);
        Ok(())
    }

    /// The file for a side's logits of a call within the control windows, by the number of the call's
    /// first row.
    pub fn control_file(&self, side: &str, row: usize) -> PathBuf {
        self.dir.join(CONTROL).join(format!("{side}-{row}.safetensors"))
    }

    /// The control lanes, where an earlier sitting has done them.
    ///
    /// # Errors
    /// [`KlError::Record`], [`KlError::Damaged`].
    pub fn lanes(&self) -> Result<Option<Vec<ControlLane>>, KlError> {
        let path = self.dir.join(LANES);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(failed("read", &path))?,
        };
        let damaged =
            |error: serde_json::Error| KlError::Damaged { path, message: error.to_string() };
        serde_json::from_slice(&text).map(Some).map_err(damaged)
    }

    /// Keeps the control lanes, and lets the logits that they stand on go.
    ///
    /// # Errors
    /// [`KlError::Record`].
    pub fn keep_lanes(&self, lanes: &[ControlLane]) -> Result<(), KlError> {
        let (path, new) = (self.dir.join(LANES), self.dir.join("control.json.new"));
        let text =
            serde_json::to_vec(lanes).map_err(|error| failed("write", &new)(error.into()))?;
        fs::write(&new, text).map_err(failed("write", &new))?;
        fs::rename(&new, &path).map_err(failed("write", &path))?;
        clear(&self.dir.join(CONTROL))
    }
}

/// What the system said of a file of the record.
pub(super) fn failed(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> KlError {
    let path = path.to_owned();
    move |source| KlError::Record { action, path: path.clone(), source }
}

fn lock(path: &Path) -> Result<File, KlError> {
    let file = File::create(path).map_err(failed("create", path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(KlError::Busy(path.into())),
        Err(fs::TryLockError::Error(source)) => Err(failed("lock", path)(source)),
    }
}

fn clear(dir: &Path) -> Result<(), KlError> {
    for file in fs::read_dir(dir).map_err(failed("read", dir))?.flatten() {
        fs::remove_file(file.path()).map_err(failed("remove", &file.path()))?;
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), KlError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(failed("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// The whole lines of a record, and how many bytes they have.
fn whole(path: &Path, text: &[u8], windows: &[Window]) -> Result<(Vec<Scored>, u64), KlError> {
    let damaged = |message: String| KlError::Damaged { path: path.into(), message };
    let mut done = Vec::new();
    let mut kept = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if line.last() != Some(&b'\n') {
            break;
        }
        let at = done.len();
        let scored: Scored = serde_json::from_slice(line)
            .map_err(|error| damaged(format!("line {}: {error}", at + 1)))?;
        let wanted = windows.get(at).map(|window| window.scored.len());
        if scored.window != at || Some(scored.positions.len()) != wanted {
            return Err(damaged(format!("line {} is not that of window {at}", at + 1)));
        }
        done.push(scored);
        kept += line.len() as u64;
    }
    Ok((done, kept))
}

#[cfg(test)]
mod tests {
    use super::super::windows::{Convention, Cut};
    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123";

    fn windows() -> Vec<Window> {
        Cut { window: 1, convention: Convention::Every, documents: vec![4] }.windows()
    }

    fn scored(window: usize) -> Scored {
        let position = Position {
            kl: 0.1 + 0.2,
            reverse_kl: f64::NAN,
            total_variation: Some(1.0 / 3.0),
            entropy_teacher: f64::MIN_POSITIVE,
            entropy_student: 1e300,
            margin_teacher: 0.0,
            top1_teacher: 1,
            top1_student: 2,
            agree: false,
            top_k_overlap: 0.7,
            true_token: None,
        };
        let positions = vec![position];
        Scored { window, positions, nonfinite: vec![], nonfinite_teacher: 0, nonfinite_student: 0 }
    }

    fn bits(scored: &Scored) -> [u64; 4] {
        let position = scored.positions[0];
        [position.kl, position.reverse_kl, position.entropy_teacher, position.entropy_student]
            .map(f64::to_bits)
    }

    #[test]
    fn a_torn_line_is_dropped_and_every_number_comes_back_bit_for_bit() {
        let base = tempfile::tempdir().unwrap();
        let mut record = Record::open(base.path(), DIGEST, &windows(), false).unwrap();
        record.push(scored(0)).unwrap();
        record.push(scored(1)).unwrap();
        let path = record.dir().join(ROWS);
        drop(record);
        let length = path.metadata().unwrap().len();
        File::options().write(true).open(&path).unwrap().set_len(length - 3).unwrap();
        let mut record = Record::open(base.path(), DIGEST, &windows(), true).unwrap();
        assert_eq!(record.done().len(), 1);
        assert_eq!(bits(&record.done()[0]), bits(&scored(0)));
        record.push(scored(1)).unwrap();
        record.push(scored(2)).unwrap();
        drop(record);
        let record = Record::open(base.path(), DIGEST, &windows(), true).unwrap();
        assert_eq!(record.done().len(), 3);
    }

    #[test]
    fn a_run_anew_forgets_the_one_before() {
        let base = tempfile::tempdir().unwrap();
        let mut record = Record::open(base.path(), DIGEST, &windows(), false).unwrap();
        record.push(scored(0)).unwrap();
        drop(record);
        let record = Record::open(base.path(), DIGEST, &windows(), false).unwrap();
        assert!(record.done().is_empty() && record.dir().join(ROWS).metadata().unwrap().len() == 0);
    }

    #[test]
    fn what_cannot_be_gone_on_with_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let open = |resume| Record::open(base.path(), DIGEST, &windows(), resume);
        assert!(matches!(open(true), Err(KlError::NothingToResume(_))));
        let mut record = open(false).unwrap();
        assert!(matches!(open(false), Err(KlError::Busy(_))));
        record.push(scored(1)).unwrap();
        drop(record);
        let error = open(true).unwrap_err().to_string();
        assert!(error.contains("line 1 is not that of window 0"), "{error}");
    }
}
