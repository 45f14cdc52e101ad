//! Calls of kernels as operations of MLX's graph: they run when MLX gets to them, on the thread of its CPU stream.

use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mlx_parity_kernels::{
    Buffer, Call, Candidate, Data, How, KernelError, Operand, Out, Params, View,
};
use mlx_parity_tensor::Dtype;
use mlx_rs::Array;

use super::host::elements;
use crate::error::EngineError;

/// A call that has not run yet.
pub(super) struct Deferred {
    pub(super) candidate: &'static dyn Candidate,
    /// Name and dtype of each operand.
    pub(super) operands: Vec<(&'static str, Dtype)>,
    pub(super) params: Params,
    pub(super) how: How,
    /// Dtype and shape of each result.
    pub(super) results: Vec<(Dtype, Vec<usize>)>,
    /// Goes up when the kernel has run.
    pub(super) ran: Arc<AtomicU64>,
}

/// `MlxParitySpan` of `native/host_kernel.cpp`.
#[repr(C)]
struct Span {
    start: *mut c_void,
    shape: *const i32,
    strides: *const i64,
    rank: i32,
}

type Run = unsafe extern "C" fn(*mut c_void, *const Span, *const Span) -> *const c_char;
type Drop = unsafe extern "C" fn(*mut c_void);

unsafe extern "C" {
    fn mlx_parity_host_kernel(
        operands: *const *const c_void,
        operand_count: usize,
        shapes: *const i32,
        ranks: *const usize,
        dtypes: *const u32,
        result_count: usize,
        call: *mut c_void,
        run: Run,
        drop: Drop,
        made: *mut *mut c_void,
    ) -> bool;
}

/// Codes of dtypes between here and `native/host_kernel.cpp`.
const fn code(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::F16 => 0,
        Dtype::Bf16 => 2,
        _ => 1,
    }
}

impl Deferred {
    /// Puts the call into the graph: its results, not evaluated.
    ///
    /// # Errors
    /// [`EngineError::ShapeTooLarge`], [`EngineError::Op`] where MLX throws.
    pub(super) fn enqueue(self, operands: &[&Array]) -> Result<Vec<Array>, EngineError> {
        let id = self.candidate.spec().id;
        let mut shapes = Vec::new();
        for (_, shape) in &self.results {
            shapes.extend(crate::array::mlx_shape(shape)?);
        }
        let ranks: Vec<usize> = self.results.iter().map(|(_, shape)| shape.len()).collect();
        let dtypes: Vec<u32> = self.results.iter().map(|(dtype, _)| code(*dtype)).collect();
        let arrays: Vec<*const c_void> =
            operands.iter().map(|array| array.as_ptr().ctx.cast_const()).collect();
        let mut made = vec![std::ptr::null_mut(); ranks.len()];
        let call = Box::into_raw(Box::new(self)).cast::<c_void>();
        // SAFETY: every pointer is to as many elements as the counts say and outlives the call; the contexts are
        // those of live arrays; `call` is given away for good, to be used by `run` and freed by `free`.
        let whole = unsafe {
            mlx_parity_host_kernel(
                arrays.as_ptr(),
                arrays.len(),
                shapes.as_ptr(),
                ranks.as_ptr(),
                dtypes.as_ptr(),
                ranks.len(),
                call,
                run,
                free,
                made.as_mut_ptr(),
            )
        };
        if !whole {
            return Err(EngineError::Op { op: id, message: "MLX takes no such operation".into() });
        }
        // SAFETY: each is a new array that nothing else owns.
        Ok(made
            .into_iter()
            .map(|ctx| unsafe { Array::from_ptr(mlx_sys::mlx_array { ctx }) })
            .collect())
    }

