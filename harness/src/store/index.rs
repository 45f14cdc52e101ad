//! What is written beside the logits: chunk records, and the index that seals an entry.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

use super::{Key, StoreError};
use crate::digest;

/// Version of the format; a reader refuses any other.
pub(super) const SCHEMA: u32 = 1;
/// File name of the index.
pub(super) const INDEX: &str = "index";
/// File name of the chunks.
pub(super) const LOGITS: &str = "logits.zst";
/// File name of the journal of an unfinished entry.
pub(super) const JOURNAL: &str = "journal";
/// File name of the mark of last use.
pub(super) const USED: &str = "used";

/// A run of whole rows, compressed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChunkRecord {
    /// Rows in it.
    pub rows: usize,
    /// Bytes of its zstd frame.
    pub bytes: u64,
    /// SHA-256 of the frame.
    pub digest: String,
}

/// The index of a finished entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Index {
    pub schema: u32,
    pub key: Key,
    pub chunks: Vec<ChunkRecord>,
}

/// Read before the rest, so that another schema is named as such.
#[derive(Deserialize)]
struct Version {
    schema: u32,
}

impl Index {
    /// As text: the JSON, then its digest, a line each.
    pub(super) fn seal(&self) -> String {
        let body = serde_json::to_string(self).expect("an index is plain data");
        format!("{body}\n{}\n", digest::of_bytes(body.as_bytes()))
    }

    /// Reads and checks the index in the folder of the entry `name`.
    pub(super) fn read(dir: &Path, name: &str) -> Result<Self, StoreError> {
        let path = dir.join(INDEX);
        let bytes = fs::read(&path).map_err(StoreError::read(&path))?;
        let damaged = |message: String| StoreError::damaged(&path, message);
        let body = unseal(&bytes).map_err(|message| damaged(message.to_owned()))?;
        let version: Version =
            serde_json::from_str(body).map_err(|error| damaged(error.to_string()))?;
        if version.schema != SCHEMA {
            return Err(StoreError::Schema { path, found: version.schema, wanted: SCHEMA });
        }
        let index: Self = serde_json::from_str(body).map_err(|error| damaged(error.to_string()))?;
        let found = index.key.digest();
        if found != name {
            return Err(damaged(format!("its key is that of {found}, not of {name}")));
        }
        index.check_rows().map_err(damaged)?;
        Ok(index)
    }

    fn check_rows(&self) -> Result<(), String> {
        let rows = self.chunks.iter().map(|chunk| chunk.rows).sum::<usize>();
        let wanted = self.key.rows;
        if rows == wanted { Ok(()) } else { Err(format!("{rows} rows, its key wants {wanted}")) }
    }

    /// Bytes of all chunks.
    pub(super) fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.bytes).sum()
    }
}

fn unseal(bytes: &[u8]) -> Result<&str, &'static str> {
    let text = str::from_utf8(bytes).map_err(|_| "it is no text")?;
    let (body, seal) = text.split_once('\n').ok_or("it is cut short")?;
    let sealed = seal.strip_suffix('\n') == Some(&digest::of_bytes(body.as_bytes()));
    if sealed { Ok(body) } else { Err("it does not match its checksum") }
}
