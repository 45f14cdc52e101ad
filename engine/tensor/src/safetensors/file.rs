//! One memory-mapped safetensors file.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::error::{Fault, SafetensorsError};
use super::header::{Entry, Header};
use crate::{HostTensor, TensorView};

/// A validated, memory-mapped safetensors file.
///
/// The file must not shrink or change while it is open; readers of a file that another process rewrites in place
/// would see the change or die by a bus error. [`super::write`] replaces files and never rewrites one.
#[derive(Debug)]
pub struct SafetensorsFile {
    path: PathBuf,
    map: Mmap,
    header: Header,
    by_name: HashMap<String, usize>,
}

impl SafetensorsFile {
    /// Maps and validates the file; no tensor data is read.
    ///
    /// # Errors
    /// Every way the file can be wrong, see [`Fault`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SafetensorsError> {
        let path = path.as_ref();
        Self::open_file(path).map_err(|fault| fault.in_file(path))
    }

    fn open_file(path: &Path) -> Result<Self, Fault> {
        let io = |action| move |error| Fault::Io { action, error };
        // Asked before opening, which would wait for ever on a pipe.
        let metadata = path.metadata().map_err(io("open"))?;
        if !metadata.is_file() {
            return Err(Fault::NotAFile);
        }
        if metadata.len() == 0 {
            return Err(Fault::NoHeaderLength { found: 0 });
        }
        let file = File::open(path).map_err(io("open"))?;
        // SAFETY: the map is read-only and private to this value. That nobody shrinks or rewrites the file meanwhile
        // is the documented duty of the caller; no reader of mapped files can check it.
        let map = unsafe { Mmap::map(&file) }.map_err(io("map"))?;
        let header = Header::parse(&map)?;
        let by_name =
            header.entries.iter().enumerate().map(|(at, entry)| (entry.name.clone(), at)).collect();
        Ok(Self { path: path.to_owned(), map, header, by_name })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the whole file.
    pub fn file_len(&self) -> usize {
        self.map.len()
    }

    /// Names in the order of the header.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.header.entries.iter().map(|entry| entry.name.as_str())
    }

    /// The `__metadata__` map.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.header.metadata
    }

    /// Whether there is such a tensor.
    pub fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The tensor's place in the file.
    ///
    /// # Errors
    /// [`Fault::NoTensor`].
    pub fn entry(&self, name: &str) -> Result<&Entry, SafetensorsError> {
        let at = self.by_name.get(name).ok_or_else(|| {
            let (tensor, available) = (name.to_owned(), self.header.entries.len());
            Fault::NoTensor { tensor, available }.in_file(&self.path)
        })?;
        Ok(&self.header.entries[*at])
    }

    /// Borrows a tensor from the map.
    ///
    /// # Errors
    /// [`Fault::NoTensor`].
    pub fn view(&self, name: &str) -> Result<TensorView<'_>, SafetensorsError> {
        let entry = self.entry(name)?;
        let bytes = &self.map[entry.bytes.clone()];
        TensorView::new(entry.dtype, &entry.shape, bytes)
            .map_err(|error| Fault::Shape { tensor: name.to_owned(), error }.in_file(&self.path))
    }

    /// Copies a tensor.
    ///
    /// # Errors
    /// [`Fault::NoTensor`].
    pub fn tensor(&self, name: &str) -> Result<HostTensor, SafetensorsError> {
        Ok(self.view(name)?.to_host())
    }

    /// Lets go of the memory behind `bytes` (offsets in the file), as far as whole pages go.
    ///
    /// The bytes can be read again; they come from the page cache. Keeps the resident size of a reader that streams
    /// through the map small. A system that cannot do so is ignored: it costs memory, not correctness.
    pub fn release(&self, bytes: Range<usize>) {
        let end = bytes.end.min(self.map.len());
        let start = bytes.start.min(end);
        #[cfg(unix)]
        {
            use memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the map is read-only and backed by the file, so a dropped page is read back unchanged.
            let dropped = unsafe { self.map.unchecked_advise_range(DontNeed, start, end - start) };
            drop(dropped);
        }
        #[cfg(not(unix))]
        let _ = start;
    }
}
