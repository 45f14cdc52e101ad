//! What a side of a comparison can be, as a command line names it.

use std::{fmt, path::PathBuf, str::FromStr};

use crate::composition::{Spelled, SpellingError};

/// One side of a comparison.
///
/// ```text
/// MODEL[@COMPOSITION]   a registered model or a folder, under l1 where nothing else is said
/// store:DIGEST          a stored teacher; the beginning of its digest is enough
/// [dump:]FILE           a safetensors file of logits and ids that another engine wrote
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A model that the engine runs.
    Engine {
        /// Name or folder.
        model: String,
        /// How it computes; absent, nobody said.
        composition: Option<Spelled>,
    },
    /// Logits in the teacher store.
    Stored {
        /// The beginning of an entry's digest.
        digest: String,
    },
    /// Logits of another engine.
    Dump {
        /// The file.
        file: PathBuf,
    },
}

impl FromStr for Source {
    type Err = SpellingError;

    fn from_str(text: &str) -> Result<Self, SpellingError> {
        if let Some(digest) = text.strip_prefix("store:") {
            return Ok(Self::Stored { digest: digest.to_owned() });
        }
        if let Some(file) = text.strip_prefix("dump:") {
            return Ok(Self::Dump { file: file.into() });
        }
        if text.ends_with(".safetensors") {
            return Ok(Self::Dump { file: text.into() });
        }
        // Folders may have an @ in their names; no composition has a slash.
        let (model, composition) = match text.rsplit_once('@') {
            Some((model, spelling)) if !spelling.contains('/') => (model, Some(spelling.parse()?)),
            _ => (text, None),
        };
        Ok(Self::Engine { model: model.to_owned(), composition })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine { model, composition: None } => f.write_str(model),
            Self::Engine { model, composition: Some(composition) } => {
                write!(f, "{model}@{composition}")
            }
            Self::Stored { digest } => write!(f, "store:{digest}"),
            Self::Dump { file } => write!(f, "dump:{}", file.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::name("glassllm-f32", "glassllm-f32")]
    #[case::composition("glassllm-f32@l2:kv8,stock", "glassllm-f32@l2:kv8,empty,stock")]
    #[case::folder("/models/a@b/c", "/models/a@b/c")]
    #[case::both("/models/a@b/c@l1", "/models/a@b/c@l1")]
    #[case::stored("store:1a2b", "store:1a2b")]
    #[case::dump("dump:theirs.bin", "dump:theirs.bin")]
    #[case::by_its_name("theirs.safetensors", "dump:theirs.safetensors")]
    fn sources_are_told_apart(#[case] text: &str, #[case] wanted: &str) {
        assert_eq!(text.parse::<Source>().unwrap().to_string(), wanted);
    }

    #[rstest]
    #[case("glassllm-f32@kv8", "neither l1")]
    #[case("glassllm-f32@kernels=all", "neither l1")]
    fn a_composition_that_is_none_is_refused(#[case] text: &str, #[case] wanted: &str) {
        let error = text.parse::<Source>().unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}
