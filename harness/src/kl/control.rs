//! Control lanes: a side beside itself, or beside what should be the same. What they show is no difference between two paths, so a verdict
//! is about what a comparison shows beyond it.

use std::{cell::RefCell, collections::BTreeMap, collections::VecDeque, path::PathBuf, rc::Rc};

use mlx_parity_tensor::{Dtype, HostTensor, safetensors};
use serde::{Deserialize, Serialize};

use super::{
    error::{KlError, name},
    feed::{DumpFeed, Feed, LaneFeed, StoredFeed},
    options::{Asked, Options},
    pass::{pass, score_call},
    plan::Plan,
    protocol::{Reply, Request},
    record::Record,
    side::{Origin, filed_of_dump, filed_of_key},
    summing,
    windows::Call,
    worker::{Worker, out_of_turn},
};
use crate::{
    stats::{Position, Side, Summary},
    store::{Dump, Key, State, Store},
};

/// A side beside itself, or beside what should be the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlLane {
    /// `teacher twice`, `teacher beside store:…`.
    pub name: String,
    /// What was done again.
    pub how: String,
    /// The first windows of the text, so many.
    pub windows: usize,
    /// Positions whose logits have the same bits both times.
    pub equal_bits: usize,
    /// The numbers.
    pub summary: Summary,
    /// The widest margin, in nats, at which the argmax of the two differed; 0 where none did.
    pub flipped_margin: f64,
}

/// Puts a side's logits of a control window on disk.
pub(super) fn keep(
    record: &Record,
    side: &str,
    call: &Call,
    logits: &HostTensor,
) -> Result<(), KlError> {
    let path = record.control_file(side, call.rows.start);
    safetensors::write(&path, [("logits".to_owned(), logits)], &BTreeMap::new())
        .map_err(|error| super::record::failed("write", &path)(std::io::Error::other(error)))
}

/// Logits once more, and the worker that computes them.
type Again = (Box<dyn Feed>, Option<Rc<RefCell<Worker>>>);

/// What a lane is run with.
pub(super) struct Control<'a> {
    pub plan: &'a Plan,
    pub options: &'a Options,
    pub record: &'a Record,
}

impl<'a> Control<'a> {
    /// A side beside itself: an engine's logits once more in a fresh process, beside those kept; a file
    /// read twice. Gives the most bytes that the process held, too.
    pub fn twice(
        &self,
        side: &'a str,
        asked: &Asked,
    ) -> Result<(ControlLane, Option<u64>), KlError> {
        let how = match asked {
            Asked::Engine { .. } => "computed again in a fresh process",
            Asked::Stored { .. } => "read again from the store",
            Asked::Dump { .. } => "read again from the file",
        };
        let (second, worker) = self.again(asked)?;
        let lane = self.lane(format!("{side} twice"), how, [self.once(side, asked)?, second])?;
        Ok((lane, worker.and_then(|worker| worker.borrow().peak_memory())))
    }

    /// The teacher beside what should be the same: of another chip, version or engine.
    pub fn beside(&self, teacher: &'a Asked, other: &Asked) -> Result<ControlLane, KlError> {
        let tokens = &self.plan.tokens;
        let (second, how): (Box<dyn Feed>, _) = match other {
            Asked::Engine { .. } => {
                (self.again(other)?.0, "computed in a process of its own".into())
            }
            Asked::Stored { digest } => {
                let reader = Store::open(&self.options.store, self.options.budget)?.get(digest)?;
                tokens.same("the teacher", &filed_of_key(reader.key())?)?;
                let how = format!("computed on {}", reader.key().fingerprint.class());
                (Box::new(StoredFeed::new(reader)), how)
            }
            Asked::Dump { file } => {
                let dump = Dump::open(file)?;
                tokens.same("the teacher", &filed_of_dump(&dump))?;
                (Box::new(DumpFeed::new(dump)), "computed elsewhere".to_owned())
            }
        };
        let first = self.once(name(Side::Teacher), teacher)?;
        self.lane(format!("teacher beside {other}"), &how, [first, second])
    }

    /// Stored teachers of another fingerprint, all else equal.
    pub fn elsewhere(&self) -> Result<Vec<Asked>, KlError> {
        let (plan, options) = (self.plan, self.options);
        let Origin::Engine(computed) = &plan.teacher.origin else { return Ok(Vec::new()) };
        if !options.store.is_dir() {
            return Ok(Vec::new());
        }
        let entries = Store::open(&options.store, options.budget)?.entries()?;
        let same = |key: &Key| {
            key.weights == computed.weights
                && key.config == computed.config
                && key.composition == computed.composition
                && key.ids == plan.tokens.ids
                && key.windows == plan.tokens.cut.to_string()
                && key.fingerprint != computed.fingerprint
        };
        // An entry that cannot be read is none of ours; `store verify` names it.
        let whole = entries.into_iter().filter(|entry| entry.state == State::Whole);
        let found = whole.filter(|entry| entry.key().is_ok_and(|key| same(&key)));
        Ok(found.map(|entry| Asked::Stored { digest: entry.digest }).collect())
    }

