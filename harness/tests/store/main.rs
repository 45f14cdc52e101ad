//! The teacher store: what it finds, what it refuses, what it leaves behind.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod budget;
mod command;
mod damage;
mod dump;
mod entries;
mod interrupted;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use mlx_parity::{
    fingerprint::Fingerprint,
    store::{Claim, DEFAULT_BUDGET, Key, Reader, Store, Writer},
};
use mlx_parity_tensor::{Dtype, HostTensor};
use tempfile::TempDir;

/// A store in a folder of its own.
struct Home {
    dir: TempDir,
}

impl Home {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn store(&self) -> Store {
        self.with_budget(DEFAULT_BUDGET)
    }

    fn with_budget(&self, budget: u64) -> Store {
        Store::open(self.path(), budget).unwrap()
    }

    /// The folder of an entry.
    fn entry(&self, key: &Key) -> PathBuf {
        self.path().join(key.digest())
    }

    fn partial(&self, key: &Key) -> PathBuf {
        self.path().join(format!("{}.partial", key.digest()))
    }
}

/// A key for `rows` rows of 1,000 f32 values.
fn key(rows: usize) -> Key {
    Key {
        weights: "sha256:aa".into(),
        config: "sha256:bb".into(),
        composition: "l1, prefill 512".into(),
        fingerprint: Fingerprint {
            mlx: "0.32.2".into(),
            backend: "cpu".into(),
            arch: "x86_64".into(),
            os: "linux".into(),
            chip: "EPYC".into(),
            env: BTreeMap::new(),
        },
        engine: "0.1.0 sha256:cc".into(),
        ids: (0..rows as u32).collect(),
        windows: "one window, every position".into(),
        dtype: Dtype::F32,
        rows,
        vocab: 1000,
    }
}

/// Rows `from..to` of an answer that no two rows of are equal. Noise, so that zstd cannot shrink it much.
fn rows(from: usize, to: usize) -> HostTensor {
    let value = |at: usize| {
        let mixed = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f32 / 1e6 - 8.0
    };
    let values: Vec<f32> = (from * 1000..to * 1000).map(value).collect();
    HostTensor::from_f32([to - from, 1000], &values).unwrap()
}

fn miss(store: &Store, key: &Key) -> Writer {
    match store.claim(key).unwrap() {
        Claim::Miss(writer) => writer,
        Claim::Hit(_) => panic!("there is an entry already"),
    }
}

fn hit(store: &Store, key: &Key) -> Reader {
    match store.claim(key).unwrap() {
        Claim::Hit(reader) => reader,
        Claim::Miss(_) => panic!("there is no entry"),
    }
}

/// Writes a whole entry.
fn fill(store: &Store, key: &Key) {
    let mut writer = miss(store, key);
    writer.append(&rows(0, key.rows)).unwrap();
    writer.finish().unwrap();
}

/// Changes one byte of a file.
fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}
