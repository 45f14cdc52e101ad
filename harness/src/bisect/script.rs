//! The ids both paths run, and the model calls they are run in.

use serde::Serialize;

/// Ids and how many of them each model call takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Script {
    ids: Vec<u32>,
    calls: Vec<usize>,
}

/// A script that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// There is nothing to run.
    #[error("no ids to run")]
    NoIds,
    /// The prompt that is left is empty.
    #[error("{steps} decode steps of {ids} ids leave no prompt; wanted at most {}", ids - 1)]
    NoPrompt {
        /// Decode steps asked for.
        steps: usize,
        /// Ids given.
        ids: usize,
    },
    /// A prefill step of no ids.
    #[error("a prefill step takes one id or more")]
    ZeroPrefillStep,
    /// The calls are not a split of the ids.
    #[error("calls of {calls:?} take {found} ids, each one or more; there are {ids}")]
    Calls {
        /// What they take.
        calls: Vec<usize>,
        /// Their sum.
        found: usize,
        /// Ids given.
        ids: usize,
    },
    /// Something among the ids is none.
    #[error("`{found}` is no token id")]
    NotAnId {
        /// What was found.
        found: String,
    },
}

impl Script {
    /// Ids in calls of the given lengths.
    ///
    /// # Errors
    /// [`ScriptError::NoIds`]; [`ScriptError::Calls`] where the calls do not add up to the ids.
    pub fn new(ids: Vec<u32>, calls: Vec<usize>) -> Result<Self, ScriptError> {
        if ids.is_empty() {
            return Err(ScriptError::NoIds);
        }
        let found = calls.iter().sum();
        if found != ids.len() || calls.contains(&0) {
            return Err(ScriptError::Calls { calls, found, ids: ids.len() });
        }
        Ok(Self { ids, calls })
    }

    /// The split of mlx-lm's `generate_step`: all ids of the prompt but its last in calls of
    /// `prefill_step`, its last alone, then the last `steps` ids one by one.
    ///
    /// # Errors
    /// [`ScriptError::NoIds`], [`ScriptError::NoPrompt`], [`ScriptError::ZeroPrefillStep`].
    pub fn split(ids: Vec<u32>, steps: usize, prefill_step: usize) -> Result<Self, ScriptError> {
        if prefill_step == 0 {
            return Err(ScriptError::ZeroPrefillStep);
        }
        if ids.is_empty() {
            return Err(ScriptError::NoIds);
        }
        if steps >= ids.len() {
            return Err(ScriptError::NoPrompt { steps, ids: ids.len() });
        }
        let chunked = ids.len() - steps - 1;
        let whole = std::iter::repeat_n(prefill_step, chunked / prefill_step);
        let rest = Some(chunked % prefill_step).filter(|rest| *rest > 0);
        let calls = whole.chain(rest).chain(std::iter::repeat_n(1, steps + 1)).collect();
        Ok(Self { ids, calls })
    }

    /// All ids.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Ids of each call.
    pub fn calls(&self) -> &[usize] {
        &self.calls
    }

    /// The same up to a call, with it.
    #[must_use]
    pub fn upto(&self, call: usize) -> Self {
        let calls = self.calls[..=call].to_vec();
        Self { ids: self.ids[..calls.iter().sum()].to_vec(), calls }
    }
}

/// Token ids, separated by commas or white space; one pair of brackets around all is allowed.
///
/// # Errors
/// [`ScriptError::NotAnId`], and [`ScriptError::NoIds`] where there is none.
pub fn parse_ids(text: &str) -> Result<Vec<u32>, ScriptError> {
    let text = text.trim();
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let words = inner.split(|c: char| c == ',' || c.is_whitespace()).filter(|w| !w.is_empty());
    let id = |word: &str| {
        word.parse().map_err(|_| ScriptError::NotAnId { found: word.chars().take(40).collect() })
    };
    let ids = words.map(id).collect::<Result<Vec<_>, _>>()?;
    if ids.is_empty() { Err(ScriptError::NoIds) } else { Ok(ids) }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::one_call(9, 0, 2048, &[8, 1])]
    #[case::chunks(9, 0, 3, &[3, 3, 2, 1])]
    #[case::even_chunks(9, 2, 3, &[3, 3, 1, 1, 1])]
    #[case::single(1, 0, 8, &[1])]
    #[case::short_prompt(4, 3, 8, &[1, 1, 1, 1])]
    fn the_split_is_that_of_mlx_lm(
        #[case] ids: u32,
        #[case] steps: usize,
        #[case] prefill_step: usize,
        #[case] calls: &[usize],
    ) {
        let script = Script::split((0..ids).collect(), steps, prefill_step).unwrap();
        assert_eq!(script.calls(), calls);
        let first = script.upto(0);
        assert_eq!((first.ids().len(), first.calls()), (calls[0], &calls[..1]));
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        assert_eq!(Script::split(vec![], 0, 8), Err(ScriptError::NoIds));
        assert_eq!(Script::split(vec![1], 0, 0), Err(ScriptError::ZeroPrefillStep));
        assert!(Script::split(vec![1, 2], 2, 8).unwrap_err().to_string().contains("at most 1"));
        for calls in [vec![1, 2], vec![1], vec![2, 0], vec![]] {
            assert!(matches!(Script::new(vec![1, 2], calls), Err(ScriptError::Calls { .. })));
        }
        assert!(Script::new(vec![1, 2], vec![2]).is_ok());
    }

    #[rstest]
    #[case::spaces(" 1 2\n3 ", Ok(vec![1, 2, 3]))]
    #[case::commas("1,2,3", Ok(vec![1, 2, 3]))]
    #[case::json("[1, 2, 3]\n", Ok(vec![1, 2, 3]))]
    #[case::none(" [] ", Err(ScriptError::NoIds))]
    #[case::negative("1 -2", Err(ScriptError::NotAnId { found: "-2".to_owned() }))]
    #[case::text("hello world", Err(ScriptError::NotAnId { found: "hello".to_owned() }))]
    fn ids_are_read(#[case] text: &str, #[case] wanted: Result<Vec<u32>, ScriptError>) {
        assert_eq!(parse_ids(text), wanted);
    }
}
