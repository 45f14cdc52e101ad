//! A store's folder, and finding entries in it.

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
};

use super::{Entry, Key, Reader, State, StoreError, Writer, entry, evict};

/// Bytes a store may hold where nobody says otherwise: 8 GiB.
pub const DEFAULT_BUDGET: u64 = 8 << 30;

/// A folder of entries and the bytes it may hold.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
    budget: u64,
}

/// What a store has for a key.
#[derive(Debug)]
pub enum Claim {
    /// The entry.
    Hit(Reader),
    /// Nothing whole; the caller is the one to write it.
    Miss(Writer),
}

impl Store {
    /// Opens the store in `dir`, making the folder where there is none. It may hold `budget` bytes.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn open(dir: impl Into<PathBuf>, budget: u64) -> Result<Self, StoreError> {
        let store = Self { dir: dir.into(), budget };
        let locks = store.dir.join("locks");
        fs::create_dir_all(&locks).map_err(StoreError::io("create", &locks))?;
        Ok(store)
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Bytes it may hold.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// The whole entry of a key, if there is one. Marks it as used now.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], [`StoreError::Schema`] or [`StoreError::Io`]; a damaged entry is no miss.
    pub fn find(&self, key: &Key) -> Result<Option<Reader>, StoreError> {
        self.find_named(&key.digest())
    }

    /// The one whole entry whose digest begins with `prefix`. Marks it as used now.
    ///
    /// # Errors
    /// [`StoreError::NotOne`], and those of [`Store::find`].
    pub fn get(&self, prefix: &str) -> Result<Reader, StoreError> {
        let entries = self.entries()?;
        let mut names: Vec<_> =
            entries.into_iter().filter(|entry| entry.state == State::Whole).collect();
        names.retain(|entry| entry.digest.starts_with(prefix));
        let not_one = |matches| StoreError::NotOne {
            dir: self.dir.clone(),
            prefix: prefix.to_owned(),
            matches,
        };
        let [entry] = names.as_slice() else { return Err(not_one(names.len())) };
        self.find_named(&entry.digest)?.ok_or_else(|| not_one(0))
    }

    /// The entry of a key, or the right to write it, taking up what an earlier writer left.
    ///
    /// # Errors
    /// [`StoreError::Busy`] while another process writes it, and those of [`Store::find`].
    pub fn claim(&self, key: &Key) -> Result<Claim, StoreError> {
        let name = key.digest();
        if let Some(reader) = self.find_named(&name)? {
            return Ok(Claim::Hit(reader));
        }
        let lock = self.lock_now(&name)?;
        if self.whole(&name).is_dir() {
            // Another process finished it while this one asked for the lock.
            lock.unlock().map_err(StoreError::io("unlock", &self.lock_path(&name)))?;
            return self.find_named(&name)?.map(Claim::Hit).ok_or_else(|| self.busy(&name));
        }
        Writer::open(self.clone(), key.clone(), lock).map(Claim::Miss)
    }

    /// Everything in the store, whole or not, least recently used first.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn entries(&self) -> Result<Vec<Entry>, StoreError> {
        entry::scan(self)
    }

    /// Removes what unfinished writers left and, least recently used first, whole entries until the rest fits the
    /// budget; entries in use stay. Gives what was removed.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn collect(&self) -> Result<Vec<Entry>, StoreError> {
        evict::collect(self)
    }

    /// Removes an entry, whole or not.
    ///
    /// # Errors
    /// [`StoreError::Busy`] while a process uses it; [`StoreError::Io`].
    pub fn remove(&self, entry: &Entry) -> Result<(), StoreError> {
        let _lock = self.lock_now(&entry.digest)?;
        evict::remove_folder(&entry.path)
    }

    fn find_named(&self, name: &str) -> Result<Option<Reader>, StoreError> {
        if !self.whole(name).is_dir() {
            return Ok(None);
        }
        let path = self.lock_path(name);
        let lock = open_lock(&path)?;
        // Whoever holds it exclusively is about to remove the entry, or to let go: neither takes long.
        lock.lock_shared().map_err(StoreError::io("lock", &path))?;
        let dir = self.whole(name);
        if dir.is_dir() { Reader::open(&dir, name, lock).map(Some) } else { Ok(None) }
    }

    pub(super) fn lock_now(&self, name: &str) -> Result<File, StoreError> {
        let path = self.lock_path(name);
        let lock = open_lock(&path)?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => Err(StoreError::Busy { path }),
            Err(TryLockError::Error(source)) => Err(StoreError::io("lock", &path)(source)),
        }
    }

    pub(super) fn share_now(&self, name: &str) -> Result<File, StoreError> {
        let path = self.lock_path(name);
        let lock = open_lock(&path)?;
        match lock.try_lock_shared() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => Err(StoreError::Busy { path }),
            Err(TryLockError::Error(source)) => Err(StoreError::io("lock", &path)(source)),
        }
    }

    fn busy(&self, name: &str) -> StoreError {
        StoreError::Busy { path: self.lock_path(name) }
    }

    /// Locks stay when entries go: a lock that is removed could be held twice.
    fn lock_path(&self, name: &str) -> PathBuf {
        self.dir.join("locks").join(name)
    }

    pub(super) fn whole(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(super) fn partial(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.partial"))
    }
}

fn open_lock(path: &Path) -> Result<File, StoreError> {
    File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .map_err(StoreError::io("open", path))
}
