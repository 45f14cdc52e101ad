//! What the parent and a worker that computes logits say to each other: a JSON line each way, and
//! behind the line of a [`Reply::Logits`] the logits themselves, as bytes.

use std::{
    io::{self, BufRead, Write},
    path::PathBuf,
};

use mlx_parity_tensor::Dtype;
use serde::{Deserialize, Serialize};

use crate::{composition::Spelled, fingerprint::Fingerprint};

/// What the parent asks. Requests are answered in order, each by one reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Say what identifies a model, and what ids its tokenizer gives some texts.
    Inspect {
        /// The model's folder.
        model: PathBuf,
        /// Files with UTF-8 text, a document each.
        texts: Vec<PathBuf>,
    },
    /// Load a model. Once in a worker's life.
    Load {
        /// The model's folder.
        model: PathBuf,
    },
    /// Make a lane: a sequence of the loaded model under a composition.
    Open {
        /// The lane's number: lanes are opened as 0, 1, ….
        lane: usize,
        /// How it computes.
        composition: Spelled,
    },
    /// Run tokens of a lane in one call.
    Extend {
        /// The lane.
        lane: usize,
        /// Forget what the lane has seen first.
        fresh: bool,
        /// The tokens.
        ids: Vec<u32>,
        /// The positions among them whose logits are wanted: the first, and one past the last.
        wanted: [usize; 2],
    },
}

/// What a worker answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// First line: where this worker computes.
    Hello(Fingerprint),
    /// It cannot do what was asked.
    Refused(String),
    /// To [`Request::Inspect`].
    Inspected(Box<Inspected>),
    /// To [`Request::Load`].
    Loaded {
        /// Columns of the logits.
        vocab: usize,
        /// Their element type.
        dtype: Dtype,
    },
    /// To [`Request::Open`]: what the caches are now and how they are attended to, in the engine's
    /// words.
    Opened {
        /// The composition.
        composition: String,
    },
    /// To [`Request::Extend`]: `rows * vocab` values follow, row by row, little-endian.
    Logits {
        /// Their element type.
        dtype: Dtype,
        /// Wanted positions.
        rows: usize,
        /// Values of each.
        vocab: usize,
    },
}

/// What identifies a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inspected {
    /// Digest of the tensors.
    pub weights: String,
    /// Digest of the configuration.
    pub config: String,
    /// Bytes of the tensors.
    pub bytes: u64,
    /// Digest of the tokenizer's ids and their tokens; none where the folder has no tokenizer.
    pub tokenizer: Option<String>,
    /// The ids of each text.
    pub ids: Vec<Vec<u32>>,
}

/// Writes a line, and behind it the bytes it announces, and flushes.
pub(super) fn say(out: &mut impl Write, line: &impl Serialize, payload: &[u8]) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")?;
    out.write_all(payload)?;
    out.flush()
}

/// Reads a reply and the bytes behind it; none at the end of the pipe.
pub(super) fn hear(pipe: &mut impl BufRead) -> io::Result<Option<(Reply, Vec<u8>)>> {
    let mut line = String::new();
    if pipe.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let reply: Reply = serde_json::from_str(&line).map_err(|_| {
        let start: String = line.chars().take(80).collect();
        io::Error::new(io::ErrorKind::InvalidData, format!("it wrote `{}`", start.trim_end()))
    })?;
    let mut payload = Vec::new();
    if let Reply::Logits { dtype, rows, vocab } = reply {
        payload = vec![0; rows * vocab * dtype.size()];
        pipe.read_exact(&mut payload)?;
    }
    Ok(Some((reply, payload)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_ends_where_the_next_line_begins() {
        let logits = Reply::Logits { dtype: Dtype::Bf16, rows: 2, vocab: 3 };
        let bytes = *b"\n{}\n12345678";
        let mut pipe = Vec::new();
        say(&mut pipe, &logits, &bytes).unwrap();
        say(&mut pipe, &Reply::Refused("no".into()), &[]).unwrap();
        let mut pipe = pipe.as_slice();
        let (_, payload) = hear(&mut pipe).unwrap().unwrap();
        assert_eq!(payload, bytes);
        assert!(matches!(hear(&mut pipe), Ok(Some((Reply::Refused(_), _)))));
        assert!(matches!(hear(&mut pipe), Ok(None)));
    }

    #[test]
    fn a_line_that_is_none_and_a_payload_cut_short_are_errors() {
        let error = hear(&mut b"Segmentation fault\n".as_slice()).unwrap_err();
        assert!(error.to_string().contains("Segmentation fault"));
        let logits = Reply::Logits { dtype: Dtype::F32, rows: 1, vocab: 2 };
        let mut pipe = Vec::new();
        say(&mut pipe, &logits, &[0; 7]).unwrap();
        assert!(hear(&mut pipe.as_slice()).is_err());
    }
}
