//! How values are packed.

use std::ffi::CStr;

use mlx_rs::Array;

use crate::error::EngineError;
use crate::ops::Affine;

/// A quantization mode of `mlx.core.quantize`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Unsigned integers with a scale and a bias a group, in the values' dtype.
    Affine(Affine),
    /// FP4 E2M1 with an E8M0 scale per 32 values.
    Mxfp4,
    /// FP8 E4M3 with an E8M0 scale per 32 values.
    Mxfp8,
    /// FP4 E2M1 with an E4M3 scale per 16 values.
    Nvfp4,
}

impl Mode {
    /// MLX's name of the mode.
    pub fn name(self) -> &'static str {
        match self {
            Self::Affine(_) => "affine",
            Self::Mxfp4 => "mxfp4",
            Self::Mxfp8 => "mxfp8",
            Self::Nvfp4 => "nvfp4",
        }
    }

    /// Bits a value.
    pub fn bits(self) -> i32 {
        match self {
            Self::Affine(affine) => affine.bits,
            Self::Mxfp4 | Self::Nvfp4 => 4,
            Self::Mxfp8 => 8,
        }
    }

    /// Values that share a scale.
    pub fn group_size(self) -> i32 {
        match self {
            Self::Affine(affine) => affine.group_size,
            Self::Mxfp4 | Self::Mxfp8 => 32,
            Self::Nvfp4 => 16,
        }
    }

    pub(super) fn c_name(self) -> &'static CStr {
        match self {
            Self::Affine(_) => c"affine",
            Self::Mxfp4 => c"mxfp4",
            Self::Mxfp8 => c"mxfp8",
            Self::Nvfp4 => c"nvfp4",
        }
    }

    pub(super) fn c_group_size(self) -> mlx_sys::mlx_optional_int {
        mlx_sys::mlx_optional_int { value: self.group_size(), has_value: true }
    }

    pub(super) fn c_bits(self) -> mlx_sys::mlx_optional_int {
        mlx_sys::mlx_optional_int { value: self.bits(), has_value: true }
    }
}

/// A matrix, or a stack of them, packed along its last axis.
#[derive(Debug, Clone)]
pub struct Packed {
    /// Codes, `[.., columns * bits / 32]` in u32.
    pub words: Array,
    /// `[.., columns / group_size]`: floats for [`Mode::Affine`], u8 codes for the others.
    pub scales: Array,
    /// Of the scales' shape and dtype, for [`Mode::Affine`] only.
    pub biases: Option<Array>,
    /// How the values are packed.
    pub mode: Mode,
}

impl Packed {
    /// Applies one step to each array.
    pub(crate) fn map(
        &self,
        step: impl Fn(&Array) -> Result<Array, EngineError>,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            words: step(&self.words)?,
            scales: step(&self.scales)?,
            biases: self.biases.as_ref().map(&step).transpose()?,
            mode: self.mode,
        })
    }
}
