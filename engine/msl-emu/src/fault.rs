//! What an emulated kernel did wrong.

use serde::{Deserialize, Serialize};

/// Kind of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// An access of device or threadgroup memory outside the array.
    OutOfBounds,
    /// A read of threadgroup memory that nobody wrote in this group (or, before, in another group), or of an output nobody initialised.
    UninitialisedRead,
    /// Elements of an output that nobody wrote.
    UnwrittenOutput,
    /// Two threads touch the same memory, at least one writes, and no barrier orders them.
    Race,
    /// Results differ between two orders of threads and groups.
    OrderDependence,
    /// Some threads of the group never come to a barrier, or come to another one.
    BarrierDivergence,
    /// Some lanes of a simdgroup never come to a simdgroup function, or come to another one.
    SimdDivergence,
    /// A simdgroup function reads a lane that takes no part.
    InactiveLane,
    /// A vector or element accessed at an address its alignment forbids.
    Misaligned,
    /// More than 32 KiB of threadgroup memory.
    ThreadgroupMemory,
    /// Signed arithmetic that overflows.
    IntegerOverflow,
    /// Division by zero, a shift by more than the width, a float that does not fit the integer it is converted to, an invalid enum or boolean.
    Arithmetic,
    /// A write to an input.
    InputWritten,
    /// The stack of a thread ran out.
    StackOverflow,
    /// The time limit passed.
    TimeLimit,
    /// The process died of a signal that none of the above explains.
    Crash,
}

/// A Metal thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadId {
    /// `threadgroup_position_in_grid`.
    pub group: [u32; 3],
    /// `thread_position_in_threadgroup`.
    pub local: [u32; 3],
}

/// A place in the user's source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// File, as [`crate::Source::file`] gives it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What kind.
    pub kind: FaultKind,
    /// The kernel.
    pub kernel: String,
    /// What happened, in words, with values.
    pub message: String,
    /// Where; `None` when no access is to blame (an element never written, a deadlock outside the source).
    pub place: Option<Place>,
    /// The thread that did it.
    pub thread: Option<ThreadId>,
    /// The other place, where there are two: the other access of a race, the other barrier.
    pub other_place: Option<Place>,
    /// The other thread.
    pub other_thread: Option<ThreadId>,
    /// Seed of the order in which it showed.
    pub seed: u64,
    /// What saw it: `checker`, `address-sanitizer`, `thread-sanitizer`, `undefined`, `scheduler`, `guard`, `permutation`.
    pub detector: String,
}
