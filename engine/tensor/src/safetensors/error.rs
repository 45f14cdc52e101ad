//! What can be wrong with a safetensors file or a model folder.

use std::io;
use std::path::{Path, PathBuf};

use crate::dtype::names;
use crate::{Dtype, TensorError};

/// A fault and the file it is in.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", file.display())]
pub struct SafetensorsError {
    /// The file or folder, as the caller named it.
    pub file: PathBuf,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a safetensors file or a model folder.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The system refused.
    #[error("cannot {action}: {error}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The system's reason.
        error: io::Error,
    },
    /// A folder, pipe or device.
    #[error("not a regular file, wanted a safetensors file")]
    NotAFile,
    /// Not even a header length.
    #[error("file has {found} bytes, wanted at least 8 for the header length")]
    NoHeaderLength {
        /// Bytes of the file.
        found: u64,
    },
    /// A header length that no sane file has; most often not a safetensors file at all.
    #[error(
        "header length is {found} bytes, wanted at most {wanted} (is this a safetensors file?)"
    )]
    HugeHeader {
        /// Length the file states.
        found: u64,
        /// Longest accepted.
        wanted: u64,
    },
    /// The file ends inside its header.
    #[error("truncated in the header: file has {found} bytes, header wants {wanted}")]
    TruncatedHeader {
        /// Bytes of the file.
        found: u64,
        /// Bytes up to the end of the header.
        wanted: u64,
    },
    /// The header is not the JSON the format asks for.
    #[error("bad header: {message}")]
    BadHeader {
        /// Reason, with line and column of the header.
        message: String,
    },
    /// The header names a tensor or a metadata key twice.
    #[error("duplicate key `{key}` in the header")]
    DuplicateKey {
        /// The key.
        key: String,
    },
    /// A dtype we do not read.
    #[error(
        "tensor `{tensor}` has dtype `{found}`, wanted one of {}",
        names(Dtype::safetensors_name)
    )]
    UnknownDtype {
        /// The tensor.
        tensor: String,
        /// The dtype as written.
        found: String,
    },
    /// A shape whose size overflows.
    #[error("tensor `{tensor}`: {error}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// Reason.
        error: TensorError,
    },
    /// Offsets that go backwards.
    #[error("tensor `{tensor}` has offsets [{begin}, {end}], wanted begin <= end")]
    ReversedOffsets {
        /// The tensor.
        tensor: String,
        /// First byte.
        begin: u64,
        /// One past the last byte.
        end: u64,
    },
    /// Offsets that do not hold the shape.
    #[error(
        "tensor `{tensor}` has {found} bytes, but shape {shape:?} of {} wants {wanted}",
        dtype.name()
    )]
    WrongSize {
        /// The tensor.
        tensor: String,
        /// Its dtype.
        dtype: Dtype,
        /// Its shape.
        shape: Vec<usize>,
        /// Bytes between its offsets.
        found: u64,
        /// Bytes its shape needs.
        wanted: u64,
    },
    /// Two tensors share bytes.
    #[error(
        "tensors `{first}` and `{second}` overlap: the first ends at data byte {end}, the second begins at {begin}"
    )]
    Overlap {
        /// The tensor that begins first.
        first: String,
        /// The tensor that begins inside it.
        second: String,
        /// One past the first's last byte.
        end: u64,
        /// The second's first byte.
        begin: u64,
    },
    /// Bytes that belong to no tensor.
    #[error("hole before tensor `{tensor}`: it begins at data byte {found}, wanted {wanted}")]
    Hole {
        /// The tensor after the hole.
        tensor: String,
        /// Where it begins.
        found: u64,
        /// Where the data before it ends.
        wanted: u64,
    },
    /// The file ends inside its data.
    #[error("truncated in tensor `{tensor}`: file has {found} bytes, the header wants {wanted}")]
    TruncatedData {
        /// First tensor that is not whole.
        tensor: String,
        /// Bytes of the file.
        found: u64,
        /// Bytes the header accounts for.
        wanted: u64,
    },
    /// Bytes after the last tensor.
    #[error("trailing bytes: file has {found} bytes, the header wants {wanted}")]
    TrailingBytes {
        /// Bytes of the file.
        found: u64,
        /// Bytes the header accounts for.
        wanted: u64,
    },
    /// Refused by the `safetensors` crate for a reason of its own.
    #[error("refused by the safetensors crate: {message}")]
    Refused {
        /// Its reason.
        message: String,
    },
    /// A tensor the file or folder does not have.
    #[error("no tensor `{tensor}` among {available}")]
    NoTensor {
        /// The tensor.
        tensor: String,
        /// Number of tensors there are.
        available: usize,
    },
    /// A folder without weights.
    #[error("no model here, wanted model.safetensors or model.safetensors.index.json")]
    NoModel,
    /// The index is not the JSON wanted.
    #[error("bad index: {message}")]
    BadIndex {
        /// Reason, with line and column.
        message: String,
    },
    /// A shard that is not a plain file name.
    #[error("index sends tensor `{tensor}` to `{shard}`, wanted a file name in the same folder")]
    ShardOutside {
        /// The tensor.
        tensor: String,
        /// The name as written.
        shard: String,
    },
    /// A shard that is not there.
    #[error("shard `{shard}` is missing; the index wants it for tensor `{tensor}`")]
    MissingShard {
        /// File name.
        shard: String,
        /// First tensor the index sends there.
        tensor: String,
    },
    /// A tensor that is not where the index says.
    #[error("index sends tensor `{tensor}` to `{shard}`, which does not have it")]
    NotInShard {
        /// The tensor.
        tensor: String,
        /// File name.
        shard: String,
    },
    /// A tensor that two of the indexed shards hold.
    #[error("tensor `{tensor}` is in `{shard}`, but the index sends it to `{wanted}`")]
    InTwoShards {
        /// The tensor.
        tensor: String,
        /// The shard that should not have it.
        shard: String,
        /// The shard of the index.
        wanted: String,
    },
    /// A tensor of an indexed shard that the index does not know.
    #[error("tensor `{tensor}` is in `{shard}`, but not in the index")]
    NotInIndex {
        /// The tensor.
        tensor: String,
        /// File name.
        shard: String,
    },
}

impl Fault {
    /// Adds the file.
    pub(crate) fn in_file(self, file: &Path) -> SafetensorsError {
        SafetensorsError { file: file.to_owned(), fault: self }
    }
}
