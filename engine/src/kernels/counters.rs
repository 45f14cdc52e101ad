//! How often each kernel has run.

use std::cell::RefCell;

/// Calls of a kernel in a class of shapes.
struct Calls {
    kernel: &'static str,
    class: &'static str,
    count: u64,
}

thread_local! {
    static CALLS: RefCell<Vec<Calls>> = const { RefCell::new(Vec::new()) };
}

/// Calls of a kernel on this thread since the start or the last [`reset_dispatches`].
pub fn dispatches(kernel: &str) -> u64 {
    counted(|of| of.kernel == kernel)
}

/// [`dispatches`] of one class of shapes.
pub fn dispatches_of(kernel: &str, class: &str) -> u64 {
    counted(|of| of.kernel == kernel && of.class == class)
}

fn counted(wanted: impl Fn(&Calls) -> bool) -> u64 {
    CALLS.with_borrow(|calls| calls.iter().filter(|of| wanted(of)).map(|of| of.count).sum())
}

/// Counts from zero again.
pub fn reset_dispatches() {
    CALLS.with_borrow_mut(Vec::clear);
}

pub(super) fn count(kernel: &'static str, class: &'static str) {
    CALLS.with_borrow_mut(|calls| {
        match calls.iter_mut().find(|of| of.kernel == kernel && of.class == class) {
            Some(of) => of.count += 1,
            None => calls.push(Calls { kernel, class, count: 1 }),
        }
    });
}
