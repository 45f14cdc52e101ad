//! Why a kernel does not run.

/// A call that a kernel does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The kernel is not made for calls like this.
    #[error("{kernel} does not take this call: found {found}, wanted {wanted}")]
    Unsupported {
        /// The kernel.
        kernel: &'static str,
        /// What the call has.
        found: String,
        /// What the kernel takes.
        wanted: String,
    },
    /// The call lacks an operand or a number, or has one of the wrong shape or dtype.
    #[error("{kernel}: {what}")]
    Malformed {
        /// The kernel.
        kernel: &'static str,
        /// What is wrong.
        what: String,
    },
}