    /// Runs on the arrays' memory. Views that the kernel does not take are copied, row-major.
    fn run(&self, operands: &[Lain], out: &mut [Out<'_>]) -> Result<(), KernelError> {
        let names = || self.operands.iter().map(|(name, _)| *name);
        let views = operands.iter().map(Lain::view);
        if let Some(views) = views.collect::<Option<Vec<_>>>() {
            let call = Call { operands: names().zip(views).collect(), params: self.params.clone() };
            if self.candidate.supported(&call).is_ok() {
                return self.candidate.run(&call, self.how, out);
            }
        }
        let copies: Vec<Operand> =
            names().zip(operands).map(|(name, operand)| operand.copied(name)).collect();
        let operands = copies.iter().map(|copy| (copy.name, copy.view())).collect();
        let call = Call { operands, params: self.params.clone() };
        self.candidate.run(&call, self.how, out)
    }
}

/// An operand as it lies in memory when the kernel runs.
struct Lain {
    start: *const c_void,
    dtype: Dtype,
    shape: Vec<usize>,
    strides: Vec<isize>,
    /// The strides, where none is negative.
    forward: Option<Vec<usize>>,
}

impl Lain {
    /// # Safety
    /// `span` is of an evaluated array of `dtype` that lives as long as what is made of it.
    unsafe fn new(span: &Span, dtype: Dtype) -> Self {
        let rank = span.rank as usize;
        let (shape, strides) = if rank == 0 {
            (&[][..], &[][..])
        } else {
            // SAFETY: an array has as many extents and strides as its rank says.
            unsafe {
                (
                    std::slice::from_raw_parts(span.shape, rank),
                    std::slice::from_raw_parts(span.strides, rank),
                )
            }
        };
        let shape = shape.iter().map(|&extent| extent as usize).collect();
        let strides: Vec<isize> = strides.iter().map(|&stride| stride as isize).collect();
        let forward = strides.iter().map(|&stride| usize::try_from(stride).ok()).collect();
        Self { start: span.start, dtype, shape, strides, forward }
    }

    /// As a kernel reads it; none for one that runs backwards.
    fn view(&self) -> Option<View<'_>> {
        let strides = self.forward.as_deref()?;
        let data = data(self.dtype, self.start, reach(&self.shape, strides));
        Some(View { data, shape: &self.shape, strides })
    }

    /// A row-major copy.
    fn copied(&self, name: &'static str) -> Operand {
        let mut places = vec![0_isize; usize::from(!self.shape.contains(&0))];
        for (&extent, &stride) in self.shape.iter().zip(&self.strides) {
            let along = |at: &isize| {
                let at = *at;
                (0..extent as isize).map(move |i| at + i * stride)
            };
            places = places.iter().flat_map(along).collect();
        }
        let buffer = match self.dtype {
            Dtype::F16 => Buffer::F16(self.gathered(&places)),
            Dtype::Bf16 => Buffer::Bf16(self.gathered(&places)),
            Dtype::U32 => Buffer::U32(self.gathered(&places)),
            Dtype::I32 => Buffer::I32(self.gathered(&places)),
            _ => Buffer::F32(self.gathered(&places)),
        };
        Operand::new(name, self.shape.as_slice(), buffer)
    }

    fn gathered<T: Copy>(&self, places: &[isize]) -> Vec<T> {
        let start = self.start.cast::<T>();
        // SAFETY: every place is that of an element of the array, of `T`'s width.
        places.iter().map(|&at| unsafe { *start.offset(at) }).collect()
    }
}

/// Elements from the first to the last of an array.
pub(super) fn reach(shape: &[usize], strides: &[usize]) -> usize {
    if shape.contains(&0) {
        return 0;
    }
    1 + shape.iter().zip(strides).map(|(&extent, &stride)| (extent - 1) * stride).sum::<usize>()
}

/// `len` elements of a dtype that kernels read.
pub(super) fn data<'a>(dtype: Dtype, start: *const c_void, len: usize) -> Data<'a> {
    match dtype {
        Dtype::F16 => Data::F16(elements(start, len)),
        Dtype::Bf16 => Data::Bf16(elements(start, len)),
        Dtype::U32 => Data::U32(elements(start, len)),
        Dtype::I32 => Data::I32(elements(start, len)),
        _ => Data::F32(elements(start, len)),
    }
}

