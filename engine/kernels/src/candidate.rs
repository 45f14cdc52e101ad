//! What the gate asks of a candidate.

use mlx_parity_tensor::Dtype;

use crate::call::{Call, Operand, Out, Params};
use crate::error::KernelError;
use crate::how::How;
use crate::spec::Spec;

/// A class of shapes that is decided as one, and the shapes it is tried on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapeClass {
    /// Its name, such as `decode` or `prefill-q4`.
    pub name: &'static str,
    /// What calls belong to it.
    pub what: &'static str,
    /// Sizes to try it on, in the order of [`Candidate::sizes`]: boundaries, and both sides of them.
    pub lattice: &'static [&'static [usize]],
    /// Sizes to time it on.
    pub timed: &'static [usize],
}

/// One call that owns its operands.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Name of the trial within its class, such as `rows=3,in=96,out=65/offset-means`.
    pub name: String,
    /// Operands.
    pub operands: Vec<Operand>,
    /// Numbers.
    pub params: Params,
}

impl Trial {
    /// The call.
    pub fn call(&self) -> Call<'_> {
        let operands = self.operands.iter().map(|of| (of.name, of.view())).collect();
        Call { operands, params: self.params.clone() }
    }
}

/// What a probe's results should be.
#[derive(Debug, Clone, PartialEq)]
pub enum Expected {
    /// Near [`Candidate::reference`], as any trial.
    Reference,
    /// The same results as another call, bit for bit: a view and its copy.
    SameAs(Box<Trial>),
    /// No result is NaN, though operands hold NaN where the kernel must not look.
    Finite,
}

/// A call made to show one kind of bug.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// The call; its name is the probe's, such as `needle-last/keys=333`.
    pub trial: Trial,
    /// What is right.
    pub expected: Expected,
}

/// A fused kernel beside its baseline.
pub trait Candidate: Sync {
    /// What it says of itself.
    fn spec(&self) -> &'static Spec;

    /// Whether it takes a call.
    ///
    /// # Errors
    /// [`KernelError::Unsupported`] where it does not, [`KernelError::Malformed`] where nothing could.
    fn supported(&self, call: &Call<'_>) -> Result<(), KernelError>;

    /// The class of a call that it takes.
    fn class(&self, call: &Call<'_>) -> &'static str;

    /// Dtype and shape of each result.
    ///
    /// # Errors
    /// As [`supported`](Self::supported).
    fn results(&self, call: &Call<'_>) -> Result<Vec<(Dtype, Vec<usize>)>, KernelError>;

    /// Computes on the host. Writes every element of `out` and nothing else.
    ///
    /// # Errors
    /// As [`supported`](Self::supported).
    fn run(&self, call: &Call<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError>;

    /// The results in float64, from the operands as they are, row-major.
    ///
    /// # Errors
    /// [`KernelError::Malformed`].
    fn reference(&self, call: &Call<'_>) -> Result<Vec<Vec<f64>>, KernelError>;

    /// Floating-point operations of a call's products, two for each multiplication and addition: what no machine does
    /// faster than its largest matrix product. 0 where they do not matter.
    fn flops(&self, _call: &Call<'_>) -> f64 {
        0.0
    }

    /// Names of the sizes in a lattice.
    fn sizes(&self) -> &'static [&'static str];

    /// The classes it is decided in.
    fn classes(&self) -> &'static [ShapeClass];

    /// A call of the given sizes with seeded random operands.
    fn trial(&self, class: &ShapeClass, sizes: &[usize], dtype: Dtype, seed: u64) -> Trial;

    /// Calls that show one kind of bug each.
    fn probes(&self, class: &ShapeClass, dtype: Dtype) -> Vec<Probe>;
}
