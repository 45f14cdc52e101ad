//! Points at which a compiled decode step can be made to fail.

use std::cell::Cell;

use crate::error::EngineError;

thread_local! {
    /// Points still to pass before one fails.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Refuses to arm points in a build that must not carry any fault.
pub(crate) fn can_fail() -> Result<(), EngineError> {
    if cfg!(debug_assertions) {
        return Ok(());
    }
    Err(EngineError::FaultsCompiledOut { name: "fail_next_step".to_owned() })
}

/// Passes a point, unless it is the one to fail at.
pub(crate) fn point(name: impl FnOnce() -> String) -> Result<(), EngineError> {
    if !cfg!(debug_assertions) {
        return Ok(());
    }
    match LEFT.get() {
        None => Ok(()),
        Some(0) => {
            LEFT.set(None);
            Err(EngineError::Injected { point: name() })
        }
        Some(left) => {
            LEFT.set(Some(left - 1));
            Ok(())
        }
    }
}

/// Arms a point of this thread, until dropped.
pub(crate) struct Armed;

impl Armed {
    /// Lets the `point`-th point from now on fail, counted from 0; none fails without one.
    pub(crate) fn new(point: Option<usize>) -> Self {
        LEFT.set(point);
        Self
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        LEFT.set(None);
    }
}
