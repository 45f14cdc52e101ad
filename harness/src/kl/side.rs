//! A side while a comparison is prepared: what it is, what it knows of its tokens, where its logits come
//! from.

use std::{cell::RefCell, fs, path::Path, rc::Rc, time::UNIX_EPOCH};

use mlx_parity_tensor::Dtype;
use serde::{Deserialize, Serialize};

use super::{
    error::KlError,
    feed::{DumpFeed, Feed, LaneFeed, StoredFeed},
    options::{Asked, Options},
    protocol::{Inspected, Reply, Request},
    tokens::{Filed, cut_of_dump},
    windows::Cut,
    worker::{Worker, out_of_turn},
};
use crate::{
    composition::Spelled,
    fingerprint::Fingerprint,
    store::{Dump, Key, Reader, Store},
};

/// What a side is, for the report, and to tell whether a run may be gone on with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SideInfo {
    /// As it was named.
    pub source: String,
    /// What was computed, and how; of a dump nothing is known but its file.
    pub origin: Origin,
    /// Values of a position.
    pub vocab: usize,
    /// Their element type.
    pub dtype: Dtype,
}

/// Where a side's logits were computed, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Origin {
    /// By this engine, now or when they were stored.
    Engine(Box<Computed>),
    /// By another engine.
    Dump {
        /// Bytes of the file.
        bytes: u64,
        /// When it was last changed, in milliseconds since 1970.
        modified: u64,
    },
}

/// What decides logits that this engine computed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Computed {
    /// Digest of the tensors.
    pub weights: String,
    /// Digest of the configuration.
    pub config: String,
    /// Caches, route of attention, tokens of a call.
    pub composition: String,
    /// Where.
    pub fingerprint: Fingerprint,
    /// Build of the engine.
    pub revision: String,
}

/// A worker and what identifies its model.
pub(super) struct Inspection {
    pub worker: Rc<RefCell<Worker>>,
    pub found: Inspected,
    /// Columns and element type of the logits, once the model is loaded.
    pub loaded: Option<(usize, Dtype)>,
    pub lanes: usize,
}

/// Where a side's logits come from.
pub(super) enum Side {
    Engine { name: String, composition: Spelled, inspection: Rc<RefCell<Inspection>> },
    Stored { reader: Box<Reader> },
    Dump { dump: Dump },
}

impl Side {
    /// Opens a side; sides of one model share a worker.
    pub(super) fn open(
        asked: &Asked,
        options: &Options,
        known: &mut Vec<(std::path::PathBuf, Rc<RefCell<Inspection>>)>,
    ) -> Result<Self, KlError> {
        Ok(match asked {
            Asked::Engine { name, folder, composition } => {
                let same = known.iter().find(|(other, _)| other == folder);
                let inspection = match same {
                    Some((_, inspection)) => Rc::clone(inspection),
                    None => Rc::new(RefCell::new(Inspection::of(name, folder, options)?)),
                };
                known.push((folder.clone(), Rc::clone(&inspection)));
                Self::Engine { name: name.clone(), composition: composition.clone(), inspection }
            }
            Asked::Stored { digest } => {
                let store = Store::open(&options.store, options.budget)?;
                Self::Stored { reader: Box::new(store.get(digest)?) }
            }
            Asked::Dump { file } => Self::Dump { dump: Dump::open(file)? },
        })
    }

    /// The tokens of logits on file.
    pub(super) fn filed(&self) -> Result<Option<Filed>, KlError> {
        Ok(match self {
            Self::Engine { .. } => None,
            Self::Stored { reader } => Some(filed_of_key(reader.key())?),
            Self::Dump { dump } => Some(filed_of_dump(dump)),
        })
    }

    /// Columns and element type of its logits; loads a model.
    pub(super) fn shape(&self, folder: &Asked) -> Result<(usize, Dtype), KlError> {
        match self {
            Self::Engine { name, inspection, .. } => inspection.borrow_mut().load(name, folder),
            Self::Stored { reader } => Ok((reader.key().vocab, reader.key().dtype)),
            Self::Dump { dump } => Ok((dump.vocab(), dump.dtype())),
        }
    }

