//! What is in a store.

use std::{
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{
    Key, Reader, Store, StoreError,
    index::{Index, JOURNAL, USED},
};

/// An entry as its folder shows it.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its name, [`Key::digest`].
    pub digest: String,
    /// Its folder.
    pub path: PathBuf,
    /// Whole, or not.
    pub state: State,
    /// Bytes of its files.
    pub bytes: u64,
    /// When it was last read or written.
    pub used: SystemTime,
}

/// How far an entry has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Finished.
    Whole,
    /// Being written, or left by a writer that ended early.
    Partial,
}

impl Entry {
    /// The key of a whole entry.
    ///
    /// # Errors
    /// Its index is damaged or of another schema.
    pub fn key(&self) -> Result<Key, StoreError> {
        Index::read(&self.path, &self.digest).map(|index| index.key)
    }

    /// Reads a whole entry from end to end against its checksums; rows of it.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] names the first chunk that is wrong.
    pub fn verify(&self, store: &Store) -> Result<usize, StoreError> {
        let reader = Reader::open(&self.path, &self.digest, store.share_now(&self.digest)?)?;
        reader.chunks().try_fold(0, |rows, chunk| Ok(rows + chunk?.logits.shape()[0]))
    }
}

/// All entries, least recently used first.
pub(super) fn scan(store: &Store) -> Result<Vec<Entry>, StoreError> {
    let dir = store.dir();
    let mut entries = Vec::new();
    for item in fs::read_dir(dir).map_err(StoreError::io("list", dir))? {
        let path = item.map_err(StoreError::io("list", dir))?.path();
        entries.extend(entry_at(&path));
    }
    entries.sort_by(|a, b| (a.used, &a.digest).cmp(&(b.used, &b.digest)));
    Ok(entries)
}

/// The entry in a folder. Folders of other names, and one that another process has just removed, are none.
fn entry_at(path: &Path) -> Option<Entry> {
    let name = path.file_name()?.to_str()?;
    let (digest, state) = match name.strip_suffix(".partial") {
        Some(digest) => (digest, State::Partial),
        None => (name, State::Whole),
    };
    let hex = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !hex || !path.is_dir() {
        return None;
    }
    let mark = match state {
        State::Whole => USED,
        State::Partial => JOURNAL,
    };
    let time = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    let used = time(&path.join(mark)).or_else(|| time(path))?;
    Some(Entry {
        digest: digest.to_owned(),
        path: path.to_owned(),
        state,
        bytes: size(path)?,
        used,
    })
}

fn size(dir: &Path) -> Option<u64> {
    let files = fs::read_dir(dir).ok()?;
    Some(files.flatten().filter_map(|file| file.metadata().ok()).map(|data| data.len()).sum())
}