thread_local! {
    /// What went wrong last on this thread, kept for C++ to read.
    static WRONG: std::cell::RefCell<CString> = std::cell::RefCell::default();
}

/// What MLX's stream calls when the operands are there.
unsafe extern "C" fn run(
    call: *mut c_void,
    operands: *const Span,
    results: *const Span,
) -> *const c_char {
    // SAFETY: the box that `enqueue` gave away; C++ frees it after its last run.
    let call = unsafe { &*call.cast::<Deferred>() };
    // SAFETY: as many as the call has operands and results, of evaluated and of newly allocated arrays.
    let (operands, results) = unsafe {
        (
            std::slice::from_raw_parts(operands, call.operands.len()),
            std::slice::from_raw_parts(results, call.results.len()),
        )
    };
    let dtypes = call.operands.iter().map(|(_, dtype)| *dtype);
    // SAFETY: C++ keeps the operands until this returns.
    let lain = operands.iter().zip(dtypes).map(|(span, dtype)| unsafe { Lain::new(span, dtype) });
    let lain: Vec<Lain> = lain.collect();
    let written = call.results.iter().zip(results);
    // SAFETY: newly allocated, of the shape and dtype that `enqueue` asked for, and nobody else's yet.
    let written = written.map(|((dtype, shape), span)| unsafe { out(*dtype, shape, span) });
    let mut written: Vec<Out<'_>> = written.collect();
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        call.run(&lain, &mut written).map_err(|error| error.to_string())
    }));
    let id = call.candidate.spec().id;
    let why = match ran {
        Ok(Ok(())) => {
            call.ran.fetch_add(1, Ordering::Relaxed);
            return std::ptr::null();
        }
        Ok(Err(why)) => why,
        Err(_) => format!("{id} panicked"),
    };
    WRONG.with_borrow_mut(|wrong| {
        *wrong = CString::new(why.replace('\0', " ")).unwrap_or_default();
        wrong.as_ptr()
    })
}

/// # Safety
/// `span` is of an array of the dtype and shape that nobody else looks at.
unsafe fn out<'a>(dtype: Dtype, shape: &[usize], span: &Span) -> Out<'a> {
    let len: usize = shape.iter().product();
    // SAFETY: as the caller says; an empty slice needs a pointer that is not null.
    unsafe {
        match dtype {
            Dtype::F16 if len > 0 => {
                Out::F16(std::slice::from_raw_parts_mut(span.start.cast(), len))
            }
            Dtype::Bf16 if len > 0 => {
                Out::Bf16(std::slice::from_raw_parts_mut(span.start.cast(), len))
            }
            Dtype::F16 => Out::F16(&mut []),
            Dtype::Bf16 => Out::Bf16(&mut []),
            _ if len > 0 => Out::F32(std::slice::from_raw_parts_mut(span.start.cast(), len)),
            _ => Out::F32(&mut []),
        }
    }
}

/// What MLX calls when the last array of the call is gone.
unsafe extern "C" fn free(call: *mut c_void) {
    // SAFETY: the box that `enqueue` gave away, freed once.
    drop(unsafe { Box::from_raw(call.cast::<Deferred>()) });
}

#[cfg(test)]
mod tests {
    use mlx_parity_kernels::candidate;

    use super::*;
    use crate::array::read;
    use crate::kernels::counters;
    use crate::ops::{self, SliceAxis};

