//! `tokenizer.json`, through the `tokenizers` crate.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::error::EngineError;

/// The tokenizer of a model folder.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    file: PathBuf,
    inner: tokenizers::Tokenizer,
}

impl Tokenizer {
    /// Reads `tokenizer.json` of a model folder.
    ///
    /// # Errors
    /// [`EngineError::Tokenizer`] where it is missing or malformed.
    pub fn load(folder: &Path) -> Result<Self, EngineError> {
        let file = folder.join("tokenizer.json");
        match tokenizers::Tokenizer::from_file(&file) {
            Ok(inner) => Ok(Self { file, inner }),
            Err(error) => Err(failure(&file, error)),
        }
    }

    /// The ids of a text, with the special tokens that the tokenizer's own template adds.
    ///
    /// # Errors
    /// [`EngineError::Tokenizer`] where the tokenizer refuses the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, EngineError> {
        let encoding = self.inner.encode(text, true).map_err(|error| failure(&self.file, error))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of ids, special tokens left out.
    ///
    /// # Errors
    /// [`EngineError::Tokenizer`] where the tokenizer refuses the ids.
    pub fn decode(&self, ids: &[u32]) -> Result<String, EngineError> {
        self.inner.decode(ids, true).map_err(|error| failure(&self.file, error))
    }

    /// Every id with its token, added tokens included, in the order of the ids.
    pub fn tokens(&self) -> BTreeMap<u32, String> {
        self.inner.get_vocab(true).into_iter().map(|(token, id)| (id, token)).collect()
    }

    /// Number of ids, added tokens included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }
}

fn failure(file: &Path, error: impl Display) -> EngineError {
    EngineError::Tokenizer { file: file.to_owned(), message: error.to_string() }
}
