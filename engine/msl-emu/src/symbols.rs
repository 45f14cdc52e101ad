//! From an instruction of the executable to a line of the user's source.

use std::path::Path;

use addr2line::Loader;

use crate::unit::SIGNATURE;
use crate::{EmuError, Place, Source};

/// The line tables of an executable.
pub(crate) struct Symbols<'a> {
    loader: Loader,
    files: &'a [String],
    body: &'a Source,
}

impl<'a> Symbols<'a> {
    /// Reads the tables of `executable`; places lie in `files`, of which the kernel's `body` is one.
    pub(crate) fn open(
        executable: &Path,
        files: &'a [String],
        body: &'a Source,
    ) -> Result<Self, EmuError> {
        let loader = Loader::new(executable).map_err(|error| {
            EmuError::Internal(format!("line tables of {}: {error}", executable.display()))
        })?;
        Ok(Self { loader, files, body })
    }

    /// The innermost frame at `pc`, calls that were inlined included, that lies in the user's files.
    pub(crate) fn place(&self, pc: u64) -> Option<Place> {
        let mut frames = self.loader.find_frames(pc).ok()?;
        while let Ok(Some(frame)) = frames.next() {
            let Some(location) = frame.location else { continue };
            let Some(path) = location.file else { continue };
            if Path::new(path).ends_with(SIGNATURE) {
                // The function's own beginning, where its stack is made.
                return Some(Place { file: self.body.file.clone(), line: self.body.line });
            }
            let Some(file) = self.named(path) else { continue };
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