    /// A call of arrays that need not be evaluated.
    fn later(
        id: &str,
        operands: &[(&'static str, &Array)],
        params: Params,
        results: Vec<(Dtype, Vec<usize>)>,
    ) -> Vec<Array> {
        let candidate = candidate(id).unwrap();
        let dtype = |array: &Array| crate::array::host_dtype(array.dtype()).unwrap();
        let named = operands.iter().map(|(name, array)| (*name, dtype(array)));
        let deferred = Deferred {
            candidate,
            operands: named.collect(),
            params,
            how: How::new(),
            results,
            ran: counters::counter(candidate.spec().id, "test"),
        };
        let arrays: Vec<&Array> = operands.iter().map(|(_, array)| *array).collect();
        deferred.enqueue(&arrays).unwrap()
    }

    fn ramp(shape: &[i32]) -> Array {
        let values: Vec<f32> = (0..shape.iter().product()).map(|i| (i as f32).sin()).collect();
        Array::from_slice(&values, shape)
    }

    fn attend(queries: &Array, others: &Array) -> Vec<f32> {
        let params = [("scale", 0.5), ("causal", 1.0), ("window", 0.0), ("want_lse", 0.0)].to_vec();
        let operands = [("queries", queries), ("keys", others), ("values", others)];
        let results = vec![(Dtype::F32, vec![1, 2, 5, 8])];
        let out = later("flash_attention", &operands, Params(params), results);
        read::<f32>("out", &out[0]).unwrap()
    }

    #[test]
    fn nothing_is_computed_before_it_is_wanted() {
        let before = counters::dispatches_of("fused_geglu", "test");
        let gate = ops::multiply(&ramp(&[3, 8]), &ramp(&[3, 8])).unwrap();
        let operands = [("gate", &gate), ("up", &gate)];
        let form = vec![(Dtype::F32, vec![3, 8])];
        let out = later("fused_geglu", &operands, Params::default(), form);
        assert_eq!(counters::dispatches_of("fused_geglu", "test"), before);
        let twice = ops::add(&out[0], &out[0]).unwrap();
        let found = read::<f32>("twice", &twice).unwrap();
        assert_eq!(counters::dispatches_of("fused_geglu", "test"), before + 1);
        let (values, out) =
            (read::<f32>("gate", &gate).unwrap(), read::<f32>("out", &out[0]).unwrap());
        for ((twice, out), x) in found.iter().zip(&out).zip(&values) {
            assert_eq!(*twice, 2.0 * out);
            assert!(out.is_finite() && out.abs() <= x * x + 1e-6, "{out} of {x}");
        }
    }

    /// Rows with gaps in them, and rows that run backwards, are copied for a kernel that wants neither.
    #[test]
    fn a_view_that_the_kernel_does_not_take_is_copied() {
        let (queries, others) = (ramp(&[1, 2, 5, 8]), ramp(&[1, 1, 7, 8]));
        let wanted = attend(&queries, &others);
        let turned = ops::contiguous(&ops::transpose(&queries, &[0, 1, 3, 2]).unwrap()).unwrap();
        let turned = ops::transpose(&turned, &[0, 1, 3, 2]).unwrap();
        assert_eq!(attend(&turned, &others), wanted);
        let reversed = ops::take(&queries, &Array::from_slice(&[4_i32, 3, 2, 1, 0], &[5]), 2);
        let backwards = SliceAxis { start: 4, stop: -1, step: -1 };
        let axes = [SliceAxis::full(1), SliceAxis::full(2), backwards, SliceAxis::full(8)];
        let again = ops::slice(&reversed.unwrap(), &axes).unwrap();
        assert_eq!(attend(&again, &others), wanted);
    }

    #[test]
    fn what_goes_wrong_comes_out_of_the_evaluation() {
        let (hidden, weight) = (ramp(&[2, 8]), ramp(&[5, 8]));
        let targets = Array::from_slice(&[1_i32, 9], &[2]);
        let operands = [("hidden", &hidden), ("weight", &weight), ("targets", &targets)];
        let form = vec![(Dtype::F32, vec![2]), (Dtype::F32, vec![2])];
        let out = later("flash_cce", &operands, Params::default(), form);
        let error = ops::eval(&out).unwrap_err().to_string();
        assert!(error.contains("target 9 of 5 classes"), "{error}");
        // The stream goes on.
        assert_eq!(read::<f32>("sum", &ops::add(&hidden, &hidden).unwrap()).unwrap().len(), 16);
    }
}
