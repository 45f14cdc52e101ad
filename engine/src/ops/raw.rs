//! Calls of mlx-c that mlx-rs does not wrap.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Once;

use mlx_rs::{Array, Device, Stream};
use mlx_sys::{mlx_array, mlx_stream};

use crate::error::{EngineError, op};

thread_local! {
    /// The newest message of this thread; mlx-rs keeps its own out of reach.
    static MESSAGE: RefCell<Option<String>> = const { RefCell::new(None) };
}

unsafe extern "C" {
    /// The handler mlx-rs 0.33.0 registers: it keeps a copy for the errors of its own calls.
    fn default_mlx_error_handler(message: *const c_char, data: *mut c_void);
}

extern "C" fn keep_message(message: *const c_char, data: *mut c_void) {
    // SAFETY: mlx-c hands over a NUL-terminated text that lives until the handler returns.
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    MESSAGE.with_borrow_mut(|slot| *slot = Some(text));
    // SAFETY: the same text, still alive; mlx-rs's handler copies it and ignores `data`.
    unsafe { default_mlx_error_handler(message, data) };
}

/// Without a handler mlx-c ends the process on an error.
fn register_handler() -> Result<(), EngineError> {
    static REGISTERED: Once = Once::new();
    // Any call of mlx-rs makes it register its own handler, once; ours must come after.
    op("default_device", Device::try_default())?;
    REGISTERED.call_once(|| {
        // SAFETY: `keep_message` is a plain function that needs no data, so there is none to free.
        unsafe { mlx_sys::mlx_set_error_handler(Some(keep_message), std::ptr::null_mut(), None) };
    });
    Ok(())
}

/// Runs one mlx-c function that fills an array handle on the stream mlx-rs would use.
pub(crate) fn array(
    name: &'static str,
    call: impl FnOnce(*mut mlx_array, mlx_stream) -> c_int,
) -> Result<Array, EngineError> {
    let mut handle = no_array();
    let status = status(name, |stream| call(&raw mut handle, stream));
    // SAFETY: `handle` is empty or was filled by the call; it is owned by nothing else and freed
    // with this array.
    let array = unsafe { Array::from_ptr(handle) };
    status.map(|()| array)
}

/// Runs one mlx-c function that fills a vector of arrays on the stream mlx-rs would use.
pub(crate) fn arrays(
    name: &'static str,
    call: impl FnOnce(*mut mlx_sys::mlx_vector_array, mlx_stream) -> c_int,
) -> Result<Vec<Array>, EngineError> {
    // SAFETY: makes a handle that is freed below, on every path.
    let mut vector = unsafe { mlx_sys::mlx_vector_array_new() };
    let found = status(name, |stream| call(&raw mut vector, stream)).and_then(|()| {
        // SAFETY: the call succeeded, so the vector is valid.
        let length = unsafe { mlx_sys::mlx_vector_array_size(vector) };
        (0..length)
            .map(|index| {
                array(name, |handle, _| {
                    // SAFETY: `index` is inside the vector; the handle gets a reference of its own.
                    unsafe { mlx_sys::mlx_vector_array_get(handle, vector, index) }
                })
            })
            .collect()
    });
    // SAFETY: made above, freed once; the arrays taken out hold references of their own.
    unsafe { mlx_sys::mlx_vector_array_free(vector) };
    found
}

/// Runs one mlx-c function and turns its status into an error with MLX's message.
pub(crate) fn status(
    name: &'static str,
    call: impl FnOnce(mlx_stream) -> c_int,
) -> Result<(), EngineError> {
    register_handler()?;
    MESSAGE.take();
    let stream = Stream::thread_local_or_default();
    let status = call(stream.as_ptr());
    if status == 0 {
        return Ok(());
    }
    let message = MESSAGE.take().unwrap_or_else(|| format!("status {status}, without a message"));
    Err(EngineError::Op { op: name, message })
}

/// The empty handle, which mlx-c takes for an optional array that is not there.
pub(crate) fn no_array() -> mlx_array {
    // SAFETY: makes a handle without an array; it owns nothing, so it need not be freed.
    unsafe { mlx_sys::mlx_array_new() }
}

/// The handle of an optional array. It borrows: the array must outlive the call it is passed to.
pub(crate) fn optional(array: Option<&Array>) -> mlx_array {
    array.map_or_else(no_array, Array::as_ptr)
}
