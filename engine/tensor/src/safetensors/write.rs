//! Writing, all or nothing.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;

use super::error::{Fault, SafetensorsError};
use super::header::MAX_HEADER;
use crate::HostTensor;

/// Data begins at a multiple of this, as the `safetensors` crate writes it.
const ALIGNMENT: usize = 8;

/// Writes tensors in the given order as a safetensors file, replacing `path` only when all is on disk.
///
/// The header keeps the order; the data is laid out widest dtype first, so that every tensor is aligned. Equal
/// arguments give equal bytes.
///
/// # Errors
/// [`Fault::DuplicateKey`], [`Fault::HugeHeader`], or [`Fault::Io`] (no such folder, not writable, disk full). After an
/// error `path` is as it was and no other file is left.
pub fn write<'a>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (String, &'a HostTensor)>,
    metadata: &BTreeMap<String, String>,
) -> Result<(), SafetensorsError> {
    let path = path.as_ref();
    let tensors: Vec<_> = tensors.into_iter().collect();
    let header = header_bytes(&tensors, metadata).map_err(|fault| fault.in_file(path))?;
    write_atomically(path, |out| {
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        data_order(&tensors).into_iter().try_for_each(|at| out.write_all(tensors[at].1.bytes()))
    })
    .map_err(|error| Fault::Io { action: "write", error }.in_file(path))
}

/// Calls `fill` on a temporary file beside `path`, forces it to disk and renames it to `path`.
///
/// # Errors
/// Those of `fill` and of the system. After an error `path` is as it was and the temporary file is gone.
pub fn write_atomically(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let folder = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file name")),
    };
    let temporary = temporary_in(folder)?;
    let mut out = BufWriter::with_capacity(1 << 20, temporary.as_file());
    fill(&mut out)?;
    out.flush()?;
    drop(out);
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    sync_folder(folder)
}

fn temporary_in(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".mlx-parity-").suffix(".tmp");
    // Temporary files are private by default; what replaces a data file must be readable like one.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    builder.tempfile_in(folder)
}

/// Makes the rename itself durable.
fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Indices of the tensors in the order of their data.
fn data_order(tensors: &[(String, &HostTensor)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(tensors[*at].1.dtype().size()));
    order
}

fn header_bytes(
    tensors: &[(String, &HostTensor)],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, Fault> {
    refuse_bad_names(tensors)?;
    let begins = offsets(tensors);
    let mut entries: Vec<String> = Vec::with_capacity(tensors.len() + 1);
    if !metadata.is_empty() {
        entries.push(format!("\"__metadata__\":{}", json!(metadata)));
    }
    for ((name, tensor), begin) in tensors.iter().zip(begins) {
        entries.push(format!("{}:{}", Value::from(name.as_str()), entry(tensor, begin)));
    }
    let mut header = format!("{{{}}}", entries.join(",")).into_bytes();
    header.resize(header.len().next_multiple_of(ALIGNMENT), b' ');
    let found = header.len() as u64;
    if found > MAX_HEADER {
        return Err(Fault::HugeHeader { found, wanted: MAX_HEADER });
    }
    Ok(header)
}

fn entry(tensor: &HostTensor, begin: usize) -> Value {
    let mut entry = Map::new();
    entry.insert("dtype".to_owned(), tensor.dtype().safetensors_name().into());
    entry.insert("shape".to_owned(), tensor.shape().into());
    entry.insert("data_offsets".to_owned(), json!([begin, begin + tensor.bytes().len()]));
    Value::Object(entry)
}

/// First data byte of each tensor.
fn offsets(tensors: &[(String, &HostTensor)]) -> Vec<usize> {
    let mut begins = vec![0; tensors.len()];
    let mut end = 0;
    for at in data_order(tensors) {
        begins[at] = end;
        end += tensors[at].1.bytes().len();
    }
    begins
}

fn refuse_bad_names(tensors: &[(String, &HostTensor)]) -> Result<(), Fault> {
    let mut seen = HashSet::from(["__metadata__"]);
    match tensors.iter().find(|(name, _)| !seen.insert(name)) {
        Some((name, _)) => Err(Fault::DuplicateKey { key: name.clone() }),
        None => Ok(()),
    }
}
