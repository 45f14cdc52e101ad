//! Control lanes: a side beside itself. What they show is no difference between two paths, so a verdict
//! is about what a comparison shows beyond it.

use std::{cell::RefCell, collections::BTreeMap, collections::VecDeque, path::PathBuf, rc::Rc};

use mlx_parity_tensor::{Dtype, HostTensor, safetensors};
use serde::{Deserialize, Serialize};

use super::{
    error::KlError,
    feed::{DumpFeed, Feed, LaneFeed, StoredFeed},
    options::{Asked, Options},
    pass::{pass, score_call},
    plan::Plan,
    protocol::{Reply, Request},
    record::Record,
    summing,
    windows::Call,
    worker::{Worker, out_of_turn},
};
use crate::{
    stats::{Position, Summary},
    store::{Dump, Store},
};

/// A side beside itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlLane {
    /// `teacher twice`.
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

/// Runs the lane of one side: an engine's logits once more in a fresh process, beside those kept; a file
/// read twice.
pub(super) fn run(
    name: &str,
    asked: &Asked,
    plan: &Plan,
    options: &Options,
    record: &Record,
) -> Result<(ControlLane, Option<u64>), KlError> {
    let windows = plan.control_windows(options.control);
    let calls: Vec<_> =
        plan.calls(0).into_iter().take_while(|call| call.window < windows).collect();
    let mut worker = None;
    let (mut first, mut second, how): (Box<dyn Feed>, Box<dyn Feed>, _) = match asked {
        Asked::Engine { .. } => {
            let lane = fresh_lane(asked, options)?;
            worker = Some(Rc::clone(&lane.worker));
            let kept = KeptFeed { record, side: name, asked: VecDeque::new() };
            (Box::new(kept), Box::new(lane), "computed again in a fresh process")
        }
        Asked::Stored { digest } => {
            let store = Store::open(&options.store, options.budget)?;
            let read = || Ok::<_, KlError>(Box::new(StoredFeed::new(store.get(digest)?)));
            (read()?, read()?, "read again from the store")
        }
        Asked::Dump { file } => {
            let read = || Ok::<_, KlError>(Box::new(DumpFeed::new(Dump::open(file)?)));
            (read()?, read()?, "read again from the file")
        }
    };
    let mut positions: Vec<Position> = Vec::new();
    let mut equal_bits = 0;
    pass(&calls, &plan.tokens.ids, [first.as_mut(), second.as_mut()], |call, [a, b]| {
        if call.rows.is_empty() {
            return Ok(());
        }
        equal_bits += equal_rows(&a, &b);
        positions.extend(score_call(call, [&a, &b], &plan.tokens, options)?.positions);
        Ok(())
    })?;
    let clusters = summing::clusters(&plan.windows[..windows], plan.tokens.cut.window);
    let summary = summing::summary(&positions, &clusters, 0.0, &options.statistics);
    let peak = worker.and_then(|worker| worker.borrow().peak_memory());
    let lane = ControlLane {
        name: format!("{name} twice"),
        how: how.to_owned(),
        windows,
        equal_bits,
        flipped_margin: flipped_margin(&positions),
        summary,
    };
    Ok((lane, peak))
}

fn fresh_lane(asked: &Asked, options: &Options) -> Result<LaneFeed, KlError> {
    let Asked::Engine { name, folder, composition } = asked else {
        return Err(KlError::usage("only an engine computes"));
    };
    let trouble = KlError::of(name);
    let mut worker = Worker::start(&options.program, options.limit).map_err(&trouble)?;
    let load = Request::Load { model: folder.clone() };
    let open = Request::Open { lane: 0, composition: *composition };
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
