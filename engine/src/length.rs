//! Sequences whose rotations change with their length.
//!
//! Under longrope scaling all keys and queries of a sequence turn by the short factors until it is
//! longer than the context of the first training, and by the long ones from then on. Cached keys that
//! were turned by the others are of no use, nor is anything deeper in the model that was made with
//! them: the caches are made anew (`prepare_inputs_for_generation` of transformers' phi3 drops them).

use crate::error::EngineError;

/// The ids and the planned length of the sequences in a decoder's caches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Length {
    /// The longest sequence that turns by the short factors; none where rotations do not change.
    limit: Option<usize>,
    planned: usize,
    /// The ids in the caches, row by row; none where they are not known.
    ids: Option<Vec<Vec<u32>>>,
}

impl Length {
    /// Of an empty decoder.
    pub(crate) fn new(limit: Option<i32>) -> Self {
        Self { limit: limit.map(|limit| limit as usize), planned: 0, ids: Some(Vec::new()) }
    }

    /// Whether rotations change at all.
    pub(crate) fn matters(&self) -> bool {
        self.limit.is_some()
    }

    /// The longest sequence before the change.
    pub(crate) fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Plans for a sequence of `length` tokens. Gives up the ids to run again, row by row, where the
    /// caches were made for the other side of the limit.
    ///
    /// # Errors
    /// [`EngineError::LostIds`] where they would have to be run again and are not known.
    pub(crate) fn plan(&mut self, length: usize) -> Result<Option<Vec<Vec<u32>>>, EngineError> {
        let Some(limit) = self.limit else { return Ok(None) };
        let crossed = (self.planned > limit) != (length > limit);
        self.planned = length;
        if !crossed {
            return Ok(None);
        }
        let Some(ids) = &mut self.ids else { return Err(EngineError::LostIds { limit }) };
        let ids = std::mem::take(ids);
        Ok(Some(ids).filter(|ids| ids.iter().any(|row| !row.is_empty())))
    }

    /// Takes note of ids that went into the caches.
    pub(crate) fn extend(&mut self, rows: &[&[u32]]) {
        let Some(ids) = self.ids.as_mut().filter(|_| self.limit.is_some()) else { return };
        ids.resize(rows.len(), Vec::new());
        for (ids, row) in ids.iter_mut().zip(rows) {
            ids.extend_from_slice(row);
        }
    }

    /// Forgets the newest `count` ids of each row.
    pub(crate) fn trim(&mut self, count: usize) {
        for ids in self.ids.iter_mut().flatten() {
            ids.truncate(ids.len().saturating_sub(count));
        }
    }

    /// The caches are now those of a sequence of `length` tokens whose ids are not known.
    pub(crate) fn replace(&mut self, length: usize) {
        self.planned = length;
        self.ids = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ids: &[u32], planned: usize) -> Length {
        let mut length = Length::new(Some(4));
        length.plan(planned).expect("empty caches");
        length.extend(&[ids]);
        length
    }

    #[test]
    fn a_sequence_is_run_again_once_when_it_crosses() {
        let mut length = after(&[1, 2, 3, 4], 4);
        assert_eq!(length.plan(5).expect("known ids"), Some(vec![vec![1, 2, 3, 4]]));
        length.extend(&[&[1, 2, 3, 4]]);
        length.extend(&[&[5]]);
        assert_eq!(length.plan(6).expect("known ids"), None);
        length.trim(3);
        assert_eq!(length.plan(3).expect("known ids"), Some(vec![vec![1, 2]]));
    }

    #[test]
    fn unknown_ids_cannot_be_run_again() {
        let mut length = after(&[1, 2], 2);
        length.replace(3);
        assert_eq!(length.plan(4).expect("the same side"), None);
        let message = length.plan(5).expect_err("the other side").to_string();
        assert!(message.contains("longer than 4"), "{message}");
    }

    #[test]
    fn where_rotations_do_not_change_nothing_is_kept() {
        let mut length = Length::new(None);
        length.extend(&[&[1, 2]]);
        assert_eq!(length.plan(1_000_000).expect("no limit"), None);
        assert_eq!(length.ids, Some(Vec::new()));
    }
}
