//! Everything a comparison needs before the first position: tokens, windows, and both sides opened.

use std::{cell::RefCell, path::PathBuf, rc::Rc};

use mlx_parity_tensor::Dtype;
use serde::Serialize;

use super::{
    error::KlError,
    feed::{Feed, StoredFeed},
    options::Options,
    side::{Computed, Inspection, Origin, Side, SideInfo, calls_of},
    tokens::Tokens,
    windows::{Call, Window},
    worker::Worker,
};
use crate::{
    digest,
    store::{self, Claim, Key, Store, Writer},
};

/// Bytes of logits that a call gives by default.
pub const CALL_BYTES: usize = 32 << 20;
/// Bytes of logits that a call may give.
const MOST_CALL_BYTES: usize = 64 << 20;
/// Tokens that a call may take: requests must fit into a pipe.
const MOST_CALL_TOKENS: usize = 4096;
/// Calls of many tokens take a multiple of this.
const CALL_STEP: usize = 32;

/// Version of what a run's folder holds.
const SCHEMA: u32 = 1;

/// A comparison that can begin.
pub(super) struct Plan {
    pub tokens: Tokens,
    pub windows: Vec<Window>,
    /// Tokens of a call.
    pub call: usize,
    pub teacher: SideInfo,
    pub student: SideInfo,
    /// Both sides' logits, until they are read.
    pub feeds: Option<[Box<dyn Feed>; 2]>,
    pub workers: Vec<Rc<RefCell<Worker>>>,
    /// Keeps the teacher's logits.
    pub writer: Option<Writer>,
    /// What the report should say besides.
    pub notes: Vec<String>,
}

/// What a run may be gone on with by.
#[derive(Serialize)]
struct Identity<'a> {
    schema: u32,
    teacher: &'a SideInfo,
    student: &'a SideInfo,
    ids: String,
    cut: String,
    call: usize,
    control: usize,
    beside: Vec<String>,
    top_k: usize,
}

impl Plan {
    /// Opens both sides and settles what they are compared on.
    ///
    /// # Errors
    /// Whatever keeps the comparison from being made; nothing is scored before.
    pub(super) fn make(options: &Options) -> Result<Self, KlError> {
        let mut known = Vec::new();
        let asked = [&options.teacher, &options.student];
        let [teacher, student] = asked.map(|asked| Side::open(asked, options, &mut known));
        let (teacher, student) = (teacher?, student?);
        let mut notes = same_tokenizer(&known)?;
        let encoded = encoded(options, &known)?;
        let filed: Vec<_> = [teacher.filed()?, student.filed()?].into_iter().flatten().collect();
        let tokens = Tokens::settle(options, encoded, &filed)?;
        let shapes = [teacher.shape(asked[0])?, student.shape(asked[1])?];
        if shapes[0].0 != shapes[1].0 {
            let [teacher, student] = shapes.map(|(vocab, _)| format!("{vocab} tokens"));
            return Err(KlError::Mismatch { what: "the vocabularies", teacher, student });
        }
        tokens.within(shapes[0].0)?;
        let call = call(options, &tokens, &shapes, [&teacher, &student])?;
        let revision = store::revision().unwrap_or_else(|_| "unknown".to_owned());
        let [a, b] = asked.map(ToString::to_string);
        let (mut teacher_feed, teacher) = teacher.feed(a, call, &revision, shapes[0])?;
        let (student_feed, student) = student.feed(b, call, &revision, shapes[1])?;
        let windows = tokens.cut.windows();
        let mut writer = None;
        if options.keep {
            match claim(options, &tokens, &windows, &teacher)? {
                Claim::Hit(reader) => {
                    notes.push("the teacher's logits come from the store".to_owned());
                    teacher_feed = Box::new(StoredFeed::new(reader));
                }
                Claim::Miss(free) => writer = Some(free),
            }
        }
        let feeds = Some([teacher_feed, student_feed]);
        let workers = workers(&known);
        Ok(Self { tokens, windows, call, teacher, student, feeds, workers, writer, notes })
    }

    /// Two runs of one digest compute the same positions.
    pub(super) fn digest(&self, options: &Options) -> String {
        let ids: Vec<u8> = self.tokens.ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        let identity = Identity {
            schema: SCHEMA,
            teacher: &self.teacher,
            student: &self.student,
            ids: digest::of_bytes(&ids),
            cut: self.tokens.cut.to_string(),
            call: self.call,
            control: options.control,
            beside: options.beside.iter().map(ToString::to_string).collect(),
            top_k: options.statistics.top_k,
        };
        digest::of_bytes(&serde_json::to_vec(&identity).expect("an identity is plain data"))
    }

