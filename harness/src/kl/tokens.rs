//! The tokens of a comparison, and what all its sides must agree on.

use super::{
    error::KlError,
    ids,
    options::{DEFAULT_WINDOW, Options},
    windows::{Convention, Cut},
};

/// Token ids, and how they are cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// All documents, one behind the other.
    pub ids: Vec<u32>,
    /// Documents, windows, scored positions.
    pub cut: Cut,
    /// Where they come from.
    pub from: String,
}

/// The tokens that logits on file are of.
#[derive(Debug, Clone)]
pub(super) struct Filed {
    /// The ids.
    pub ids: Vec<u32>,
    /// How they were cut; the convention is free where every position is on file.
    pub cut: Cut,
    /// Whether other positions than the cut's are on file.
    pub all_positions: bool,
    /// The side, for messages.
    pub from: String,
}

impl Tokens {
    /// Settles the tokens: those of logits on file where there are any, and then whatever else is said
    /// must fit them; else those of `--text`, which are `encoded`, or of `--ids`.
    pub(super) fn settle(
        options: &Options,
        encoded: Option<Vec<Vec<u32>>>,
        filed: &[Filed],
    ) -> Result<Self, KlError> {
        let (documents, from) = documents(options, encoded)?;
        let tokens = match filed {
            [] => Self::of_documents(options, &documents, from)?,
            [one, rest @ ..] => {
                let tokens = Self::on_file(options, one)?;
                rest.iter().try_for_each(|other| tokens.same(&one.from, other))?;
                if !documents.is_empty() && documents.concat() != tokens.ids {
                    return Err(differ(&one.from, &tokens.ids, &from, &documents.concat()));
                }
                tokens
            }
        };
        match tokens.cut.windows().last() {
            Some(_) => Ok(tokens),
            None => Err(KlError::usage(format_args!(
                "{}: {} tokens leave no position to score in windows of {}",
                tokens.from,
                tokens.ids.len(),
                tokens.cut.window
            ))),
        }
    }

    fn of_documents(
        options: &Options,
        documents: &[Vec<u32>],
        from: String,
    ) -> Result<Self, KlError> {
        if documents.is_empty() {
            return Err(KlError::usage("no tokens: name a --text or --ids file"));
        }
        let cut = Cut {
            window: options.window.unwrap_or(DEFAULT_WINDOW),
            convention: options.convention.unwrap_or_default(),
            documents: documents.iter().map(Vec::len).collect(),
        };
        Ok(Self { ids: documents.concat(), cut, from })
    }

    fn on_file(options: &Options, filed: &Filed) -> Result<Self, KlError> {
        let mut cut = filed.cut.clone();
        if let Some(window) = options.window.filter(|window| *window != cut.window) {
            return Err(KlError::usage(format_args!(
                "--window {window}: {} has windows of {}",
                filed.from, cut.window
            )));
        }
        if options.max_tokens.is_some() {
            return Err(KlError::usage("--max-tokens: logits on file are of all their tokens"));
        }
        match options.convention {
            Some(convention) if convention != cut.convention && !filed.all_positions => {
                return Err(KlError::usage(format_args!(
                    "--score: {} has other positions on file, those of `{cut}`",
                    filed.from
                )));
            }
            Some(convention) => cut.convention = convention,
            None => {}
        }
        Ok(Self { ids: filed.ids.clone(), cut, from: filed.from.clone() })
    }

    /// Refuses logits on file that are of other tokens or windows.
    pub(super) fn same(&self, name: &str, other: &Filed) -> Result<(), KlError> {
        if self.ids != other.ids {
            return Err(differ(name, &self.ids, &other.from, &other.ids));
        }
        let mut cut = other.cut.clone();
        if other.all_positions {
            cut.convention = self.cut.convention;
        }
        // A window that is longer than its document is the document.
        if cut.windows() == self.cut.windows() {
            return Ok(());
        }
        let (what, teacher) = ("the windows", self.cut.to_string());
        Err(KlError::Mismatch { what, teacher, student: cut.to_string() })
    }

    /// Refuses an id that is no row of the logits.
    pub(super) fn within(&self, vocab: usize) -> Result<(), KlError> {
        match self.ids.iter().position(|id| *id as usize >= vocab) {
            None => Ok(()),
            Some(at) => Err(KlError::usage(format_args!(
                "{}: token {at} has id {}, the vocabulary has {vocab} tokens",
                self.from, self.ids[at]
            ))),
        }
    }

    /// The next token of each scored position, in order.
    pub fn targets(&self, scored: std::ops::Range<usize>) -> &[u32] {
        // The last token of a document is in no window.
        &self.ids[scored.start + 1..=scored.end]
    }
}

fn documents(
    options: &Options,
    encoded: Option<Vec<Vec<u32>>>,
) -> Result<(Vec<Vec<u32>>, String), KlError> {
    let (mut documents, from) = match (&options.ids, encoded) {
        (Some(path), _) => (ids::read(path)?, path.display().to_string()),
        (None, Some(encoded)) => {
            let names: Vec<_> =
                options.texts.iter().map(|path| path.display().to_string()).collect();
            (encoded, names.join(", "))
        }
        (None, None) => return Ok((Vec::new(), String::new())),
    };
    if let Some(at) = documents.iter().position(Vec::is_empty) {
        let path = options.texts.get(at).or(options.ids.as_ref()).cloned().unwrap_or_default();
        return Err(KlError::Text { path, message: "there is no token in it".to_owned() });
    }
    if documents.is_empty() {
        return Err(KlError::usage(format_args!("{from}: there is no document in it")));
    }
    if let Some(most) = options.max_tokens {
        ids::truncate(&mut documents, most);
    }
    Ok((documents, from))
}

fn differ(teacher: &str, ids: &[u32], student: &str, others: &[u32]) -> KlError {
    let at = ids.iter().zip(others).take_while(|(a, b)| a == b).count();
    let say = |name: &str, ids: &[u32]| match ids.get(at) {
        Some(id) => format!("{id} at token {at} of {} ({name})", ids.len()),
        None => format!("at an end after {at} ({name})"),
    };
    KlError::usage(format_args!(
        "token ids differ: {}, {}",
        say(teacher, ids),
        say(student, others)
    ))
}

/// The cut of a dump: one document, every position on file.
pub(super) fn cut_of_dump(tokens: usize, window: usize) -> Cut {
    Cut { window, convention: Convention::Every, documents: vec![tokens] }
}
