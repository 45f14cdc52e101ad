//! The worker's side: one model, lanes of it, logits on stdout.

use std::{
    fmt::Write as _,
    fs,
    io::{self, BufRead as _, BufWriter, Lines, StdinLock, StdoutLock, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use mlx_parity_engine::{Decoder, LoadOptions, Model, Tokenizer, clear_cache, runtime_info};

use super::protocol::{Inspected, Reply, Request, say};
use crate::{
    composition::{self, Spelled},
    digest,
    fingerprint::Fingerprint,
    weights::ModelDigests,
};

/// Serves requests until stdin ends.
pub fn serve() -> anyhow::Result<()> {
    let mut pipes = Pipes {
        requests: io::stdin().lock().lines(),
        replies: BufWriter::new(io::stdout().lock()),
    };
    match runtime_info() {
        Ok(info) => {
            pipes.say(&Reply::Hello(Fingerprint::here(&info.mlx_version, &info.backend)))?;
        }
        Err(error) => return pipes.refuse(&error.into()),
    }
    while let Some(request) = pipes.next()? {
        match request {
            Request::Inspect { model, texts } => match inspect(&model, &texts) {
                Ok(found) => pipes.say(&Reply::Inspected(Box::new(found)))?,
                Err(error) => pipes.refuse(&error)?,
            },
            Request::Load { model } => match Model::load(&model, &LoadOptions::default()) {
                Ok(model) => return serve_lanes(&model, &mut pipes),
                Err(error) => pipes.refuse(&error.into())?,
            },
            Request::Open { .. } | Request::Extend { .. } => {
                pipes.refuse(&anyhow::anyhow!("no model is loaded"))?;
            }
        }
    }
    Ok(())
}

struct Pipes {
    requests: Lines<StdinLock<'static>>,
    replies: BufWriter<StdoutLock<'static>>,
}

impl Pipes {
    fn next(&mut self) -> anyhow::Result<Option<Request>> {
        let Some(line) = self.requests.next() else { return Ok(None) };
        Ok(Some(serde_json::from_str(&line?)?))
    }

    fn say(&mut self, reply: &Reply) -> anyhow::Result<()> {
        Ok(say(&mut self.replies, reply, &[])?)
    }

    fn refuse(&mut self, error: &anyhow::Error) -> anyhow::Result<()> {
        self.say(&Reply::Refused(format!("{error:#}")))
    }
}

/// A sequence under a composition.
struct Lane<'m> {
    composition: Spelled,
    decoder: Decoder<'m>,
}

fn serve_lanes(model: &Model, pipes: &mut Pipes) -> anyhow::Result<()> {
    pipes.say(&Reply::Loaded { vocab: model.vocab_size(), dtype: model.dtype() })?;
    let mut lanes = Vec::new();
    while let Some(request) = pipes.next()? {
        match request {
            Request::Open { lane, composition } if lane == lanes.len() => {
                match composition::decoder(model, &composition) {
                    Ok(decoder) => {
                        let name = decoder.composition().to_string();
                        lanes.push(Lane { composition, decoder });
                        pipes.say(&Reply::Opened { composition: name })?;
                    }
                    Err(error) => pipes.refuse(&error.into())?,
                }
            }
            Request::Extend { lane, fresh, ids, wanted } if lane < lanes.len() => {
                extend(model, &mut lanes[lane], fresh, &ids, wanted, pipes)?;
            }
            other => pipes.refuse(&anyhow::anyhow!("out of turn: {other:?}"))?,
        }
    }
    Ok(())
}

fn extend<'m>(
    model: &'m Model,
    lane: &mut Lane<'m>,
    fresh: bool,
    ids: &[u32],
    wanted: [usize; 2],
    pipes: &mut Pipes,
) -> anyhow::Result<()> {
    if fresh {
        lane.decoder = composition::decoder(model, &lane.composition)?;
    }
    let logits = match lane.decoder.verify(ids) {
        Ok(logits) => logits,
        Err(error) => return pipes.refuse(&error.into()),
    };
    // Buffers of another length would pile up behind those in use.
    clear_cache()?;
    let (dtype, vocab) = (logits.dtype(), model.vocab_size());
    let row = vocab * dtype.size();
    let [first, end] = wanted;
    let bytes = logits.bytes().get(first * row..end * row).context("wanted rows are none")?;
    let reply = Reply::Logits { dtype, rows: end - first, vocab };
    say(&mut pipes.replies, &reply, bytes)?;
    Ok(pipes.replies.flush()?)
}

fn inspect(model: &Path, texts: &[PathBuf]) -> anyhow::Result<Inspected> {
    let ModelDigests { weights, config } = ModelDigests::of(model)?;
    let tokenizer = (model.join("tokenizer.json").is_file() || !texts.is_empty())
        .then(|| Tokenizer::load(model))
        .transpose()?;
    let ids = texts.iter().map(|path| {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let tokenizer = tokenizer.as_ref().context("no tokenizer")?;
        Ok(if text.is_empty() { Vec::new() } else { tokenizer.encode(&text)? })
    });
    Ok(Inspected {
        weights,
        config,
        bytes: bytes(model)?,
        ids: ids.collect::<anyhow::Result<_>>()?,
        tokenizer: tokenizer.map(|tokenizer| digest_of(&tokenizer)),
    })
}

/// Bytes of the folder's safetensors files.
fn bytes(model: &Path) -> io::Result<u64> {
    let files = fs::read_dir(model)?.flatten();
    let weights = files.filter(|file| file.path().extension().is_some_and(|x| x == "safetensors"));
    weights.map(|file| Ok(fs::metadata(file.path())?.len())).sum()
}

/// Two tokenizers of one digest give every id the same token.
fn digest_of(tokenizer: &Tokenizer) -> String {
    let mut text = String::new();
    for (id, token) in tokenizer.tokens() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{id} {token:?}");
    }
    digest::of_bytes(text.as_bytes())
}
