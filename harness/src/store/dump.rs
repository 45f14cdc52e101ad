//! Logits that another engine wrote.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use mlx_parity_tensor::{
    Dtype, HostTensor, TensorView,
    safetensors::{SafetensorsError, SafetensorsFile},
};

const LOGITS: &str = "logits";
const IDS: &str = "ids";
const WINDOW: &str = "window";

/// A safetensors file with `logits` `[n, vocab]` (`f16`, `bf16`, `f32` or `f64`) and `ids` `[n]` (`i32`, `u32`, `i64`
/// or `u64`).
///
/// Row `i` holds the logits after `ids[i]` was read, so it predicts `ids[i + 1]`. Where the metadata has `window = W`
/// (a text, as all metadata), rows `0, W, 2W, …` each begin a new context; without it the whole is one. Other tensors
/// are left alone. The file must not change while it is open.
#[derive(Debug)]
pub struct Dump {
    file: SafetensorsFile,
    ids: Vec<u32>,
    vocab: usize,
    window: usize,
}

/// A dump that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// No safetensors file, or a tensor is missing.
    #[error(transparent)]
    File(#[from] SafetensorsError),
    /// A tensor that is not what a dump has under this name.
    #[error("{}: `{tensor}` is {dtype} {shape:?}, wanted {wanted}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: &'static str,
        /// Its element type.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
        /// What it should be.
        wanted: String,
    },
    /// An id that is no row of the vocabulary.
    #[error("{}: ids[{at}] is {id}, wanted 0 to {}", path.display(), vocab - 1)]
    Id {
        /// The file.
        path: PathBuf,
        /// Place of the id.
        at: usize,
        /// The id.
        id: i128,
        /// Values in a row of logits.
        vocab: usize,
    },
    /// A window that is no length.
    #[error("{}: metadata `window` is `{found}`, wanted a number of tokens from 1", path.display())]
    Window {
        /// The file.
        path: PathBuf,
        /// As written.
        found: String,
    },
}

impl Dump {
    /// Opens and checks a dump; the logits are not read.
    ///
    /// # Errors
    /// [`DumpError`], which names the file, what was found and what was wanted.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DumpError> {
        let path = path.as_ref();
        let file = SafetensorsFile::open(path)?;
        let vocab = vocab(&file)?;
        let rows = file.entry(LOGITS)?.shape[0];
        let ids = read_ids(&file, rows, vocab)?;
        let window = window(&file)?.unwrap_or(rows);
        Ok(Self { file, ids, vocab, window })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The ids that were read, one for each row.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Values in a row.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Element type of the logits.
    pub fn dtype(&self) -> Dtype {
        self.logits().dtype()
    }

    /// Tokens of a context: rows `0, window, 2 window, …` begin anew.
    pub fn window(&self) -> usize {
        self.window
    }

    /// A copy of rows `range`, `[rows, vocab]`; the file's pages are let go, so memory stays bounded. Panics when out
    /// of range.
    pub fn rows(&self, range: Range<usize>) -> HostTensor {
        let rows = self.logits().rows(range.clone());
        let row = self.vocab * self.dtype().size();
        if let Ok(entry) = self.file.entry(LOGITS) {
            let start = entry.bytes.start;
            self.file.release(start + range.start * row..start + range.end * row);
        }
        rows
    }

    fn logits(&self) -> TensorView<'_> {
        self.file.view(LOGITS).expect("it was there when the dump was opened")
    }
}

fn vocab(file: &SafetensorsFile) -> Result<usize, DumpError> {
    let logits = file.view(LOGITS)?;
    let fits = matches!(logits.dtype(), Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64);
    match logits.shape() {
        &[rows, vocab] if fits && rows * vocab > 0 => Ok(vocab),
        _ => Err(other_tensor(
            file,
            LOGITS,
            logits,
            "f16, bf16, f32 or f64 [rows, vocab], not empty".to_owned(),
        )),
    }
}

fn read_ids(file: &SafetensorsFile, rows: usize, vocab: usize) -> Result<Vec<u32>, DumpError> {
    let ids = file.view(IDS)?;
    let fits = matches!(ids.dtype(), Dtype::I32 | Dtype::U32 | Dtype::I64 | Dtype::U64);
    if !fits || ids.shape() != [rows] {
        let wanted = format!("i32, u32, i64 or u64 [{rows}], an id for each row of `{LOGITS}`");
        return Err(other_tensor(file, IDS, ids, wanted));
    }
    let id_at = |at| {
        let id = integer(ids, at);
        let bad = || DumpError::Id { path: file.path().to_owned(), at, id, vocab };
        u32::try_from(id).ok().filter(|id| (*id as usize) < vocab).ok_or_else(bad)
    };
    (0..rows).map(id_at).collect()
}

fn integer(ids: TensorView<'_>, at: usize) -> i128 {
    let bits = ids.bits_at(at);
    match ids.dtype() {
        Dtype::I32 => i128::from((bits as u32).cast_signed()),
        Dtype::I64 => i128::from(bits.cast_signed()),
        _ => i128::from(bits),
    }
}

fn window(file: &SafetensorsFile) -> Result<Option<usize>, DumpError> {
    let Some(text) = file.metadata().get(WINDOW) else { return Ok(None) };
    let bad = || DumpError::Window { path: file.path().to_owned(), found: text.clone() };
    text.parse().ok().filter(|window| *window > 0).map(Some).ok_or_else(bad)
}

fn other_tensor(
    file: &SafetensorsFile,
    tensor: &'static str,
    found: TensorView<'_>,
    wanted: String,
) -> DumpError {
    DumpError::Tensor {
        path: file.path().to_owned(),
        tensor,
        dtype: found.dtype(),
        shape: found.shape().to_vec(),
        wanted,
    }
}
