//! Reading an entry.

use std::{
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    ops::Range,
    path::{Path, PathBuf},
    time::SystemTime,
};

use mlx_parity_tensor::HostTensor;

use super::{
    Key, StoreError,
    index::{ChunkRecord, Index, LOGITS, USED},
};
use crate::digest;

/// A whole entry, which no one removes while this value lives. Holds one chunk in memory at most.
#[derive(Debug)]
pub struct Reader {
    index: Index,
    path: PathBuf,
    /// Row and byte at which each chunk begins.
    begins: Vec<(usize, u64)>,
    held: Option<Chunk>,
    _lock: File,
}

/// A run of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Its first row.
    pub start: usize,
    /// The logits, `[rows, vocab]`.
    pub logits: HostTensor,
}

impl Reader {
    pub(super) fn open(dir: &Path, name: &str, lock: File) -> Result<Self, StoreError> {
        let index = Index::read(dir, name)?;
        let path = dir.join(LOGITS);
        let found = path.metadata().map_err(StoreError::read(&path))?.len();
        let wanted = index.bytes();
        if found != wanted {
            let message = format!("it has {found} bytes, its index wants {wanted}");
            return Err(StoreError::damaged(&path, message));
        }
        touch(&dir.join(USED));
        let begins = begins(&index.chunks);
        Ok(Self { index, path, begins, held: None, _lock: lock })
    }

    /// What it is the entry of.
    pub fn key(&self) -> &Key {
        &self.index.key
    }

    /// All rows in order, chunk by chunk, each checked before it is given.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where a chunk does not match its checksum; [`StoreError::Io`].
    pub fn chunks(&self) -> impl ExactSizeIterator<Item = Result<Chunk, StoreError>> + '_ {
        (0..self.index.chunks.len()).map(|at| self.chunk(at))
    }

    /// Rows `range`, `[rows, vocab]`. Panics when out of range.
    ///
    /// Reads every chunk that the range touches; one that follows the last call's is cheap.
    ///
    /// # Errors
    /// As [`Reader::chunks`].
    pub fn rows(&mut self, range: Range<usize>) -> Result<HostTensor, StoreError> {
        assert!(
            range.start <= range.end && range.end <= self.key().rows,
            "rows {range:?} of {}",
            self.key().rows
        );
        let mut bytes = Vec::with_capacity(range.len() * self.key().row_bytes());
        let mut next = range.start;
        while next < range.end {
            let chunk = self.chunk_of(next)?;
            let rows = chunk.logits.shape()[0];
            let (from, to) = (next - chunk.start, (range.end - chunk.start).min(rows));
            let row = chunk.logits.bytes().len() / rows;
            bytes.extend_from_slice(&chunk.logits.bytes()[from * row..to * row]);
            next = chunk.start + to;
        }
        Ok(self.tensor(range.len(), bytes))
    }

    /// The chunk that holds a row, kept for the next call.
    fn chunk_of(&mut self, row: usize) -> Result<&Chunk, StoreError> {
        let holds =
            |chunk: &Chunk| (chunk.start..chunk.start + chunk.logits.shape()[0]).contains(&row);
        let chunk = match self.held.take().filter(holds) {
            Some(chunk) => chunk,
            None => self.chunk(self.begins.partition_point(|(start, _)| *start <= row) - 1)?,
        };
        Ok(self.held.insert(chunk))
    }

    fn chunk(&self, at: usize) -> Result<Chunk, StoreError> {
        let (record, (start, begin)) = (&self.index.chunks[at], self.begins[at]);
        let frame = self.frame(begin, record.bytes)?;
        let damaged = |message: &str| {
            let rows = start..start + record.rows;
            StoreError::damaged(&self.path, format!("chunk {at} (rows {rows:?}) {message}"))
        };
        if digest::of_bytes(&frame) != record.digest {
            return Err(damaged("does not match its checksum"));
        }
        let wanted = record.rows * self.key().row_bytes();
        let bytes = zstd::bulk::decompress(&frame, wanted)
            .map_err(|error| damaged(&format!("does not decompress: {error}")))?;
        if bytes.len() != wanted {
            return Err(damaged(&format!("has {} bytes, wanted {wanted}", bytes.len())));
        }
        Ok(Chunk { start, logits: self.tensor(record.rows, bytes) })
    }

    fn frame(&self, begin: u64, bytes: u64) -> Result<Vec<u8>, StoreError> {
        let mut frame = Vec::with_capacity(bytes as usize);
        File::open(&self.path)
            .and_then(|mut file| {
                file.seek(SeekFrom::Start(begin))?;
                file.take(bytes).read_to_end(&mut frame)
            })
            .map_err(StoreError::io("read", &self.path))?;
        Ok(frame)
    }

    fn tensor(&self, rows: usize, bytes: Vec<u8>) -> HostTensor {
        HostTensor::new(self.key().dtype, [rows, self.key().vocab], bytes)
            .expect("as many bytes as rows of the key have")
    }
}

fn begins(chunks: &[ChunkRecord]) -> Vec<(usize, u64)> {
    chunks
        .iter()
        .scan((0, 0), |next, chunk| {
            let begin = *next;
            *next = (begin.0 + chunk.rows, begin.1 + chunk.bytes);
            Some(begin)
        })
        .collect()
}

/// Marks an entry as used now. A store that cannot be written to is still good to read.
fn touch(mark: &Path) {
    let touched = File::options()
        .append(true)
        .open(mark)
        .and_then(|file| file.set_modified(SystemTime::now()));
    if let Err(error) = touched {
        tracing::debug!("cannot mark {} as used: {error}", mark.display());
    }
}