    /// The calls of windows `from` and later.
    pub(super) fn calls(&self, from: usize) -> Vec<Call> {
        let windows = self.windows.iter().enumerate().skip(from);
        windows.flat_map(|(index, window)| window.calls(index, self.call)).collect()
    }

    /// Positions that are scored.
    pub(super) fn positions(&self) -> usize {
        self.windows.iter().map(|window| window.scored.len()).sum()
    }

    /// Windows whose positions a control lane takes: the first ones with `least` positions.
    pub(super) fn control_windows(&self, least: usize) -> usize {
        let before = |window: &&Window| window.first_row < least.max(1);
        self.windows.iter().take_while(before).count()
    }
}

type Known = [(PathBuf, Rc<RefCell<Inspection>>)];

fn workers(known: &Known) -> Vec<Rc<RefCell<Worker>>> {
    let mut workers: Vec<Rc<RefCell<Worker>>> = Vec::new();
    for (_, inspection) in known {
        let worker = &inspection.borrow().worker;
        if !workers.iter().any(|other| Rc::ptr_eq(other, worker)) {
            workers.push(Rc::clone(worker));
        }
    }
    workers
}

/// Refuses two models whose tokenizers have other tokens for an id, or other ids for the text; notes
/// where they cannot be compared.
fn same_tokenizer(known: &Known) -> Result<Vec<String>, KlError> {
    let found: Vec<_> =
        known.iter().map(|(_, inspection)| inspection.borrow().found.clone()).collect();
    let [teacher, student] = found.as_slice() else {
        return Ok(vec!["tokenizers are not compared: one side is on file".to_owned()]);
    };
    let (Some(a), Some(b)) = (&teacher.tokenizer, &student.tokenizer) else {
        return Ok(vec!["tokenizers are not compared: not both sides have one".to_owned()]);
    };
    let say = |tokens: &str, ids: &[Vec<u32>]| {
        let ids = ids.iter().map(Vec::len).sum::<usize>();
        format!("{tokens} with {ids} tokens of the text")
    };
    if a == b && teacher.ids == student.ids {
        return Ok(Vec::new());
    }
    let (teacher, student) = (say(a, &teacher.ids), say(b, &student.ids));
    Err(KlError::Mismatch { what: "the tokenizers", teacher, student })
}

/// The ids that the first model's tokenizer gives the texts.
fn encoded(options: &Options, known: &Known) -> Result<Option<Vec<Vec<u32>>>, KlError> {
    if options.texts.is_empty() {
        return Ok(None);
    }
    let first = known.first().ok_or_else(|| {
        KlError::usage("--text: neither side has a tokenizer; the ids on file are used without it")
    })?;
    Ok(Some(first.1.borrow().found.ids.clone()))
}

/// Tokens of a call: as asked, as a stored teacher had them, or what [`CALL_BYTES`] hold.
fn call(
    options: &Options,
    tokens: &Tokens,
    shapes: &[(usize, Dtype); 2],
    sides: [&Side; 2],
) -> Result<usize, KlError> {
    let token = shapes.iter().map(|(vocab, dtype)| vocab * dtype.size()).max().unwrap_or(1);
    let most = (MOST_CALL_BYTES / token).clamp(1, MOST_CALL_TOKENS);
    if let Some(call) = options.call {
        return if (1..=most).contains(&call) {
            Ok(call)
        } else {
            Err(KlError::usage(format_args!("--call {call}: wanted 1 to {most} tokens")))
        };
    }
    let stored = sides.into_iter().find_map(|side| match side {
        Side::Stored { reader } => calls_of(&reader.key().composition),
        _ => None,
    });
    let fit = (CALL_BYTES / token).clamp(1, MOST_CALL_TOKENS);
    let round = if fit > CALL_STEP { fit / CALL_STEP * CALL_STEP } else { fit };
    Ok(stored.unwrap_or(round).min(tokens.cut.window.max(1)).min(most))
}

fn claim(
    options: &Options,
    tokens: &Tokens,
    windows: &[Window],
    teacher: &SideInfo,
) -> Result<Claim, KlError> {
    let Origin::Engine(computed) = &teacher.origin else {
        return Err(KlError::usage("--keep-teacher: the teacher is on file already"));
    };
    let Computed { weights, config, composition, fingerprint, revision } = (**computed).clone();
    let key = Key {
        weights,
        config,
        composition,
        fingerprint,
        engine: revision,
        ids: tokens.ids.clone(),
        windows: tokens.cut.to_string(),
        dtype: teacher.dtype,
        rows: windows.iter().map(|window| window.scored.len()).sum(),
        vocab: teacher.vocab,
    };
    Ok(Store::open(&options.store, options.budget)?.claim(&key)?)
}