    /// The feed of its logits, and what they are.
    pub(super) fn feed(
        self,
        source: String,
        call: usize,
        revision: &str,
        shape: (usize, Dtype),
    ) -> Result<(Box<dyn Feed>, SideInfo), KlError> {
        let (vocab, dtype) = shape;
        let info = |origin| SideInfo { source, origin, vocab, dtype };
        Ok(match self {
            Self::Engine { name, composition, inspection } => {
                let mut inspection = inspection.borrow_mut();
                let (lane, words) = inspection.lane(&name, composition)?;
                let computed = Computed {
                    weights: inspection.found.weights.clone(),
                    config: inspection.found.config.clone(),
                    composition: with_calls(&words, call),
                    fingerprint: inspection.worker.borrow().fingerprint().clone(),
                    revision: revision.to_owned(),
                };
                let origin = Origin::Engine(Box::new(computed));
                let worker = Rc::clone(&inspection.worker);
                (Box::new(LaneFeed { worker, lane, who: name }), info(origin))
            }
            Self::Stored { reader } => {
                let key = reader.key();
                let computed = Computed {
                    weights: key.weights.clone(),
                    config: key.config.clone(),
                    composition: key.composition.clone(),
                    fingerprint: key.fingerprint.clone(),
                    revision: key.engine.clone(),
                };
                let origin = Origin::Engine(Box::new(computed));
                (Box::new(StoredFeed::new(*reader)), info(origin))
            }
            Self::Dump { dump } => {
                let origin = stamp(dump.path())?;
                (Box::new(DumpFeed::new(dump)), info(origin))
            }
        })
    }
}

/// The tokens of a stored teacher.
pub(super) fn filed_of_key(key: &Key) -> Result<Filed, KlError> {
    let cut: Cut = key.windows.parse().map_err(KlError::usage)?;
    let from = "the stored teacher".to_owned();
    Ok(Filed { ids: key.ids.clone(), cut, all_positions: false, from })
}

/// The tokens of a dump.
pub(super) fn filed_of_dump(dump: &Dump) -> Filed {
    let cut = cut_of_dump(dump.ids().len(), dump.window());
    let from = dump.path().display().to_string();
    Filed { ids: dump.ids().to_vec(), cut, all_positions: true, from }
}

impl Inspection {
    fn of(name: &str, folder: &Path, options: &Options) -> Result<Self, KlError> {
        let trouble = KlError::of(name);
        let mut worker = Worker::start(&options.program, options.limit).map_err(&trouble)?;
        let request = Request::Inspect { model: folder.to_owned(), texts: options.texts.clone() };
        let found = match worker.ask(&request).map_err(&trouble)? {
            Reply::Inspected(found) => *found,
            other => return Err(trouble(out_of_turn(&other))),
        };
        Ok(Self { worker: Rc::new(RefCell::new(worker)), found, loaded: None, lanes: 0 })
    }

    fn load(&mut self, name: &str, asked: &Asked) -> Result<(usize, Dtype), KlError> {
        let trouble = KlError::of(name);
        if let (None, Asked::Engine { folder, .. }) = (self.loaded, asked) {
            let request = Request::Load { model: folder.clone() };
            let reply = self.worker.borrow_mut().ask(&request).map_err(&trouble)?;
            let Reply::Loaded { vocab, dtype } = reply else {
                return Err(trouble(out_of_turn(&reply)));
            };
            self.loaded = Some((vocab, dtype));
        }
        self.loaded.ok_or_else(|| KlError::usage(format_args!("{name} is not loaded")))
    }

    /// A new lane, and its composition in the engine's words.
    fn lane(&mut self, name: &str, composition: Spelled) -> Result<(usize, String), KlError> {
        let trouble = KlError::of(name);
        let lane = self.lanes;
        let request = Request::Open { lane, composition };
        let reply = self.worker.borrow_mut().ask(&request).map_err(&trouble)?;
        let Reply::Opened { composition } = reply else {
            return Err(trouble(out_of_turn(&reply)));
        };
        self.lanes += 1;
        Ok((lane, composition))
    }
}

const CALLS: &str = ", calls of ";

/// A composition with the split into calls, which decides kernels too.
fn with_calls(words: &str, call: usize) -> String {
    format!("{words}{CALLS}{call}")
}

/// The tokens of a call that a stored composition tells.
pub(super) fn calls_of(composition: &str) -> Option<usize> {
    composition.rsplit_once(CALLS)?.1.parse().ok()
}

fn stamp(path: &Path) -> Result<Origin, KlError> {
    let wrong = |source| KlError::Record { action: "read", path: path.into(), source };
    let data = fs::metadata(path).map_err(wrong)?;
    let modified = data.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let modified = modified.map_or(0, |since| since.as_millis() as u64);
    Ok(Origin::Dump { bytes: data.len(), modified })
}
