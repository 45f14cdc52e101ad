//! How token ids are cut into windows, and which of their positions are scored.

use std::{fmt, ops::Range, str::FromStr};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Which positions of a window are scored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Convention {
    /// Every position that has a next token
    #[default]
    Every,
    /// Those in the second half of each window, whose context is at least half a window
    SecondHalf,
}

/// How documents are cut: consecutive windows that do not overlap and do not cross documents, the last
/// one of a document shorter where it does not fill. A position's target is the next token of its
/// document, so the last token of each is a target only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cut {
    /// Tokens of a window.
    pub window: usize,
    /// Which positions are scored.
    pub convention: Convention,
    /// Ids of each document.
    pub documents: Vec<usize>,
}

/// A text that is no [`Cut`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` says no windows; wanted `window=N score=every|second-half documents=N,…`")]
pub struct NoCut(String);

/// Consecutive tokens that a model sees without anything before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Its tokens, counted over all documents.
    pub tokens: Range<usize>,
    /// Those of its tokens whose logits are scored.
    pub scored: Range<usize>,
    /// Number of the first scored one among all that are.
    pub first_row: usize,
}

/// One model call within a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The window, counted from 0.
    pub window: usize,
    /// It is the first of its window.
    pub fresh: bool,
    /// It is the last of its window.
    pub last: bool,
    /// Its tokens, counted over all documents.
    pub tokens: Range<usize>,
    /// Those of its tokens whose logits are scored.
    pub scored: Range<usize>,
    /// Numbers of these among all that are scored.
    pub rows: Range<usize>,
}

impl Cut {
    /// The windows, in order, those without a scored position left out.
    pub fn windows(&self) -> Vec<Window> {
        let (mut start, mut first_row) = (0, 0);
        let mut windows = Vec::new();
        for length in &self.documents {
            let end = start + length.saturating_sub(1);
            for at in (start..end).step_by(self.window.max(1)) {
                let tokens = at..(at + self.window).min(end);
                let skipped = match self.convention {
                    Convention::Every => 0,
                    Convention::SecondHalf => self.window / 2,
                };
                let scored = (at + skipped).min(tokens.end)..tokens.end;
                if !scored.is_empty() {
                    first_row += scored.len();
                    windows.push(Window { first_row: first_row - scored.len(), tokens, scored });
                }
            }
            start += length;
        }
        windows
    }

    /// Tokens over all documents.
    pub fn tokens(&self) -> usize {
        self.documents.iter().sum()
    }
}

impl Window {
    /// Its model calls, of `size` tokens each, the last one shorter where it does not fill.
    pub fn calls(&self, index: usize, size: usize) -> impl Iterator<Item = Call> {
        let Self { tokens, scored, first_row } = self.clone();
        tokens.clone().step_by(size.max(1)).map(move |at| {
            let part = at..(at + size).min(tokens.end);
            let within = |x: usize| x.clamp(part.start, part.end);
            let kept = within(scored.start)..within(scored.end);
            let row = first_row + (kept.start.max(scored.start) - scored.start);
            Call {
                window: index,
                fresh: at == tokens.start,
                last: part.end == tokens.end,
                rows: row..row + kept.len(),
                scored: kept,
                tokens: part,
            }
        })
    }
}

/// `window=512 score=every documents=20001`.
impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let score = match self.convention {
            Convention::Every => "every",
            Convention::SecondHalf => "second-half",
        };
        write!(f, "window={} score={score} documents=", self.window)?;
        let documents: Vec<_> = self.documents.iter().map(ToString::to_string).collect();
        f.write_str(&documents.join(","))
    }
}

impl FromStr for Cut {
    type Err = NoCut;

    fn from_str(text: &str) -> Result<Self, NoCut> {
        read(text).ok_or_else(|| NoCut(text.to_owned()))
    }
}

fn read(text: &str) -> Option<Cut> {
    let (window, rest) = text.strip_prefix("window=")?.split_once(' ')?;
    let (score, documents) = rest.strip_prefix("score=")?.split_once(' ')?;
    let convention = match score {
        "every" => Convention::Every,
        "second-half" => Convention::SecondHalf,
        _ => return None,
    };
    let documents = documents.strip_prefix("documents=")?.split(',');
    let documents = documents.map(|length| length.parse().ok()).collect::<Option<_>>()?;
    Some(Cut { window: window.parse().ok().filter(|window| *window > 0)?, convention, documents })
}

impl TryFrom<String> for Cut {
    type Error = NoCut;

    fn try_from(text: String) -> Result<Self, NoCut> {
        text.parse()
    }
}

impl From<Cut> for String {
    fn from(cut: Cut) -> Self {
        cut.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(window: usize, convention: Convention, documents: &[usize]) -> Cut {
        Cut { window, convention, documents: documents.to_vec() }
    }

    #[test]
    fn every_position_with_a_next_token_is_scored_and_no_window_crosses_documents() {
        let windows = cut(4, Convention::Every, &[10, 1, 3]).windows();
        let tokens: Vec<_> = windows.iter().map(|window| window.tokens.clone()).collect();
        assert_eq!(tokens, [0..4, 4..8, 8..9, 11..13]);
        assert!(windows.iter().all(|window| window.scored == window.tokens));
        assert_eq!(windows[3].first_row, 9);
    }

    #[test]
    fn the_second_half_leaves_out_windows_that_do_not_reach_it() {
        let windows = cut(8, Convention::SecondHalf, &[21]).windows();
        let scored: Vec<_> = windows.iter().map(|window| window.scored.clone()).collect();
        assert_eq!(scored, [4..8, 12..16], "of 16..20 no position has half a window before it");
        let whole = cut(8, Convention::SecondHalf, &[22]).windows();
        assert_eq!(whole[2].scored, 20..21);
    }

    #[test]
    fn a_text_gives_the_cut_back() {
        let wanted = cut(512, Convention::SecondHalf, &[20, 7]);
        assert_eq!(wanted.to_string().parse(), Ok(wanted));
        for text in ["", "window=0 score=every documents=4", "window=4 score=all documents=4"] {
            assert!(text.parse::<Cut>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn calls_cover_windows_and_rows_once(
            window in 1usize..20, size in 1usize..25, half in any::<bool>(),
            documents in prop::collection::vec(0usize..60, 0..4),
        ) {
            let convention = if half { Convention::SecondHalf } else { Convention::Every };
            let cut = cut(window, convention, &documents);
            let mut row = 0;
            for (index, window) in cut.windows().iter().enumerate() {
                let calls: Vec<_> = window.calls(index, size).collect();
                let (mut token, mut scored) = (window.tokens.start, window.scored.start);
                for (i, call) in calls.iter().enumerate() {
                    prop_assert_eq!(call.tokens.start, token);
                    prop_assert_eq!((call.fresh, call.last), (i == 0, i + 1 == calls.len()));
                    prop_assert!(!call.tokens.is_empty() && call.tokens.len() <= size);
                    if !call.scored.is_empty() {
                        prop_assert_eq!(call.scored.start, scored);
                        prop_assert_eq!(call.rows.start, row);
                    }
                    prop_assert_eq!(call.rows.len(), call.scored.len());
                    (token, scored) = (call.tokens.end, scored + call.scored.len());
                    row += call.rows.len();
                }
                prop_assert_eq!((token, scored), (window.tokens.end, window.scored.end));
            }
            if !half {
                let wanted: usize = documents.iter().map(|length| length.saturating_sub(1)).sum();
                prop_assert_eq!(row, wanted, "no position is dropped");
            }
        }
    }
}
