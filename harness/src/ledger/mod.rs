//! The ledger on disk: accepted decisions, those that wait for a person, and what makes a decision stale.
//!
//! The format, and what is believed of it, is [`mlx_parity_kernels::ledger`]'s.

mod lock;

use std::path::{Path, PathBuf};

use mlx_parity_kernels::{
    candidate,
    ledger::{Cell, Decision, Entry, Ledger, LedgerError, Place},
};

use self::lock::Lock;
use crate::{
    golden::in_ci,
    record::{self, RecordError, write_atomic},
    root::Root,
};

/// A ledger that cannot be used, or must not be changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system refused.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// `read`, `remove`, `lock`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not to be believed.
    #[error("{path}: {error}")]
    Ledger {
        /// The file.
        path: PathBuf,
        /// Why.
        error: LedgerError,
    },
    /// Another process changes it.
    #[error(
        "{path} is held by another `mlx-parity ledger` or `mlx-parity gate`; try again when that has ended"
    )]
    Held {
        /// The lock.
        path: PathBuf,
    },
    /// Decisions are accepted by people.
    #[error("decisions are accepted by a person, never in continuous integration (`CI` is set)")]
    InCi,
    /// Nothing waits.
    #[error("nothing is pending: {path} is not there; run `mlx-parity gate`")]
    NothingPending {
        /// The pending file.
        path: PathBuf,
    },
    /// No pending entry fits.
    #[error("no pending decision fits `{filter}`")]
    NoSuchCell {
        /// As asked.
        filter: String,
    },
    /// The evidence is not there.
    #[error("{cell}: its evidence, {record}, {why}; gate it again")]
    Evidence {
        /// The cell.
        cell: String,
        /// The recorded run.
        record: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file could not be written.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// The two files.
#[derive(Debug, Clone)]
pub struct Store {
    accepted: PathBuf,
    records: PathBuf,
    in_ci: bool,
}

impl Store {
    /// Of a project.
    pub fn new(root: &Root) -> Self {
        Self { accepted: root.ledger_file(), records: root.record(), in_ci: in_ci() }
    }

    /// The same with another folder of recorded runs.
    #[must_use]
    pub fn with_records(self, records: Option<PathBuf>) -> Self {
        Self { records: records.unwrap_or(self.records), ..self }
    }

    /// `goldens/ledger.toml.new`.
    pub fn pending_file(&self) -> PathBuf {
        self.accepted.with_extension("toml.new")
    }

    /// Accepted decisions; none where there is no file.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Ledger`].
    pub fn accepted(&self) -> Result<Ledger, StoreError> {
        Ok(read(&self.accepted)?.unwrap_or_default())
    }

    /// Decisions that wait; none where there is no file.
    ///
    /// # Errors
    /// As [`accepted`](Self::accepted).
    pub fn pending(&self) -> Result<Option<Ledger>, StoreError> {
        read(&self.pending_file())
    }

    /// Puts decisions beside those that wait already. Answers whether any is new: one that was accepted as it is
    /// does not wait again.
    ///
    /// # Errors
    /// [`StoreError::Held`] while another process changes the ledger; as [`accepted`](Self::accepted).
    pub fn propose(&self, entries: impl IntoIterator<Item = Entry>) -> Result<bool, StoreError> {
        let _lock = Lock::take(&self.accepted)?;
        let accepted = self.accepted()?;
        let mut pending = self.pending()?.unwrap_or_default();
        let mut proposed = false;
        for entry in entries.into_iter().filter(|entry| !accepted.entries().contains(entry)) {
            pending.put(entry);
            proposed = true;
        }
        if proposed {
            write_atomic(&self.pending_file(), pending.to_toml().as_bytes())?;
        }
        Ok(proposed)
    }

    /// Moves pending decisions whose cell contains `filter` into the accepted ledger; answers which.
    ///
    /// # Errors
    /// [`StoreError::InCi`], [`StoreError::NothingPending`], [`StoreError::NoSuchCell`], [`StoreError::Held`];
    /// [`StoreError::Evidence`] where the run that a promotion rests on is not there or says something else. Then
    /// nothing is changed.
    pub fn accept(&self, filter: &str) -> Result<Vec<Entry>, StoreError> {
        if self.in_ci {
            return Err(StoreError::InCi);
        }
        let _lock = Lock::take(&self.accepted)?;
        let path = self.pending_file();
        let pending = self.pending()?.ok_or(StoreError::NothingPending { path: path.clone() })?;
        let fits = |entry: &&Entry| entry.cell.to_string().contains(filter);
        let (taken, left): (Vec<_>, Vec<_>) = pending.entries().iter().partition(fits);
        if taken.is_empty() {
            return Err(StoreError::NoSuchCell { filter: filter.to_owned() });
        }
        let taken: Vec<Entry> = taken.into_iter().cloned().collect();
        // What turns nothing on needs no run behind it.
        let promoted = taken.iter().filter(|entry| entry.decision == Decision::Promote);
        promoted.into_iter().try_for_each(|entry| self.supported(entry))?;
        let mut accepted = self.accepted()?;
        taken.iter().cloned().for_each(|entry| accepted.put(entry));
        // The accepted file first: killed in between, a decision waits that was taken, and can be taken again.
        write_atomic(&self.accepted, accepted.to_toml().as_bytes())?;
        if left.is_empty() {
            let io = |source| StoreError::Io { action: "remove", path: path.clone(), source };
            std::fs::remove_file(&path).map_err(io)?;
        } else {
            let mut rest = Ledger::default();
            left.into_iter().cloned().for_each(|entry| rest.put(entry));
            write_atomic(&path, rest.to_toml().as_bytes())?;
        }
        Ok(taken)
    }

    /// Whether the recorded run of an entry is there, ended, and found what the entry says.
    fn supported(&self, entry: &Entry) -> Result<(), StoreError> {
        let refuse = |why: String| {
            Err(StoreError::Evidence {
                cell: entry.cell.to_string(),
                record: entry.record.clone(),
                why,
            })
        };
        let dir = self.records.join(&entry.record);
        let Ok(info) = record::read_run(&dir) else {
            return refuse(format!("is not in {}", self.records.display()));
        };
        if info.finished.is_none() {
            return refuse("did not end".to_owned());
        }
        let rows = record::read(&dir)?;
        let prefix =
            format!("gate/{}/{}/{}/", entry.cell.kernel, entry.cell.dtype, entry.cell.class);
        for finding in &entry.evidence {
            let mine = |row: &&crate::row::Row| {
                let code = |gate: &crate::gate::GateRow| gate.evidence == finding.evidence.code();
                row.id.starts_with(&prefix)
                    && row.gate.as_ref().is_some_and(code)
                    && !row.case.ends_with("/metal-emulated")
            };
            let found: Vec<_> = rows.iter().filter(mine).collect();
            let holds = |row: &&crate::row::Row| {
                row.gate.as_ref().is_some_and(|gate| gate.verdict().holds())
            };
            let own = finding.evidence != mlx_parity_kernels::ledger::Evidence::Vjp;
            if own && finding.verdict.holds() && (found.is_empty() || !found.iter().any(holds)) {
                return refuse(format!("does not hold {}", finding.evidence.code()));
            }
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Option<Ledger>, StoreError> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => {
            other.map_err(|source| StoreError::Io { action: "read", path: path.into(), source })?
        }
    };
    let parsed = Ledger::parse(&text);
    parsed.map(Some).map_err(|error| StoreError::Ledger { path: path.into(), error })
}

/// Why a promotion does not turn its kernel on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    /// The entry's cell.
    pub cell: Cell,
    /// What changed.
    pub why: String,
}

/// Promotions that turn nothing on here: of other sources than those of this build, of another version of MLX, of a
/// kernel that is gone. Promotions for other backends and chips are left alone, but for their sources.
pub fn stale(ledger: &Ledger, here: &Place) -> Vec<Stale> {
    let promoted = ledger.entries().iter().filter(|entry| entry.decision == Decision::Promote);
    let why = |cell: &Cell| {
        let Some(candidate) = candidate(&cell.kernel) else {
            return Some("there is no such kernel any more".to_owned());
        };
        let digest = candidate.spec().digest();
        if digest != cell.digest {
            let [was, is] = [&cell.digest, &digest].map(|digest| short(digest));
            return Some(format!("its sources were {was} when it was promoted, and are {is}"));
        }
        let mine = cell.place.backend == here.backend && cell.place.chip == here.chip;
        (mine && cell.place.mlx != here.mlx)
            .then(|| format!("it was promoted with MLX {}, this is {}", cell.place.mlx, here.mlx))
    };
    let found = promoted
        .filter_map(|entry| Some(Stale { cell: entry.cell.clone(), why: why(&entry.cell)? }));
    found.collect()
}

/// The first digits of a digest.
pub fn short(digest: &str) -> &str {
    digest.get(..8).unwrap_or(digest)
}

#[cfg(test)]
mod tests;
