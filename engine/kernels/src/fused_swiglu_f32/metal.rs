//! The source of `fused_swiglu`, launched so that it rounds once.

use mlx_parity_tensor::Dtype;

use super::ID;
use crate::fused_swiglu::metal;
use crate::spec::Metal;

/// The Metal source.
pub(crate) const METAL: Metal =
    Metal { launch: |call| metal::launch(ID, call, Some(Dtype::F32)), ..metal::METAL };
