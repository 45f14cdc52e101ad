//! Where logits come from: a lane of a worker, the teacher store, or a dump.

use std::{cell::RefCell, collections::VecDeque, rc::Rc};

use mlx_parity_tensor::HostTensor;

use super::{
    error::KlError,
    protocol::{Reply, Request},
    windows::Call,
    worker::{Trouble, Worker, out_of_turn},
};
use crate::store::{Dump, Reader};

/// One side's logits, call by call. What is asked for is taken in the same order.
pub trait Feed {
    /// Asks for the scored positions of a call; `ids` are the call's tokens.
    ///
    /// # Errors
    /// [`KlError::Crashed`].
    fn ask(&mut self, call: &Call, ids: &[u32]) -> Result<(), KlError>;

    /// The logits of the next call asked for, `[scored positions, vocab]`.
    ///
    /// # Errors
    /// [`KlError::Crashed`] or [`KlError::Refused`] from a worker, [`KlError::Store`] from a store.
    fn take(&mut self) -> Result<HostTensor, KlError>;
}

/// A lane of a worker, which other lanes may share. Lanes of one worker are to be asked and taken from
/// in one order.
pub struct LaneFeed {
    /// The worker.
    pub worker: Rc<RefCell<Worker>>,
    /// The lane.
    pub lane: usize,
    /// Whose it is, for messages.
    pub who: String,
}

impl Feed for LaneFeed {
    fn ask(&mut self, call: &Call, ids: &[u32]) -> Result<(), KlError> {
        let wanted = [call.scored.start, call.scored.end].map(|at| at - call.tokens.start);
        let (lane, fresh, ids) = (self.lane, call.fresh, ids.to_vec());
        let request = Request::Extend { lane, fresh, ids, wanted };
        self.worker.borrow_mut().send(&request).map_err(KlError::of(&self.who))
    }

    fn take(&mut self) -> Result<HostTensor, KlError> {
        let answer = self.worker.borrow_mut().answer();
        logits(answer).map_err(KlError::of(&self.who))
    }
}

fn logits(answer: Result<(Reply, Vec<u8>), Trouble>) -> Result<HostTensor, Trouble> {
    let (reply, bytes) = answer?;
    let Reply::Logits { dtype, rows, vocab } = reply else { return Err(out_of_turn(&reply)) };
    HostTensor::new(dtype, [rows, vocab], bytes).map_err(|error| Trouble::Gone(error.to_string()))
}

/// Rows of a stored teacher.
pub struct StoredFeed {
    /// The entry.
    pub reader: Reader,
    asked: VecDeque<Call>,
}

impl StoredFeed {
    /// An entry whose rows are those of the calls.
    pub fn new(reader: Reader) -> Self {
        Self { reader, asked: VecDeque::new() }
    }
}

impl Feed for StoredFeed {
    fn ask(&mut self, call: &Call, _ids: &[u32]) -> Result<(), KlError> {
        self.asked.push_back(call.clone());
        Ok(())
    }

    fn take(&mut self) -> Result<HostTensor, KlError> {
        let rows = next(&mut self.asked)?.rows;
        Ok(self.reader.rows(rows)?)
    }
}

/// Rows of a dump, one for each token.
pub struct DumpFeed {
    dump: Dump,
    asked: VecDeque<Call>,
}

impl DumpFeed {
    /// A dump of the tokens of the calls.
    pub fn new(dump: Dump) -> Self {
        Self { dump, asked: VecDeque::new() }
    }
}

impl Feed for DumpFeed {
    fn ask(&mut self, call: &Call, _ids: &[u32]) -> Result<(), KlError> {
        self.asked.push_back(call.clone());
        Ok(())
    }

    fn take(&mut self) -> Result<HostTensor, KlError> {
        let rows = next(&mut self.asked)?.scored;
        Ok(self.dump.rows(rows))
    }
}

fn next(asked: &mut VecDeque<Call>) -> Result<Call, KlError> {
    asked.pop_front().ok_or_else(|| KlError::usage("more was taken than asked for"))
}
