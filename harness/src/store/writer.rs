//! Writing an entry.

use std::{
    fs::{self, File},
    io::{Seek as _, SeekFrom, Write as _},
    path::PathBuf,
};

use mlx_parity_tensor::HostTensor;

use super::{
    Key, Reader, Store, StoreError, evict,
    index::{ChunkRecord, INDEX, Index, JOURNAL, LOGITS, SCHEMA, USED},
    resume,
};
use crate::digest;

/// Rows are gathered until a chunk has this many bytes (at least one row), 8 MiB.
pub(super) const CHUNK_BYTES: usize = 8 << 20;
/// Logits are mostly noise: higher levels cost time and save next to nothing.
const LEVEL: i32 = 1;

/// An entry being written, to which this process alone has the right.
///
/// Dropped before [`Writer::finish`], it leaves its whole chunks to the next writer of the same key.
#[derive(Debug)]
pub struct Writer {
    store: Store,
    key: Key,
    name: String,
    dir: PathBuf,
    logits: File,
    journal: File,
    chunks: Vec<ChunkRecord>,
    gathered: Vec<u8>,
    lock: File,
}

impl Writer {
    pub(super) fn open(store: Store, key: Key, lock: File) -> Result<Self, StoreError> {
        let name = key.digest();
        let dir = store.partial(&name);
        fs::create_dir_all(&dir).map_err(StoreError::write(&dir, 0))?;
        let resume::Taken { logits, journal, chunks } = resume::take_up(&dir, &key)?;
        Ok(Self { store, key, name, dir, logits, journal, chunks, gathered: Vec::new(), lock })
    }

    /// Rows it has, those of an earlier writer included: the caller goes on from here.
    pub fn rows(&self) -> usize {
        self.written() + self.gathered.len() / self.key.row_bytes()
    }

    /// What it is the entry of.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Adds rows of logits, `[rows, vocab]` in the key's dtype.
    ///
    /// # Errors
    /// [`StoreError::Shape`]; [`StoreError::Rows`] where the key wants no more; [`StoreError::DiskFull`] or
    /// [`StoreError::OverBudget`], after which the whole chunks are kept; [`StoreError::Io`].
    pub fn append(&mut self, logits: &HostTensor) -> Result<(), StoreError> {
        let &[rows, vocab] = logits.shape() else { return Err(self.other_shape(logits)) };
        if (logits.dtype(), vocab) != (self.key.dtype, self.key.vocab) {
            return Err(self.other_shape(logits));
        }
        let found = self.rows() + rows;
        if found > self.key.rows {
            return Err(StoreError::Rows { path: self.dir.clone(), found, wanted: self.key.rows });
        }
        let row = self.key.row_bytes();
        let most = (CHUNK_BYTES / row).max(1) * row;
        let mut rest = logits.bytes();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(most - self.gathered.len()));
            self.gathered.extend_from_slice(now);
            rest = later;
            if self.gathered.len() == most {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes the rows gathered so far as a chunk, so that they outlive this process.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub fn flush(&mut self) -> Result<(), StoreError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let path = self.dir.join(LOGITS);
        let frame = zstd::bulk::compress(&self.gathered, LEVEL)
            .map_err(StoreError::io("compress", &path))?;
        evict::make_room(&self.store, &self.name, frame.len() as u64)?;
        let record = ChunkRecord {
            rows: self.gathered.len() / self.key.row_bytes(),
            bytes: frame.len() as u64,
            digest: digest::of_bytes(&frame),
        };
        self.put(&frame, &record)?;
        self.chunks.push(record);
        self.gathered.clear();
        Ok(())
    }

    fn put(&mut self, frame: &[u8], record: &ChunkRecord) -> Result<(), StoreError> {
        let rows = self.written();
        let end = self.chunks.iter().map(|chunk| chunk.bytes).sum();
        let (logits, journal) = (self.dir.join(LOGITS), self.dir.join(JOURNAL));
        // A chunk that failed half-way is written over.
        self.logits
            .seek(SeekFrom::Start(end))
            .and_then(|_| self.logits.write_all(frame))
            .map_err(StoreError::write(&logits, rows))?;
        let mut line = serde_json::to_string(record).expect("a record is plain data");
        line.push('\n');
        self.journal.write_all(line.as_bytes()).map_err(StoreError::write(&journal, rows))
    }

    /// Seals the entry and gives it its name.
    ///
    /// # Errors
    /// [`StoreError::Rows`] where rows are missing (those there are kept), and as [`Writer::append`].
    pub fn finish(mut self) -> Result<Reader, StoreError> {
        self.flush()?;
        let (found, wanted) = (self.written(), self.key.rows);
        if found != wanted {
            return Err(StoreError::Rows { path: self.dir, found, wanted });
        }
        self.seal()?;
        let whole = self.store.whole(&self.name);
        fs::rename(&self.dir, &whole).map_err(StoreError::io("rename", &self.dir))?;
        sync_folder(self.store.dir())?;
        let journal = whole.join(JOURNAL);
        fs::remove_file(&journal).map_err(StoreError::io("remove", &journal))?;
        let path = whole.clone();
        // Another process may take the lock between these two, though not write: the entry is there.
        self.lock.unlock().map_err(StoreError::io("unlock", &path))?;
        self.lock.lock_shared().map_err(StoreError::io("lock", &path))?;
        Reader::open(&whole, &self.name, self.lock)
    }

    fn seal(&mut self) -> Result<(), StoreError> {
        let rows = self.written();
        let index = Index { schema: SCHEMA, key: self.key.clone(), chunks: self.chunks.clone() };
        for (name, text) in [(USED, String::new()), (INDEX, index.seal())] {
            let path = self.dir.join(name);
            File::create(&path)
                .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
                .map_err(StoreError::write(&path, rows))?;
        }
        self.logits
            .set_len(index.bytes())
            .and_then(|()| self.logits.sync_all())
            .map_err(StoreError::write(&self.dir.join(LOGITS), rows))?;
        sync_folder(&self.dir)
    }

    fn written(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.rows).sum()
    }

    fn other_shape(&self, logits: &HostTensor) -> StoreError {
        StoreError::Shape {
            path: self.dir.clone(),
            found_dtype: logits.dtype(),
            found: logits.shape().to_vec(),
            wanted_dtype: self.key.dtype,
            vocab: self.key.vocab,
        }
    }
}

/// Makes names in a folder durable.
fn sync_folder(dir: &std::path::Path) -> Result<(), StoreError> {
    if cfg!(not(unix)) {
        return Ok(());
    }
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(StoreError::io("sync", dir))
}
