//! What can go wrong with a store. Each message names the file and what mends it.

use std::{
    io,
    path::{Path, PathBuf},
};

use mlx_parity_tensor::Dtype;

/// A request the store cannot honour.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// No room on the disk; what is written so far can be taken up again.
    #[error(
        "no space left to write {}; make room, or shrink the store with `mlx-parity store gc \
         --budget SIZE`, then run the same command again: it goes on from row {rows}",
        path.display()
    )]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// Rows kept.
        rows: usize,
    },
    /// What is in use and this entry are more than the store may hold.
    #[error(
        "{} does not fit: with all that is in use the store would hold {wanted} bytes, its budget \
         is {budget}; give it more",
        path.display()
    )]
    OverBudget {
        /// The entry.
        path: PathBuf,
        /// Bytes the store may hold.
        budget: u64,
        /// Bytes it would hold.
        wanted: u64,
    },
    /// Another process writes this entry, or reads it while it was to be removed.
    #[error(
        "another process holds {}; wait for it to end, the lock goes with it",
        path.display()
    )]
    Busy {
        /// The lock.
        path: PathBuf,
    },
    /// An entry that is not what its checksums say.
    #[error(
        "{} is damaged: {message}; remove it with `mlx-parity store verify --remove`, it is \
         computed again when it is next asked for",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found and what was wanted.
        message: String,
    },
    /// Written in another version of the format.
    #[error(
        "{} has schema {found}, this version reads {wanted}; remove it with `mlx-parity store \
         verify --remove`",
        path.display()
    )]
    Schema {
        /// The index.
        path: PathBuf,
        /// Found.
        found: u32,
        /// Wanted.
        wanted: u32,
    },
    /// Logits that are not rows of the entry.
    #[error(
        "{}: logits are {found_dtype} {found:?}, the entry wants {wanted_dtype} [rows, {vocab}]",
        path.display()
    )]
    Shape {
        /// The entry.
        path: PathBuf,
        /// Element type given.
        found_dtype: Dtype,
        /// Shape given.
        found: Vec<usize>,
        /// Element type of the entry.
        wanted_dtype: Dtype,
        /// Row length of the entry.
        vocab: usize,
    },
    /// More or fewer rows than the key says.
    #[error("{} has {found} rows, its key wants {wanted}", path.display())]
    Rows {
        /// The entry.
        path: PathBuf,
        /// Rows there.
        found: usize,
        /// Rows of the key.
        wanted: usize,
    },
    /// No entry, or more than one, begins like this.
    #[error(
        "{matches} entries of {} begin with `{prefix}`, wanted one; see `mlx-parity store list`",
        dir.display()
    )]
    NotOne {
        /// The store.
        dir: PathBuf,
        /// The beginning of a digest.
        prefix: String,
        /// Entries that begin so.
        matches: usize,
    },
}

impl StoreError {
    /// Wraps what the system said of `path`.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// As [`StoreError::io`], for writes after which `rows` rows are safe.
    pub(super) fn write(path: &Path, rows: usize) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { path, rows }
            }
            _ => Self::Io { action: "write", path, source },
        }
    }

    /// As [`StoreError::io`], for a file without which an entry is damaged.
    pub(super) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::NotFound => Self::damaged(&path, "it is missing"),
            _ => Self::Io { action: "read", path, source },
        }
    }

    pub(super) fn damaged(path: &Path, message: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), message: message.into() }
    }
}
