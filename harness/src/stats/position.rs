//! What one position says of two distributions over the next token.

use serde::{Deserialize, Deserializer, Serialize};

/// The two distributions at one position. P is the teacher's, Q the student's: the softmax of each one's logits over the
/// whole vocabulary.
///
/// What cannot be below 0 is 0 where rounding would have it below.
///
/// A position with a NaN or an infinity among its logits has no distribution: its numbers are NaN (`null` in JSON), it
/// does not agree, and [`Position::is_scored`] is false.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// KL(P‖Q) = Σ P ln(P/Q), in nats. Where it is next to nothing it is off by about 1e-15.
    #[serde(deserialize_with = "null_is_nan")]
    pub kl: f64,
    /// KL(Q‖P), in nats.
    #[serde(deserialize_with = "null_is_nan")]
    pub reverse_kl: f64,
    /// ½ Σ |P − Q|, from 0 to 1; `None` where it was not asked for.
    pub total_variation: Option<f64>,
    /// −Σ P ln P, in nats.
    #[serde(deserialize_with = "null_is_nan")]
    pub entropy_teacher: f64,
    /// −Σ Q ln Q, in nats.
    #[serde(deserialize_with = "null_is_nan")]
    pub entropy_student: f64,
    /// How far the teacher's second token is behind its first, in nats; 0 in a tie.
    #[serde(deserialize_with = "null_is_nan")]
    pub margin_teacher: f64,
    /// The teacher's likeliest token, the first of equals.
    pub top1_teacher: u32,
    /// The student's likeliest token, the first of equals.
    pub top1_student: u32,
    /// Whether a token that no other beats in the teacher is one that no other beats in the student. Any of several
    /// equals may be the one they share, so that a path always agrees with itself.
    pub agree: bool,
    /// Part of the teacher's k likeliest tokens that are among the student's, from 0 to 1. Both sets hold all the tokens
    /// that are not below their k-th; of the tokens in both, k count as all.
    #[serde(deserialize_with = "null_is_nan")]
    pub top_k_overlap: f64,
    /// The token that the text goes on with, where it is known.
    pub true_token: Option<TrueToken>,
}

/// What the two distributions think of the token that the text goes on with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrueToken {
    /// The token.
    pub id: u32,
    /// −ln P(token), in nats.
    #[serde(deserialize_with = "null_is_nan")]
    pub nll_teacher: f64,
    /// −ln Q(token), in nats.
    #[serde(deserialize_with = "null_is_nan")]
    pub nll_student: f64,
    /// Q(token) − P(token).
    #[serde(deserialize_with = "null_is_nan")]
    pub delta_p: f64,
}

impl Position {
    /// Whether all logits were finite, so that its numbers are too.
    pub fn is_scored(&self) -> bool {
        self.kl.is_finite() && self.reverse_kl.is_finite()
    }
}

/// JSON has no NaN: it is written as `null`.
pub(super) fn null_is_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}
