//! Two sets of logits in one file, made once a run and gone after it.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use mlx_parity_tensor::TensorView;
use mlx_parity_tensor::safetensors::SafetensorsFile;

/// Tokens of Qwen's vocabulary.
pub const VOCABULARY: usize = 151_936;

/// Bell-shaped logits, deviation 2, of this many rows.
pub fn gaussian(seed: u64, rows: usize) -> impl Iterator<Item = f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..rows * VOCABULARY).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // The sum of four uniform numbers of ±½ has a variance of 1/3.
        let parts = [0, 16, 32, 48].map(|at| (state >> at & 0xffff) as f32 / 65536.0 - 0.5);
        parts.iter().sum::<f32>() * 2.0 * 3f32.sqrt()
    })
}

/// `teacher` and `student`, f32, of a safetensors file in the page cache. The student is the teacher with noise.
pub struct Logits {
    folder: PathBuf,
    pub path: PathBuf,
    pub rows: usize,
    file: SafetensorsFile,
}

impl Logits {
    /// Writes the file.
    pub fn make(rows: usize) -> Result<Self> {
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kl-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let path = folder.join("logits.safetensors");
        write(&path, rows).with_context(|| format!("cannot write {}", path.display()))?;
        let file = SafetensorsFile::open(&path)?;
        Ok(Self { folder, path, rows, file })
    }

    /// The teacher's and the student's.
    pub fn views(&self) -> Result<[TensorView<'_>; 2]> {
        Ok([self.file.view("teacher")?, self.file.view("student")?])
    }

    /// Bytes of both.
    pub fn bytes(&self) -> usize {
        2 * 4 * self.rows * VOCABULARY
    }
}

impl Drop for Logits {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("{}: left behind: {error}", self.folder.display());
        }
    }
}

fn write(path: &Path, rows: usize) -> Result<()> {
    let bytes = 4 * rows * VOCABULARY;
    let entry = |name: &str, at: usize| {
        let (begin, end) = (at * bytes, (at + 1) * bytes);
        format!(
            r#""{name}":{{"dtype":"F32","shape":[{rows},{VOCABULARY}],"data_offsets":[{begin},{end}]}}"#
        )
    };
    // The data starts at a multiple of 64.
    let header = format!("{{{},{}}}", entry("teacher", 0), entry("student", 1));
    let header = format!("{header:<width$}", width = (header.len() + 8).next_multiple_of(64) - 8);
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    for logit in gaussian(1, rows) {
        out.write_all(&logit.to_le_bytes())?;
    }
    for (logit, noise) in gaussian(1, rows).zip(gaussian(2, rows)) {
        out.write_all(&(logit + 0.1 * noise).to_le_bytes())?;
    }
    out.flush()?;
    Ok(())
}
