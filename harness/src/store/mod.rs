//! The teacher store: logits of a teacher, kept so that they are computed once.
//!
//! An entry is addressed by its content's causes: [`Key::digest`] covers the weights, the configuration, the token ids
//! and how they were cut, the composition, the machine's fingerprint and the engine's revision. Whatever changes, the
//! name changes, so a stale entry can never be found.
//!
//! ```text
//! <store>/<digest>/index           one line of JSON (schema, key, chunks), one line with its SHA-256
//! <store>/<digest>/logits.zst      chunks: whole rows of logits in their own dtype, each a zstd frame
//! <store>/<digest>/used            its modification time is the entry's last use
//! <store>/<digest>.partial/        the same while it is written: logits.zst, and a journal with a line for each chunk
//! <store>/locks/<digest>           held exclusively by its writer, shared by its readers
//! ```
//!
//! A chunk counts once its line is in the journal and its checksum holds, so a killed writer leaves nothing that can
//! mislead: the next one takes up where the last whole chunk ends. An entry counts once its folder has its final name.
//!
//! Logits another engine wrote are read as a [`Dump`].

mod dump;
mod entry;
mod error;
mod evict;
mod folder;
mod index;
mod key;
mod reader;
mod resume;
mod writer;

pub use self::{
    dump::{Dump, DumpError},
    entry::{Entry, State},
    error::StoreError,
    folder::{Claim, DEFAULT_BUDGET, Store},
    key::{Key, revision},
    reader::{Chunk, Reader},
    writer::Writer,
};