    /// The logits that the comparison saw.
    fn once(&self, side: &'a str, asked: &Asked) -> Result<Box<dyn Feed + 'a>, KlError> {
        match asked {
            Asked::Engine { .. } => {
                let record = self.record;
                Ok(Box::new(KeptFeed { record, side, asked: VecDeque::new() }))
            }
            _ => Ok(self.again(asked)?.0),
        }
    }

    /// The logits computed, or read, once more.
    fn again(&self, asked: &Asked) -> Result<Again, KlError> {
        Ok(match asked {
            Asked::Engine { .. } => {
                let lane = fresh_lane(asked, self.options)?;
                let worker = Rc::clone(&lane.worker);
                (Box::new(lane), Some(worker))
            }
            Asked::Stored { digest } => {
                let store = Store::open(&self.options.store, self.options.budget)?;
                (Box::new(StoredFeed::new(store.get(digest)?)), None)
            }
            Asked::Dump { file } => (Box::new(DumpFeed::new(Dump::open(file)?)), None),
        })
    }

    fn lane(
        &self,
        name: String,
        how: &str,
        [mut first, mut second]: [Box<dyn Feed + 'a>; 2],
    ) -> Result<ControlLane, KlError> {
        let Self { plan, options, .. } = self;
        let windows = plan.control_windows(options.control);
        let calls: Vec<_> =
            plan.calls(0).into_iter().take_while(|call| call.window < windows).collect();
        let mut positions: Vec<Position> = Vec::new();
        let mut equal_bits = 0;
        pass(&calls, &plan.tokens.ids, [&mut *first, &mut *second], |call, [a, b]| {
            if call.rows.is_empty() {
                return Ok(());
            }
            equal_bits += equal_rows(&a, &b);
            positions.extend(score_call(call, [&a, &b], &plan.tokens, options)?.positions);
            Ok(())
        })?;
        let clusters = summing::clusters(&plan.windows[..windows], plan.tokens.cut.window);
        let summary = summing::summary(&positions, &clusters, 0.0, &options.statistics);
        let flipped_margin = flipped_margin(&positions);
        let how = how.to_owned();
        Ok(ControlLane { name, how, windows, equal_bits, summary, flipped_margin })
    }
}

fn fresh_lane(asked: &Asked, options: &Options) -> Result<LaneFeed, KlError> {
    let Asked::Engine { name, folder, composition } = asked else {
        return Err(KlError::usage("only an engine computes"));
    };
    let trouble = KlError::of(name);
    let mut worker = Worker::start(&options.program, options.limit).map_err(&trouble)?;
    let load = Request::Load { model: folder.clone() };
    let open = Request::Open { lane: 0, composition: composition.clone() };
    match worker.ask(&load).map_err(&trouble)? {
        Reply::Loaded { .. } => {}
        other => return Err(trouble(out_of_turn(&other))),
    }
    match worker.ask(&open).map_err(&trouble)? {
        Reply::Opened { .. } => {}
        other => return Err(trouble(out_of_turn(&other))),
    }
    Ok(LaneFeed { worker: Rc::new(RefCell::new(worker)), lane: 0, who: name.clone() })
}

/// Logits that the comparison left on disk.
struct KeptFeed<'a> {
    record: &'a Record,
    side: &'a str,
    asked: VecDeque<Option<PathBuf>>,
}

impl Feed for KeptFeed<'_> {
    fn ask(&mut self, call: &Call, _ids: &[u32]) -> Result<(), KlError> {
        let kept = !call.rows.is_empty();
        self.asked.push_back(kept.then(|| self.record.control_file(self.side, call.rows.start)));
        Ok(())
    }

    fn take(&mut self) -> Result<HostTensor, KlError> {
        let Some(path) = self.asked.pop_front().flatten() else {
            return HostTensor::zeros(Dtype::F32, [0, 0]).map_err(KlError::usage);
        };
        let damaged = |message: String| KlError::Damaged { path: path.clone(), message };
        let file = safetensors::SafetensorsFile::open(&path)
            .map_err(|error| damaged(error.to_string()))?;
        let logits = file.view("logits").map_err(|error| damaged(error.to_string()))?;
        Ok(logits.to_host())
    }
}

/// Rows of the same bits.
fn equal_rows(a: &HostTensor, b: &HostTensor) -> usize {
    let row = a.bytes().len() / a.shape()[0].max(1);
    if row == 0 || a.dtype() != b.dtype() {
        return 0;
    }
    let pairs = a.bytes().chunks_exact(row).zip(b.bytes().chunks_exact(row));
    pairs.filter(|(a, b)| a == b).count()
}

fn flipped_margin(positions: &[Position]) -> f64 {
    let flipped = positions.iter().filter(|position| position.is_scored() && !position.agree);
    flipped.map(|position| position.margin_teacher).fold(0.0, f64::max)
}
