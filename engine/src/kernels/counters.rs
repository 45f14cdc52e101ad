//! How often each kernel has run.

use std::cell::RefCell;

thread_local! {
    static CALLS: RefCell<Vec<(&'static str, u64)>> = const { RefCell::new(Vec::new()) };
}

/// Calls of a kernel on this thread since the start or the last [`reset_dispatches`].
pub fn dispatches(kernel: &str) -> u64 {
    CALLS.with_borrow(|calls| {
        calls.iter().find(|(known, _)| *known == kernel).map_or(0, |(_, count)| *count)
    })
}

/// Counts from zero again.
pub fn reset_dispatches() {
    CALLS.with_borrow_mut(Vec::clear);
}

pub(super) fn count(kernel: &'static str) {
    CALLS.with_borrow_mut(|calls| match calls.iter_mut().find(|(known, _)| *known == kernel) {
        Some((_, count)) => *count += 1,
        None => calls.push((kernel, 1)),
    });
}
