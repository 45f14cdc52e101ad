//! One compiled function, and the rules of what may be traced.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use mlx_rs::Array;
use mlx_rs::error::Exception;
use mlx_rs::transforms::compile::compile;
use mlx_sys::{
    mlx_compile_mode, mlx_compile_mode__MLX_COMPILE_MODE_ENABLED as ENABLED,
    mlx_compile_mode__MLX_COMPILE_MODE_NO_FUSE as NO_FUSE,
};

use super::DecodeMode;
use crate::error::EngineError;

thread_local! {
    static TRACING: Cell<bool> = const { Cell::new(false) };
}

/// Whether ops are being traced, rather than run, on this thread.
pub fn is_tracing() -> bool {
    TRACING.get()
}

/// To be asked before a kernel of one's own is launched: MLX infers no shapes of its results, so it
/// cannot be part of a trace.
///
/// # Errors
/// [`EngineError::KernelInTrace`] while ops are being traced.
pub fn custom_kernel_allowed(kernel: &str) -> Result<(), EngineError> {
    if is_tracing() {
        return Err(EngineError::KernelInTrace { kernel: kernel.to_owned() });
    }
    Ok(())
}

/// What a trace is made of.
pub(super) type Body<'a> = dyn FnMut(&[Array]) -> Result<Vec<Array>, EngineError> + 'a;

type Compiled = dyn FnMut(&[Array]) -> Result<Vec<Array>, Exception>;

/// A function that MLX compiled, or will on its first call.
pub(super) struct Trace {
    desk: Rc<Desk>,
    compiled: Box<Compiled>,
}

/// Where a call leaves the function for MLX to call back, should it have to trace it.
#[derive(Default)]
struct Desk {
    /// Of the call at hand only.
    body: Cell<Option<NonNull<Body<'static>>>>,
    error: RefCell<Option<EngineError>>,
    made: Cell<usize>,
}

impl Trace {
    pub(super) fn new() -> Self {
        let desk = Rc::new(Desk::default());
        let called = Rc::clone(&desk);
        let run = move |inputs: &[Array]| called.run(inputs);
        Self { desk, compiled: Box::new(compile(run, false)) }
    }

    /// How often it was traced.
    pub(super) fn made(&self) -> usize {
        self.desk.made.get()
    }

    /// The outputs for these inputs, from the trace of inputs of their extents and dtypes, or else from
    /// a new one of `body`.
    ///
    /// # Errors
    /// What `body` failed with; [`EngineError::Op`] where MLX throws.
    pub(super) fn call(
        &mut self,
        mode: DecodeMode,
        inputs: &[Array],
        body: &mut Body<'_>,
    ) -> Result<Vec<Array>, EngineError> {
        let _fusing = Fusing::set(if mode == DecodeMode::Fused { ENABLED } else { NO_FUSE });
        // SAFETY: the lifetime is dropped from the type only: the pointer leaves the desk before
        // this call returns, and nobody else reads the desk.
        let body = unsafe { std::mem::transmute::<&mut Body<'_>, &mut Body<'static>>(body) };
        let _laid = Laid::on(&self.desk, NonNull::from(body));
        (self.compiled)(inputs).map_err(|error| {
            let own = self.desk.error.take();
            own.unwrap_or_else(|| EngineError::Op {
                op: "compile",
                message: error.what().to_owned(),
            })
        })
    }
}

impl Desk {
    /// MLX traces: the arrays have no values.
    fn run(&self, inputs: &[Array]) -> Result<Vec<Array>, Exception> {
        let Some(mut body) = self.body.take() else {
            return Err(Exception::custom("traced outside of a call"));
        };
        // SAFETY: laid down by the `Trace::call` that is still running below on this stack, from a
        // reference nobody uses meanwhile; taken off, so that it cannot be reached twice.
        let body = unsafe { body.as_mut() };
        let _tracing = Tracing::begin();
        let outputs = body(inputs).map_err(|error| {
            let text = Exception::custom(error.to_string());
            self.error.replace(Some(error));
            text
        })?;
        self.made.set(self.made.get() + 1);
        Ok(outputs)
    }
}

/// A body on a desk, until dropped.
struct Laid<'a>(&'a Desk);

impl<'a> Laid<'a> {
    fn on(desk: &'a Desk, body: NonNull<Body<'static>>) -> Self {
        desk.error.take();
        desk.body.set(Some(body));
        Self(desk)
    }
}

impl Drop for Laid<'_> {
    fn drop(&mut self) {
        self.0.body.take();
    }
}

/// Marks this thread as tracing, until dropped.
struct Tracing {
    before: bool,
}

impl Tracing {
    fn begin() -> Self {
        Self { before: TRACING.replace(true) }
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        TRACING.set(self.before);
    }
}

/// MLX's compile mode, which is the process's, held for one call; then it is MLX's default again.
struct Fusing {
    _turn: std::sync::MutexGuard<'static, ()>,
}

impl Fusing {
    fn set(mode: mlx_compile_mode) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        set_mode(mode);
        Self { _turn: turn }
    }
}

impl Drop for Fusing {
    fn drop(&mut self) {
        set_mode(ENABLED);
    }
}

fn set_mode(mode: mlx_compile_mode) {
    // SAFETY: stores a number. It cannot fail: the number is one of the enum's.
    let status = unsafe { mlx_sys::mlx_set_compile_mode(mode) };
    debug_assert_eq!(status, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops;

    /// MLX is not thread-safe, and libtest runs tests side by side.
    static TURN: Mutex<()> = Mutex::new(());

    fn call(trace: &mut Trace, input: i32, body: &mut Body<'_>) -> Result<Array, EngineError> {
        let outputs = trace.call(DecodeMode::Compiled, &[Array::from_int(input)], body)?;
        Ok(outputs[0].clone())
    }

    #[test]
    fn a_custom_kernel_in_a_trace_is_refused() {
        let _turn = TURN.lock();
        let mut trace = Trace::new();
        let launch = &mut |inputs: &[Array]| {
            custom_kernel_allowed("fused-swiglu")?;
            Ok(vec![inputs[0].clone()])
        };
        match call(&mut trace, 1, launch) {
            Err(EngineError::KernelInTrace { kernel }) => assert_eq!(kernel, "fused-swiglu"),
            other => panic!("{other:?}"),
        }
        assert!(!is_tracing());
        custom_kernel_allowed("fused-swiglu").expect("outside of a trace");
    }

    #[test]
    fn a_failed_trace_is_made_again() {
        let _turn = TURN.lock();
        let mut trace = Trace::new();
        let broken = &mut |_: &[Array]| Err(ops::refused("test", "this", "that"));
        assert!(matches!(call(&mut trace, 1, broken), Err(EngineError::Op { op: "test", .. })));
        assert_eq!(trace.made(), 0);
        let sound = &mut |inputs: &[Array]| Ok(vec![ops::add(&inputs[0], &inputs[0])?]);
        for input in [3, 4] {
            let sum = call(&mut trace, input, sound).expect("a sum");
            assert_eq!(crate::array::read::<i32>("sum", &sum).expect("i32"), [2 * input]);
        }
        assert_eq!(trace.made(), 1, "one trace for all values of one shape");
    }

    #[test]
    fn what_a_trace_computes_cannot_be_read_while_it_is_made() {
        let _turn = TURN.lock();
        let mut trace = Trace::new();
        let nosy = &mut |inputs: &[Array]| {
            ops::eval([&inputs[0]])?;
            Ok(vec![inputs[0].clone()])
        };
        assert!(matches!(call(&mut trace, 1, nosy), Err(EngineError::Op { op: "eval", .. })));
    }
}
