//! Scoring the positions of two sets of logits.

use mlx_parity_tensor::{Dtype, TensorView};
use serde::{Deserialize, Serialize};

use super::position::Position;

/// What to find besides the numbers that every position has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScoreOptions {
    /// Tokens whose overlap is counted; at least 1.
    pub top_k: usize,
    /// Whether to find the total variation, which takes a second pass.
    pub total_variation: bool,
    /// Most NaNs and infinities to locate; all are counted.
    pub locate: usize,
}

impl Default for ScoreOptions {
    fn default() -> Self {
        Self { top_k: 10, total_variation: true, locate: 16 }
    }
}

/// Every position of two sets of logits.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// One for each row, none left out.
    pub positions: Vec<Position>,
    /// The first NaNs and infinities, by position, teacher before student.
    pub nonfinite: Vec<NonFinite>,
    /// NaNs and infinities in the teacher's logits.
    pub nonfinite_teacher: u64,
    /// NaNs and infinities in the student's logits.
    pub nonfinite_student: u64,
}

/// Whose logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The distribution that divergences are measured from.
    Teacher,
    /// The one that is measured.
    Student,
}

/// Where a logit is NaN or infinite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NonFinite {
    /// Row.
    pub position: usize,
    /// Column.
    pub token: usize,
    /// Whose.
    pub side: Side,
    /// `NaN`, `inf` or `-inf`.
    pub value: String,
}

/// Logits that cannot be scored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatsError {
    /// Not `[positions, vocabulary]`.
    #[error("{side:?} logits have shape {shape:?}, wanted [positions, vocabulary]")]
    Rank {
        /// Whose.
        side: Side,
        /// Their shape.
        shape: Vec<usize>,
    },
    /// Not floats of 16, 32 or 64 bits.
    #[error("{side:?} logits are {dtype}, wanted f16, bf16, f32 or f64")]
    Dtype {
        /// Whose.
        side: Side,
        /// Their dtype.
        dtype: Dtype,
    },
    /// Two different shapes.
    #[error("teacher logits have shape {teacher:?}, student logits {student:?}")]
    Shape {
        /// Shape of the teacher's.
        teacher: Vec<usize>,
        /// Shape of the student's.
        student: Vec<usize>,
    },
    /// No vocabulary, or one whose tokens `u32` does not number.
    #[error("a vocabulary of {0} tokens, wanted 1 to 4294967295")]
    Vocabulary(usize),
    /// Not one target for each position.
    #[error("{found} targets for {positions} positions")]
    Targets {
        /// Targets.
        found: usize,
        /// Positions.
        positions: usize,
    },
    /// A target outside of the vocabulary.
    #[error("target {token} of position {position} is outside of a vocabulary of {vocabulary}")]
    Target {
        /// Its place.
        position: usize,
        /// The target.
        token: u32,
        /// Tokens there are.
        vocabulary: usize,
    },
    /// No token to count.
    #[error("the overlap of the 0 likeliest tokens, wanted at least 1")]
    TopK,
}

/// Scores each position of two sets of logits `[positions, vocabulary]`, of any of f16, bf16, f32 and f64 each.
/// `targets` are the tokens that the text goes on with, one for each position.
///
/// # Errors
/// [`StatsError`]. A NaN or an infinity is none: it is counted, and its position is not scored.
pub fn score(
    teacher: TensorView<'_>,
    student: TensorView<'_>,
    targets: Option<&[u32]>,
    options: &ScoreOptions,
) -> Result<Scored, StatsError> {
    todo!()
}
