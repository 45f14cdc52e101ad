//! From an instruction of the executable to a line of the user's source.

use std::path::Path;

use addr2line::Loader;

use crate::{EmuError, Place};

/// The line tables of an executable.
pub(crate) struct Symbols<'a> {
    loader: Loader,
    files: &'a [String],
}

impl<'a> Symbols<'a> {
    /// Reads the tables of `executable`; places lie in `files`.
    pub(crate) fn open(executable: &Path, files: &'a [String]) -> Result<Self, EmuError> {
        let loader = Loader::new(executable).map_err(|error| {
            EmuError::Internal(format!("line tables of {}: {error}", executable.display()))
        })?;
        Ok(Self { loader, files })
    }

    /// The innermost frame at `pc`, calls that were inlined included, that lies in the user's files.
    pub(crate) fn place(&self, pc: u64) -> Option<Place> {
        let mut frames = self.loader.find_frames(pc).ok()?;
        while let Ok(Some(frame)) = frames.next() {
            let Some(location) = frame.location else { continue };
            let Some(file) = location.file.and_then(|file| self.named(file)) else { continue };
            return Some(Place { file, line: location.line? });
        }
        None
    }

    /// The user's name of a file, which the tables may have made absolute.
    pub(crate) fn named(&self, file: &str) -> Option<String> {
        let is_it = |known: &&String| Path::new(file).ends_with(known.as_str());
        self.files.iter().find(is_it).cloned()
    }
}
