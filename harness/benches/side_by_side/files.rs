//! Files of 1 GiB, made once a run and gone after it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Tensors in a file, and elements in each: 64 of 16 MiB.
const TENSORS: usize = 64;
const ELEMENTS: usize = 4 << 20;

/// Four files of the same tensors.
pub struct Files {
    folder: PathBuf,
    /// Random numbers.
    pub a: PathBuf,
    /// The same bytes.
    pub copy: PathBuf,
    /// Every element a few ULP away.
    pub near: PathBuf,
    /// Other random numbers.
    pub unrelated: PathBuf,
}

impl Files {
    /// Writes the files, which leaves them in the page cache.
    pub fn make() -> io::Result<Self> {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("diff-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let path = |name: &str| folder.join(name).with_extension("safetensors");
        let files = Self {
            a: path("a"),
            copy: path("copy"),
            near: path("near"),
            unrelated: path("unrelated"),
            folder: folder.clone(),
        };
        write(&files.a, 1, |bits| bits)?;
        write(&files.copy, 1, |bits| bits)?;
        // One to three ULP.
        write(&files.near, 1, |bits| bits ^ (1 + bits % 3))?;
        write(&files.unrelated, 2, |bits| bits)?;
        Ok(files)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("{}: left behind: {error}", self.folder.display());
        }
    }
}

fn write(path: &Path, seed: u64, change: impl Fn(u32) -> u32) -> io::Result<()> {
    let header = header();
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    for bits in Noise::new(seed).take(TENSORS * ELEMENTS) {
        out.write_all(&change(bits).to_le_bytes())?;
    }
    out.flush()
}

fn header() -> String {
    let bytes = ELEMENTS * 4;
    let entries = (0..TENSORS).map(|at| {
        let (begin, end) = (at * bytes, (at + 1) * bytes);
        format!(
            r#""t{at}":{{"dtype":"F32","shape":[{},1024],"data_offsets":[{begin},{end}]}}"#,
            ELEMENTS / 1024
        )
    });
    format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
}

/// Bits of finite f32 of both signs, of magnitudes 2⁻⁷ to 2⁸.
pub struct Noise(u64);

impl Noise {
    /// A xorshift generator.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
}

impl Iterator for Noise {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let random = (self.0 >> 32) as u32;
        let exponent = 120 + (random >> 23 & 15);
        Some(random & 0x807f_ffff | exponent << 23)
    }
}
