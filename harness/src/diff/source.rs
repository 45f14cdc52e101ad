//! A file or a folder, as a set of named tensors.

use std::ops::Range;
use std::path::Path;

use mlx_parity_tensor::TensorView;
use mlx_parity_tensor::safetensors::{Checkpoint, SafetensorsError, SafetensorsFile};

/// Where tensors come from.
#[derive(Debug)]
pub enum Source {
    /// One safetensors file.
    File(SafetensorsFile),
    /// A model folder.
    Folder(Checkpoint),
}

/// A tensor's bytes in a mapped file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    file: &'a SafetensorsFile,
    start: usize,
}

impl Source {
    /// Opens a file, or a folder as a model.
    ///
    /// # Errors
    /// [`SafetensorsError`], which names the file.
    pub fn open(path: &Path) -> Result<Self, SafetensorsError> {
        if path.is_dir() {
            Checkpoint::open(path).map(Self::Folder)
        } else {
            SafetensorsFile::open(path).map(Self::File)
        }
    }

    /// Names, in the order of the file, or sorted for a folder.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::File(file) => file.names().collect(),
            Self::Folder(checkpoint) => checkpoint.names().collect(),
        }
    }

    /// Whether there is such a tensor.
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Self::File(file) => file.contains(name),
            Self::Folder(checkpoint) => checkpoint.contains(name),
        }
    }

    /// Borrows a tensor.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn view(&self, name: &str) -> Result<TensorView<'_>, SafetensorsError> {
        self.file_of(name)?.view(name)
    }

    pub(super) fn place(&self, name: &str) -> Result<Place<'_>, SafetensorsError> {
        let file = self.file_of(name)?;
        Ok(Place { file, start: file.entry(name)?.bytes.start })
    }

    fn file_of(&self, name: &str) -> Result<&SafetensorsFile, SafetensorsError> {
        match self {
            Self::File(file) => Ok(file),
            Self::Folder(checkpoint) => checkpoint.file_of(name),
        }
    }
}

impl Place<'_> {
    /// Lets go of the pages behind these bytes of the tensor.
    pub(super) fn release(self, bytes: Range<usize>) {
        self.file.release(self.start + bytes.start..self.start + bytes.end);
    }
}
