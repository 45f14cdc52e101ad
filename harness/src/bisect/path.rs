//! Paths as the command line spells them.

use std::{convert::Infallible, fmt, path::PathBuf, str::FromStr};

use crate::composition::{Spelled, SpellingError};

/// What computes an answer: `l1`, `l2:kv8`, `fault:NAME`, `dump:FILE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathSpec {
    /// The engine under a composition.
    Composition(Spelled),
    /// The engine under `l1` with a deliberate fault (debug builds).
    Fault(String),
    /// The intermediates that another engine dumped.
    Dump(PathBuf),
}

impl FromStr for PathSpec {
    type Err = SpellingError;

    fn from_str(text: &str) -> Result<Self, SpellingError> {
        if let Some(name) = text.strip_prefix("fault:") {
            return Ok(Self::Fault(name.to_owned()));
        }
        if let Some(file) = text.strip_prefix("dump:") {
            let Ok(file) = file.parse::<PathBuf>() as Result<_, Infallible>;
            return Ok(Self::Dump(file));
        }
        text.parse().map(Self::Composition)
    }
}

impl fmt::Display for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Composition(spelled) => spelled.fmt(f),
            Self::Fault(name) => write!(f, "fault:{name}"),
            Self::Dump(file) => write!(f, "dump:{}", file.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_and_written() {
        for text in ["l1", "l2:kv8,empty,tiled", "fault:rope-base", "dump:a/b.safetensors"] {
            assert_eq!(text.parse::<PathSpec>().unwrap().to_string(), text);
        }
        assert!("rope-base".parse::<PathSpec>().is_err());
    }
}
