//! The element types a tensor can have.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Element type, named as safetensors names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum Dtype {
    /// One byte, zero or not.
    Bool,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 16-bit integer.
    U16,
    /// Signed 16-bit integer.
    I16,
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned 64-bit integer.
    U64,
    /// Signed 64-bit integer.
    I64,
    /// OCP 8-bit float, 4 exponent and 3 mantissa bits, no infinity, largest value 448.
    F8E4M3,
    /// OCP 8-bit float, 5 exponent and 2 mantissa bits, with infinities.
    F8E5M2,
    /// OCP scale: an unsigned power of two, `2^(bits - 127)`; 255 is NaN.
    F8E8M0,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of binary32.
    Bf16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

/// A dtype name that is none of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown dtype `{found}`, wanted one of {}", names(Dtype::name))]
pub struct UnknownDtype {
    /// The name as it was given.
    pub found: String,
}

impl Dtype {
    /// Every dtype, in declaration order.
    pub const ALL: [Self; 16] = [
        Self::Bool,
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::U64,
        Self::I64,
        Self::F8E4M3,
        Self::F8E5M2,
        Self::F8E8M0,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 | Self::F8E4M3 | Self::F8E5M2 | Self::F8E8M0 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Short lower-case name: `bf16`, `f32`, `f8_e4m3`, …
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F8E4M3 => "f8_e4m3",
            Self::F8E5M2 => "f8_e5m2",
            Self::F8E8M0 => "f8_e8m0",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    /// Name in a safetensors header: `BF16`, `F32`, `F8_E4M3`, …
    pub const fn safetensors_name(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::U8 => "U8",
            Self::I8 => "I8",
            Self::U16 => "U16",
            Self::I16 => "I16",
            Self::U32 => "U32",
            Self::I32 => "I32",
            Self::U64 => "U64",
            Self::I64 => "I64",
            Self::F8E4M3 => "F8_E4M3",
            Self::F8E5M2 => "F8_E5M2",
            Self::F8E8M0 => "F8_E8M0",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::F32 => "F32",
            Self::F64 => "F64",
        }
    }

    /// Whether elements are floating-point numbers (the 8-bit ones and the power-of-two scale too).
    pub const fn is_float(self) -> bool {
        matches!(
            self,
            Self::F8E4M3
                | Self::F8E5M2
                | Self::F8E8M0
                | Self::F16
                | Self::Bf16
                | Self::F32
                | Self::F64
        )
    }

    /// Reads a short name, as [`Dtype::name`] gives it.
    pub fn parse(name: &str) -> Result<Self, UnknownDtype> {
        find(name, Self::name)
    }

    /// Reads a name as a safetensors header spells it.
    pub fn from_safetensors(name: &str) -> Result<Self, UnknownDtype> {
        find(name, Self::safetensors_name)
    }
}

fn find(name: &str, spelled: fn(Dtype) -> &'static str) -> Result<Dtype, UnknownDtype> {
    let known = Dtype::ALL.into_iter().find(|dtype| spelled(*dtype) == name);
    known.ok_or_else(|| UnknownDtype { found: name.to_owned() })
}

/// All names in one spelling, for messages.
pub(crate) fn names(spelled: fn(Dtype) -> &'static str) -> String {
    Dtype::ALL.map(spelled).join(", ")
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Dtype {
    type Err = UnknownDtype;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::parse(name)
    }
}

impl From<Dtype> for &'static str {
    fn from(dtype: Dtype) -> Self {
        dtype.name()
    }
}

impl TryFrom<String> for Dtype {
    type Error = UnknownDtype;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::parse(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_are_distinct() {
        for dtype in Dtype::ALL {
            assert_eq!(Dtype::parse(dtype.name()), Ok(dtype));
            assert_eq!(Dtype::from_safetensors(dtype.safetensors_name()), Ok(dtype));
            assert_eq!(dtype.name().to_uppercase(), dtype.safetensors_name());
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let message = Dtype::parse("f12").unwrap_err().to_string();
        assert!(message.contains("`f12`") && message.contains("bf16"), "{message}");
        assert!(Dtype::parse("BF16").is_err(), "the two spellings are not mixed");
    }

    #[test]
    fn serde_uses_the_short_name() {
        assert_eq!(serde_json::to_string(&Dtype::Bf16).unwrap(), "\"bf16\"");
        assert_eq!(serde_json::from_str::<Dtype>("\"f8_e5m2\"").unwrap(), Dtype::F8E5M2);
        assert!(serde_json::from_str::<Dtype>("\"half\"").is_err());
    }
}
