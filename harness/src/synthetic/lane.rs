//! The numeric formats every synthetic model comes in.

use serde::{Deserialize, Serialize};

use super::packed::Packing;

/// One numeric format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Lane {
    /// Everything in f32.
    #[serde(rename = "f32")]
    F32,
    /// Everything in bf16 but what the reference keeps in f32, and stacked experts, which are packed at 8
    /// bits: MLX has no `gather_mm` of half types on the CPU (`[GatherMM::eval] Currently only supports
    /// float32`), so that no model with plain bf16 experts can be asked for an answer there.
    #[serde(rename = "bf16")]
    Bf16,
    /// As bf16, with 4-bit affine weights wherever the reference quantizes.
    #[serde(rename = "4bit")]
    FourBit,
}

impl Lane {
    /// Every lane.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::FourBit];

    /// The packing of a packed layer that does not ask for another.
    pub const fn packing(self) -> Packing {
        let bits = if matches!(self, Self::FourBit) { 4 } else { 8 };
        Packing { group: 32, bits }
    }

    /// The name in ids and model names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::FourBit => "4bit",
        }
    }

    /// The name tables show.
    pub const fn label(self) -> &'static str {
        match self {
            Self::FourBit => "4-bit g32",
            other => other.name(),
        }
    }
}
