//! Running a kernel with the vector instructions of the machine.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is compiled for the narrowest registers"
)]

/// Elements of a block: small enough that all the arrays of one comparison stay in the first-level cache.
pub(super) const BLOCK: usize = 1024;

/// Work for [`vectorized`]; all it calls must be inlined into it.
pub(crate) trait Kernel {
    /// What it finds.
    type Output;

    /// Does the work. Implementations are `#[inline(always)]`, or run on the narrowest registers.
    fn run(self) -> Self::Output;
}

/// Runs `kernel` with the widest vector registers of this machine. The answer is the same on all machines: nothing is
/// reordered or fused.
#[inline]
pub(crate) fn vectorized<K: Kernel>(kernel: K) -> K::Output {
    pulp::Arch::new().dispatch(Dispatched(kernel))
}

struct Dispatched<K>(K);

impl<K: Kernel> pulp::WithSimd for Dispatched<K> {
    type Output = K::Output;

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) -> K::Output {
        self.0.run()
    }
}
