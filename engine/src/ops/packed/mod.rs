//! Packed matrices in every quantization mode of MLX, and the ops on them.

mod attention;
mod gather;
mod matmul;
mod mode;
mod quantize;

pub(super) use attention::{causal_mask, masked};
pub use attention::{scaled_dot_product_attention, tiled_attention};
pub use gather::gather_qmm;
pub use matmul::quantized_matmul;
pub use mode::{Mode, Packed};
pub use quantize::{dequantize, quantize};
