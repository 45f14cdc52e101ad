//! Operands of the gradients.

use mlx_parity_tensor::Dtype;

use super::ID;
use crate::call::{Call, View};
use crate::error::KernelError;
use crate::flash_cce::call::{Head, Weight};

/// A call that the kernel takes.
#[derive(Debug, Clone)]
pub(super) struct Backward<'a> {
    /// What the loss was of.
    pub head: Head<'a>,
    /// Logsumexp of each position.
    pub lse: View<'a>,
    /// Of each loss.
    pub cotangent: View<'a>,
    /// Whether the matrix's gradient is wanted.
    pub want_dweight: bool,
}

impl<'a> Backward<'a> {
    /// The operands of a call.
    ///
    /// # Errors
    /// As [`Head::of`]; [`KernelError::Unsupported`] for the gradient of a packed matrix.
    pub(super) fn of(call: &Call<'a>) -> Result<Self, KernelError> {
        let head = Head::of(ID, call)?;
        let of_rows = |name: &str| {
            let view = call.operand(ID, name)?;
            if view.data.dtype() != Dtype::F32 || view.shape != [head.rows] {
                let what = format!("`{name}` is not float32 [{}]", head.rows);
                return Err(KernelError::Malformed { kernel: ID, what });
            }
            Ok(view)
        };
        let (lse, cotangent) = (of_rows("lse")?, of_rows("cotangent")?);
        let want_dweight = call.params.get("want_dweight").unwrap_or(0.0) != 0.0;
        if want_dweight && matches!(head.weight, Weight::Packed(_)) {
            return Err(KernelError::Unsupported {
                kernel: ID,
                found: "the gradient of a packed matrix".into(),
                wanted: "that of a plain one".into(),
            });
        }
        Ok(Self { head, lse, cotangent, want_dweight })
    }
}
