//! How often each kernel has run.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls of a kernel in a class of shapes.
struct Calls {
    kernel: &'static str,
    class: &'static str,
    /// Goes up on the thread that runs the kernel.
    count: Arc<AtomicU64>,
}

thread_local! {
    static CALLS: RefCell<Vec<Calls>> = const { RefCell::new(Vec::new()) };
}

/// Calls of a kernel that this thread made, and that have run, since the start or the last [`reset_dispatches`].
pub fn dispatches(kernel: &str) -> u64 {
    counted(|of| of.kernel == kernel)
}

/// [`dispatches`] of one class of shapes.
pub fn dispatches_of(kernel: &str, class: &str) -> u64 {
    counted(|of| of.kernel == kernel && of.class == class)
}

fn counted(wanted: impl Fn(&Calls) -> bool) -> u64 {
    CALLS.with_borrow(|calls| {
        calls.iter().filter(|of| wanted(of)).map(|of| of.count.load(Ordering::Relaxed)).sum()
    })
}

/// Counts from zero again.
pub fn reset_dispatches() {
    CALLS.with_borrow_mut(Vec::clear);
}

/// What a call of a kernel counts up when it has run.
pub(super) fn counter(kernel: &'static str, class: &'static str) -> Arc<AtomicU64> {
    CALLS.with_borrow_mut(|calls| {
        if let Some(of) = calls.iter().find(|of| of.kernel == kernel && of.class == class) {
            return Arc::clone(&of.count);
        }
        let count = Arc::default();
        calls.push(Calls { kernel, class, count: Arc::clone(&count) });
        count
    })
}
