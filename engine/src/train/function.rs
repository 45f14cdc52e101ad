//! Rust functions that MLX differentiates.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use mlx_rs::Array;

use super::closure::{Body, Closure, Custom, Pullback, Result, Shelf, Vector, calling};

/// Outputs of a function, and the gradients of its inputs.
pub type ValuesAndGradients = (Vec<Array>, Vec<Array>);

/// Where functions live that borrow what is around them. MLX's graphs may keep such a function for longer
/// than it may be called; [`scope`] takes it away from them when it ends.
pub struct Scope<'scope, 'env: 'scope> {
    shelves: RefCell<Vec<Rc<Shelf<Body<'static>>>>>,
    lifetime: PhantomData<&'scope mut &'scope ()>,
    environment: PhantomData<&'env mut &'env ()>,
}

/// Runs `work` with a place for functions that borrow what outlives the call, as [`std::thread::scope`] does
/// for threads.
///
/// # Errors
/// What `work` returns.
pub fn scope<'env, T>(
    work: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<T>,
) -> Result<T> {
    let scope =
        Scope { shelves: RefCell::default(), lifetime: PhantomData, environment: PhantomData };
    let _end = End(&scope);
    work(&scope)
}

/// Ends a scope when dropped.
struct End<'a, 'scope, 'env>(&'a Scope<'scope, 'env>);

impl Drop for End<'_, '_, '_> {
    fn drop(&mut self) {
        self.0.shelves.take().iter().for_each(|shelf| shelf.clear());
    }
}

impl<'scope> Scope<'scope, '_> {
    /// `mx.value_and_grad`: all outputs of `function`, and the gradients of its first output, a scalar,
    /// with regard to the inputs at `arguments`, in ascending order.
    ///
    /// # Errors
    /// What `function` fails with; [`EngineError::Op`](crate::EngineError::Op) where MLX throws, as for a first output that is
    /// no scalar.
    pub fn value_and_grad(
        &self,
        function: impl Fn(&[Array]) -> Result<Vec<Array>> + 'scope,
        arguments: &[i32],
        inputs: &[Array],
    ) -> Result<ValuesAndGradients> {
        let closure = self.closure(function);
        let inputs = Vector::of(inputs);
        // SAFETY: makes a handle that is freed below, on every path.
        let mut graded = unsafe { mlx_sys::mlx_closure_value_and_grad_new() };
        let (mut values, mut gradients) = (Vector::new(), Vector::new());
        let called = calling("value_and_grad", || {
            // SAFETY: closure, numbers and inputs outlive the calls, which fill handles that are ours.
            unsafe {
                let (first, count) = (arguments.as_ptr(), arguments.len());
                let made = mlx_sys::mlx_value_and_grad(&raw mut graded, closure.0, first, count);
                if made != 0 {
                    return made;
                }
                let (values, gradients) = (&raw mut values.0, &raw mut gradients.0);
                mlx_sys::mlx_closure_value_and_grad_apply(values, gradients, graded, inputs.0)
            }
        });
        // SAFETY: made above, freed once.
        unsafe { mlx_sys::mlx_closure_value_and_grad_free(graded) };
        called?;
        Ok((values.arrays()?, gradients.arrays()?))
    }

    /// `mx.vjp`: the outputs of `function`, and the gradients of its inputs under a cotangent for each
    /// output.
    ///
    /// # Errors
    /// What `function` fails with; [`EngineError::Op`](crate::EngineError::Op) where MLX throws, as for cotangents of other
    /// shapes.
    pub fn vjp(
        &self,
        function: impl Fn(&[Array]) -> Result<Vec<Array>> + 'scope,
        inputs: &[Array],
        cotangents: &[Array],
    ) -> Result<ValuesAndGradients> {
        let closure = self.closure(function);
        let (inputs, cotangents) = (Vector::of(inputs), Vector::of(cotangents));
        let (mut values, mut gradients) = (Vector::new(), Vector::new());
        calling("vjp", || {
            let (values, gradients) = (&raw mut values.0, &raw mut gradients.0);
            // SAFETY: closure, inputs and cotangents outlive the call, which fills vectors that are ours.
            unsafe { mlx_sys::mlx_vjp(values, gradients, closure.0, inputs.0, cotangents.0) }
        })?;
        Ok((values.arrays()?, gradients.arrays()?))
    }

    /// `mx.checkpoint`: a function of which the backward pass keeps inputs and outputs only, and computes
    /// the rest again.
    ///
    /// # Errors
    /// [`EngineError::Op`](crate::EngineError::Op) where MLX throws.
    pub fn checkpoint(
        &self,
        function: impl Fn(&[Array]) -> Result<Vec<Array>> + 'scope,
    ) -> Result<Function> {
        let closure = self.closure(function);
        let mut kept = Closure::none();
        calling("checkpoint", || {
            // SAFETY: the closure outlives the call, which fills a handle that is ours.
            unsafe { mlx_sys::mlx_checkpoint(&raw mut kept.0, closure.0) }
        })?;
        Ok(Function(kept))
    }

    fn closure(&self, function: impl Fn(&[Array]) -> Result<Vec<Array>> + 'scope) -> Closure {
        let function: Rc<Body<'scope>> = Rc::new(function);
        // SAFETY: the lifetime is dropped from the type only. The shelf below is the one owner MLX knows,
        // and it is emptied when this scope ends, which is before `'scope` does: the function `scope`
        // owns it, so it cannot be leaked.
        let function =
            unsafe { std::mem::transmute::<Rc<Body<'scope>>, Rc<Body<'static>>>(function) };
        let shelf = Shelf::holding(function);
        self.shelves.borrow_mut().push(Rc::clone(&shelf));
        Closure::new(shelf)
    }
}

/// A function of arrays that MLX holds, with the gradient it was given.
pub struct Function(Closure);

impl Function {
    /// `mx.custom_function` with a vjp: `forward` gives the outputs, and `backward`, of inputs, cotangents
    /// and outputs, the gradients of every input, of the inputs' shapes. Neither is looked into: they may
    /// evaluate their arrays.
    ///
    /// # Errors
    /// [`EngineError::Op`](crate::EngineError::Op) where MLX throws.
    pub fn with_vjp(
        forward: impl Fn(&[Array]) -> Result<Vec<Array>> + 'static,
        backward: impl Fn(&[Array], &[Array], &[Array]) -> Result<Vec<Array>> + 'static,
    ) -> Result<Self> {
        let forward: Rc<Body<'static>> = Rc::new(forward);
        let backward: Rc<Pullback<'static>> = Rc::new(backward);
        let forward = Closure::new(Shelf::holding(forward));
        let backward = Custom::new(Shelf::holding(backward));
        let mut custom = Closure::none();
        calling("custom_vjp", || {
            // SAFETY: both closures outlive the call, which fills a handle that is ours.
            unsafe { mlx_sys::mlx_custom_vjp(&raw mut custom.0, forward.0, backward.0) }
        })?;
        Ok(Self(custom))
    }

    /// The outputs of inputs.
    ///
    /// # Errors
    /// What the function fails with; [`EngineError::Op`](crate::EngineError::Op) where MLX throws.
    pub fn call(&self, inputs: &[Array]) -> Result<Vec<Array>> {
        let inputs = Vector::of(inputs);
        let mut outputs = Vector::new();
        calling("closure", || {
            // SAFETY: closure and inputs outlive the call, which fills a vector that is ours.
            unsafe { mlx_sys::mlx_closure_apply(&raw mut outputs.0, self.0.0, inputs.0) }
        })?;
        outputs.arrays()
    }
}
