//! The closures of mlx-c, and what happens when MLX calls them.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use mlx_rs::Array;
use mlx_sys::{mlx_closure, mlx_closure_custom, mlx_vector_array};

use crate::error::EngineError;
use crate::ops::{raw, refused};

pub(super) type Result<T> = std::result::Result<T, EngineError>;

/// What MLX calls back: outputs of inputs.
pub(super) type Body<'f> = dyn Fn(&[Array]) -> Result<Vec<Array>> + 'f;

/// Gradients of every input, of inputs, cotangents and outputs.
pub(super) type Pullback<'f> = dyn Fn(&[Array], &[Array], &[Array]) -> Result<Vec<Array>> + 'f;

/// Why a function failed while MLX was calling it: MLX only learns that it did.
enum Failure {
    Error(EngineError),
    Panic(Box<dyn Any + Send>),
}

thread_local! {
    static FAILURE: RefCell<Option<Failure>> = const { RefCell::new(None) };
}

/// A function on a shelf, until it is taken off.
pub(super) struct Shelf<F: ?Sized>(RefCell<Option<Rc<F>>>);

impl<F: ?Sized> Shelf<F> {
    pub(super) fn holding(function: Rc<F>) -> Rc<Self> {
        Rc::new(Self(RefCell::new(Some(function))))
    }

    /// Takes the function off.
    pub(super) fn clear(&self) {
        let taken = self.0.take();
        drop(taken);
    }

    fn get(&self) -> Result<Rc<F>> {
        let gone = || refused("closure", "a call behind the end of its scope", "one within it");
        self.0.borrow().clone().ok_or_else(gone)
    }
}

/// Runs a call of MLX that may call a Rust function, and gives back what that failed with.
pub(super) fn calling(name: &'static str, call: impl FnOnce() -> c_int) -> Result<()> {
    FAILURE.take();
    raw::status(name, |_| call()).map_err(|thrown| match FAILURE.take() {
        Some(Failure::Error(error)) => error,
        Some(Failure::Panic(panic)) => resume_unwind(panic),
        None => thrown,
    })
}

/// Answers a call of MLX: no panic may cross it.
fn answer(result: *mut mlx_vector_array, work: impl FnOnce() -> Result<Vec<Array>>) -> c_int {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(outputs)) => {
            let handles: Vec<_> = outputs.iter().map(Array::as_ptr).collect();
            // SAFETY: MLX hands over a handle without a vector, which takes one of references to arrays that
            // are alive here, and frees it.
            unsafe {
                *result = mlx_sys::mlx_vector_array_new_data(handles.as_ptr(), handles.len());
            }
            return 0;
        }
        Ok(Err(error)) => Failure::Error(error),
        Err(panic) => Failure::Panic(panic),
    };
    FAILURE.set(Some(failure));
    1
}

extern "C" fn call_body(
    result: *mut mlx_vector_array,
    inputs: mlx_vector_array,
    payload: *mut c_void,
) -> c_int {
    // SAFETY: `Closure::new` made the payload of this type, and MLX keeps it until it lets go of the closure.
    let shelf = unsafe { &*payload.cast::<Shelf<Body<'static>>>() };
    answer(result, || shelf.get()?(&arrays_of(inputs)?))
}

extern "C" fn call_pullback(
    result: *mut mlx_vector_array,
    inputs: mlx_vector_array,
    cotangents: mlx_vector_array,
    outputs: mlx_vector_array,
    payload: *mut c_void,
) -> c_int {
    // SAFETY: `Custom::new` made the payload of this type, and MLX keeps it until it lets go of the closure.
    let shelf = unsafe { &*payload.cast::<Shelf<Pullback<'static>>>() };
    answer(result, || {
        shelf.get()?(&arrays_of(inputs)?, &arrays_of(cotangents)?, &arrays_of(outputs)?)
    })
}

extern "C" fn let_go<F: ?Sized>(payload: *mut c_void) {
    // SAFETY: the pointer came from `Rc::into_raw` of this type, and MLX calls this once. A destructor that
    // panics would have to cross C++, so it is caught.
    let dropped = catch_unwind(|| unsafe { drop(Rc::from_raw(payload.cast::<Shelf<F>>())) });
    drop(dropped);
}

/// A handle of a closure.
pub(super) struct Closure(pub(super) mlx_closure);

impl Closure {
    pub(super) fn none() -> Self {
        // SAFETY: makes an empty handle, freed on drop.
        Self(unsafe { mlx_sys::mlx_closure_new() })
    }

    pub(super) fn new(shelf: Rc<Shelf<Body<'static>>>) -> Self {
        let payload = Rc::into_raw(shelf).cast_mut().cast::<c_void>();
        // SAFETY: the payload is what `call_body` and `let_go` of its type expect.
        Self(unsafe {
            let free = let_go::<Body<'static>>;
            mlx_sys::mlx_closure_new_func_payload(Some(call_body), payload, Some(free))
        })
    }
}

impl Drop for Closure {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and freed once.
        unsafe { mlx_sys::mlx_closure_free(self.0) };
    }
}

/// A handle of a closure that gives gradients.
pub(super) struct Custom(pub(super) mlx_closure_custom);

impl Custom {
    pub(super) fn new(shelf: Rc<Shelf<Pullback<'static>>>) -> Self {
        let payload = Rc::into_raw(shelf).cast_mut().cast::<c_void>();
        // SAFETY: the payload is what `call_pullback` and `let_go` of its type expect.
        Self(unsafe {
            let free = let_go::<Pullback<'static>>;
            mlx_sys::mlx_closure_custom_new_func_payload(Some(call_pullback), payload, Some(free))
        })
    }
}

impl Drop for Custom {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and freed once.
        unsafe { mlx_sys::mlx_closure_custom_free(self.0) };
    }
}

/// A handle of a vector of arrays.
pub(super) struct Vector(pub(super) mlx_vector_array);

impl Vector {
    pub(super) fn new() -> Self {
        // SAFETY: makes an empty vector, freed on drop.
        Self(unsafe { mlx_sys::mlx_vector_array_new() })
    }

    pub(super) fn of(arrays: &[Array]) -> Self {
        let handles: Vec<_> = arrays.iter().map(Array::as_ptr).collect();
        // SAFETY: the vector takes references of its own to arrays that are alive here.
        Self(unsafe { mlx_sys::mlx_vector_array_new_data(handles.as_ptr(), handles.len()) })
    }

    pub(super) fn arrays(&self) -> Result<Vec<Array>> {
        arrays_of(self.0)
    }
}

impl Drop for Vector {
    fn drop(&mut self) {
        // SAFETY: the handle is ours and freed once.
        unsafe { mlx_sys::mlx_vector_array_free(self.0) };
    }
}

fn arrays_of(vector: mlx_vector_array) -> Result<Vec<Array>> {
    // SAFETY: the caller's vector is alive.
    let length = unsafe { mlx_sys::mlx_vector_array_size(vector) };
    (0..length)
        .map(|index| {
            raw::array("vector_array_get", |handle, _| {
                // SAFETY: `index` is inside the vector; the handle gets a reference of its own.
                unsafe { mlx_sys::mlx_vector_array_get(handle, vector, index) }
            })
        })
        .collect()
}
