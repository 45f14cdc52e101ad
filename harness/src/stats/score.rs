//! Scoring the positions of two sets of logits.

use mlx_parity_tensor::{Dtype, TensorView};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::kernel::Maxima;
use super::position::Position;
use super::row::{Outcome, Pair};

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
    /// `NaN`, `inf`, `-inf`, or a float64 beyond the range of float32.
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
    /// No choice of tokens, or one whose tokens `u32` does not number.
    #[error("a vocabulary of {0} tokens, wanted 2 to 4294967295")]
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
/// `targets` are the tokens that the text goes on with, one for each position. Positions are shared among the threads of
/// the current rayon pool; their numbers depend on nothing but the logits.
///
/// # Errors
/// [`StatsError`]. A NaN or an infinity is none: it is counted, and its position is not scored. So is a float64 logit
/// beyond the range of float32.
pub fn score(
    teacher: TensorView<'_>,
    student: TensorView<'_>,
    targets: Option<&[u32]>,
    options: &ScoreOptions,
) -> Result<Scored, StatsError> {
    check(&teacher, &student, targets, options)?;
    let pair = Pair { teacher, student, targets, options: *options };
    let rows: Vec<Outcome> = (0..teacher.shape()[0])
        .into_par_iter()
        .map_init(Maxima::default, |maxima, at| pair.outcome(at, maxima))
        .collect();
    Ok(Scored::gather(rows, options.locate))
}

fn check(
    teacher: &TensorView<'_>,
    student: &TensorView<'_>,
    targets: Option<&[u32]>,
    options: &ScoreOptions,
) -> Result<(), StatsError> {
    for (side, logits) in [(Side::Teacher, teacher), (Side::Student, student)] {
        if logits.shape().len() != 2 {
            return Err(StatsError::Rank { side, shape: logits.shape().to_vec() });
        }
        if !matches!(logits.dtype(), Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64) {
            return Err(StatsError::Dtype { side, dtype: logits.dtype() });
        }
    }
    if teacher.shape() != student.shape() {
        let (teacher, student) = (teacher.shape().to_vec(), student.shape().to_vec());
        return Err(StatsError::Shape { teacher, student });
    }
    let (positions, vocabulary) = (teacher.shape()[0], teacher.shape()[1]);
    if vocabulary < 2 || u32::try_from(vocabulary).is_err() {
        return Err(StatsError::Vocabulary(vocabulary));
    }
    if options.top_k == 0 {
        return Err(StatsError::TopK);
    }
    check_targets(targets, positions, vocabulary)
}

fn check_targets(
    targets: Option<&[u32]>,
    positions: usize,
    vocabulary: usize,
) -> Result<(), StatsError> {
    let Some(targets) = targets else { return Ok(()) };
    if targets.len() != positions {
        return Err(StatsError::Targets { found: targets.len(), positions });
    }
    match targets.iter().position(|token| *token as usize >= vocabulary) {
        Some(position) => {
            Err(StatsError::Target { position, token: targets[position], vocabulary })
        }
        None => Ok(()),
    }
}

impl Scored {
    fn gather(rows: Vec<Outcome>, locate: usize) -> Self {
        let [nonfinite_teacher, nonfinite_student] =
            [0, 1].map(|side| rows.iter().map(|row| row.nonfinite[side]).sum());
        let nonfinite = rows.iter().flat_map(|row| row.located.iter().cloned()).take(locate);
        Self {
            nonfinite: nonfinite.collect(),
            nonfinite_teacher,
            nonfinite_student,
            positions: rows.into_iter().map(|row| row.position).collect(),
        }
    }
}
