//! Taking up what an earlier writer left.

use std::{
    fs::{self, File},
    io::{BufReader, Read as _},
    path::Path,
};

use super::{
    Key, StoreError,
    index::{ChunkRecord, JOURNAL, LOGITS},
};
use crate::digest;

/// An unfinished entry whose files end where its last whole chunk does.
pub(super) struct Taken {
    pub logits: File,
    pub journal: File,
    pub chunks: Vec<ChunkRecord>,
}

/// Opens the files in `dir`, keeping the chunks that are whole and cutting off the rest.
pub(super) fn take_up(dir: &Path, key: &Key) -> Result<Taken, StoreError> {
    let (journal_path, logits_path) = (dir.join(JOURNAL), dir.join(LOGITS));
    let logits = open(&logits_path)?;
    let lines = fs::read_to_string(&journal_path).unwrap_or_default();
    let chunks = whole_chunks(&lines, &logits, key);
    let text = chunks.iter().fold(String::new(), |text, chunk| {
        text + &serde_json::to_string(chunk).expect("a record is plain data") + "\n"
    });
    // Written anew rather than cut: it is short, and a torn line may stand anywhere.
    fs::write(&journal_path, &text).map_err(StoreError::write(&journal_path, 0))?;
    let journal = File::options()
        .append(true)
        .open(&journal_path)
        .map_err(StoreError::io("open", &journal_path))?;
    Ok(Taken { logits, journal, chunks })
}

fn open(path: &Path) -> Result<File, StoreError> {
    File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(path)
        .map_err(StoreError::write(path, 0))
}

/// The longest run of chunks from the start that are on disk as the journal says.
fn whole_chunks(journal: &str, logits: &File, key: &Key) -> Vec<ChunkRecord> {
    let mut reader = BufReader::new(logits);
    let mut rows = 0;
    journal
        .split_inclusive('\n')
        .map_while(|line| serde_json::from_str(line.strip_suffix('\n')?).ok())
        .take_while(|chunk: &ChunkRecord| {
            rows += chunk.rows;
            rows <= key.rows && is_whole(chunk, &mut reader)
        })
        .collect()
}

fn is_whole(chunk: &ChunkRecord, reader: &mut BufReader<&File>) -> bool {
    let mut frame = Vec::new();
    let read = reader.take(chunk.bytes).read_to_end(&mut frame);
    read.is_ok() && digest::of_bytes(&frame) == chunk.digest
}
