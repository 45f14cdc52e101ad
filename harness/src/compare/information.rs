//! Whether a golden holds enough to be worth comparing with.
//!
//! A golden of NaNs, of one repeated token, or of logits so far apart that no plausible error could change a choice,
//! is met by broken engines too. Such a golden is refused when it is frozen, unless its case says why it is meant.

use std::collections::BTreeSet;

use mlx_parity_tensor::TensorView;
use serde::{Deserialize, Serialize};

/// Fewer rows of logits than this say nothing about how varied the choices are.
pub const MIN_ROWS: usize = 8;
/// Of this many rows at least one more than [`FEW_TOKENS`] distinct tokens are wanted, and in proportion.
pub const PER_ROWS: usize = 100;
/// Two distinct tokens in a hundred are too few.
pub const FEW_TOKENS: usize = 2;
/// A margin is far above any error when a change of this part of the largest logit would not close it: an eighth,
/// 32 times the spacing of bf16.
pub const FAR_MARGIN: f64 = 0.125;

/// What a set of tensors can tell apart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Strength {
    /// Rows of logits seen.
    pub rows: usize,
    /// Distinct tokens that have the largest logit of a row.
    pub tokens: BTreeSet<usize>,
    /// Smallest difference of the two largest logits of a row, as a part of the row's largest magnitude.
    pub tightest_margin: Option<f64>,
    /// NaNs in all tensors.
    pub nan: u64,
    /// Infinities in all tensors.
    pub infinite: u64,
    /// Tensors of at least two elements whose elements are all the same, by name.
    pub constant: Vec<String>,
    /// Tensors without elements, by name.
    pub empty: Vec<String>,
    /// Tensors seen.
    pub tensors: usize,
}

/// Why a golden is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Refusal {
    /// There is nothing in it.
    #[error("holds no tensor, wanted at least one")]
    Nothing,
    /// Tensors without elements.
    #[error("tensor `{first}` and {more} more are empty")]
    Empty {
        /// The first.
        first: String,
        /// How many besides.
        more: usize,
    },
    /// NaNs.
    #[error("holds {count} NaN, wanted none")]
    Nan {
        /// How many.
        count: u64,
    },
    /// Infinities.
    #[error("holds {count} infinite values, wanted none")]
    Infinite {
        /// How many.
        count: u64,
    },
    /// Tensors with one value.
    #[error("tensor `{first}` and {more} more hold one value throughout")]
    Constant {
        /// The first.
        first: String,
        /// How many besides.
        more: usize,
    },
    /// Too few different choices.
    #[error("chooses {found} distinct tokens in {rows} rows, wanted more than {few}")]
    FewTokens {
        /// Distinct tokens.
        found: usize,
        /// Rows.
        rows: usize,
        /// The most that are too few.
        few: usize,
    },
    /// No close choice.
    #[error(
        "closest choice has a margin of {found:.3} of the largest logit, wanted one below {wanted}: no error would change a token"
    )]
    FarMargins {
        /// Tightest margin as a part of the largest logit.
        found: f64,
        /// What one row at least should be below.
        wanted: f64,
    },
}

impl Strength {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds any tensor of the golden but logits.
    pub fn add_tensor(&mut self, name: &str, tensor: &TensorView<'_>) {
        self.tensors += 1;
        if tensor.is_empty() {
            self.empty.push(name.to_owned());
            return;
        }
        if tensor.len() > 1 && is_constant(tensor) {
            self.constant.push(name.to_owned());
        }
        if tensor.dtype().is_float() {
            for value in tensor.to_f64() {
                self.nan += u64::from(value.is_nan());
                self.infinite += u64::from(value.is_infinite());
            }
        }
    }

    /// Adds logits: the last axis is the vocabulary, each row one choice.
    pub fn add_logits(&mut self, name: &str, logits: &TensorView<'_>) {
        self.add_tensor(name, logits);
        let vocabulary = logits.shape().last().copied().unwrap_or(0);
        if vocabulary < 2 {
            return;
        }
        for row in logits.to_f64().chunks_exact(vocabulary) {
            self.rows += 1;
            let Some(choice) = choose(row) else { continue };
            self.tokens.insert(choice.token);
            let tightest = self.tightest_margin.get_or_insert(choice.margin);
            if choice.margin < *tightest {
                *tightest = choice.margin;
            }
        }
    }

    /// Every reason to refuse the golden.
    pub fn refusals(&self) -> Vec<Refusal> {
        let named = |names: &[String]| names.first().map(|first| (first.clone(), names.len() - 1));
        let few = (FEW_TOKENS * self.rows).div_ceil(PER_ROWS);
        let (found, rows) = (self.tokens.len(), self.rows);
        let enough_rows = rows >= MIN_ROWS;
        let far = self.tightest_margin.filter(|margin| enough_rows && *margin >= FAR_MARGIN);
        [
            (self.tensors == 0).then_some(Refusal::Nothing),
            named(&self.empty).map(|(first, more)| Refusal::Empty { first, more }),
            (self.nan > 0).then_some(Refusal::Nan { count: self.nan }),
            (self.infinite > 0).then_some(Refusal::Infinite { count: self.infinite }),
            named(&self.constant).map(|(first, more)| Refusal::Constant { first, more }),
            (enough_rows && found <= few).then_some(Refusal::FewTokens { found, rows, few }),
            far.map(|found| Refusal::FarMargins { found, wanted: FAR_MARGIN }),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// The first reason to refuse the golden.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusals().into_iter().next()
    }
}

/// The largest logit of a row, the first of equals, and how far the second is behind.
struct Choice {
    token: usize,
    margin: f64,
}

/// `None` when a NaN leaves no order.
fn choose(row: &[f64]) -> Option<Choice> {
    if row.iter().any(|x| x.is_nan()) {
        return None;
    }
    let (mut token, mut second, mut magnitude) = (0, f64::NEG_INFINITY, row[0].abs());
    for (at, &x) in row.iter().enumerate().skip(1) {
        magnitude = if x.abs() > magnitude { x.abs() } else { magnitude };
        if x > row[token] {
            (token, second) = (at, row[token]);
        } else if x > second {
            second = x;
        }
    }
    // A row of zeros has no scale and no margin.
    let margin = if magnitude > 0.0 { (row[token] - second) / magnitude } else { 0.0 };
    Some(Choice { token, margin })
}

fn is_constant(tensor: &TensorView<'_>) -> bool {
    let bytes = tensor.bytes();
    bytes[tensor.dtype().size()..] == bytes[..bytes.len() - tensor.dtype().size()]
}

#[cfg(test)]
mod tests {
    use mlx_parity_tensor::HostTensor;

    use super::*;

    /// Logits of `rows` rows over a vocabulary of 16, whose choices are `token` of the row, by `margin`.
    fn logits(rows: usize, token: impl Fn(usize) -> usize, margin: f32) -> HostTensor {
        let value =
            |row, at| if at == token(row) { 10.0 } else { 10.0 - margin - at as f32 * 0.01 };
        let values: Vec<f32> = (0..rows)
            .flat_map(|r| (0..16).map(move |at| (r, at)))
            .map(|(r, at)| value(r, at))
            .collect();
        HostTensor::from_f32([rows, 16], &values).unwrap()
    }

    fn refusals(tensor: &HostTensor) -> Vec<Refusal> {
        let mut strength = Strength::new();
        strength.add_logits("logits", &tensor.view());
        strength.refusals()
    }

    #[test]
    fn varied_close_choices_are_accepted() {
        assert_eq!(refusals(&logits(100, |row| row % 7, 0.5)), []);
        assert_eq!(refusals(&logits(32, |row| row % 2, 0.5)), []);
    }

    #[test]
    fn two_tokens_in_a_hundred_are_too_few_and_three_are_not() {
        let found = refusals(&logits(100, |row| row % 2, 0.5));
        assert_eq!(found, [Refusal::FewTokens { found: 2, rows: 100, few: 2 }]);
        assert_eq!(
            found[0].to_string(),
            "chooses 2 distinct tokens in 100 rows, wanted more than 2"
        );
        assert_eq!(refusals(&logits(100, |row| row % 3, 0.5)), []);
        assert!(matches!(
            refusals(&logits(32, |_| 4, 0.5))[..],
            [Refusal::FewTokens { found: 1, .. }]
        ));
    }

    #[test]
    fn margins_no_error_could_close_are_refused() {
        let found = refusals(&logits(100, |row| row % 7, 2.0));
        assert!(
            matches!(found[..], [Refusal::FarMargins { found, .. }] if found > 0.19),
            "{found:?}"
        );
        let mut strength = Strength::new();
        strength.add_logits("far", &logits(99, |row| row % 7, 2.0).view());
        strength.add_logits("near", &logits(1, |_| 3, 0.1).view());
        assert_eq!(strength.refusal(), None, "one close choice is enough");
    }

    #[test]
    fn nan_and_infinity_are_refused_even_in_one_place() {
        for (value, wanted) in [
            (f32::NAN, Refusal::Nan { count: 1 }),
            (f32::NEG_INFINITY, Refusal::Infinite { count: 1 }),
        ] {
            let mut values = vec![1.0, 2.0, 3.0];
            values[1] = value;
            let mut strength = Strength::new();
            strength.add_tensor("x", &HostTensor::from_f32([3], &values).unwrap().view());
            assert_eq!(strength.refusals(), [wanted]);
        }
    }

    #[test]
    fn constant_and_empty_tensors_are_named() {
        let mut strength = Strength::new();
        strength.add_tensor("ones", &HostTensor::from_f32([3], &[1.0; 3]).unwrap().view());
        strength.add_tensor("scalar", &HostTensor::from_f32([1], &[1.0]).unwrap().view());
        strength.add_tensor("zeros", &HostTensor::from_u32([2], &[0; 2]).unwrap().view());
        strength.add_tensor("none", &HostTensor::from_f32([0], &[]).unwrap().view());
        assert_eq!(
            strength.refusals(),
            [
                Refusal::Empty { first: "none".to_owned(), more: 0 },
                Refusal::Constant { first: "ones".to_owned(), more: 1 }
            ]
        );
    }

    #[test]
    fn nothing_at_all_is_refused() {
        assert_eq!(Strength::new().refusal(), Some(Refusal::Nothing));
    }

    #[test]
    fn a_tie_counts_as_the_first_token_with_no_margin() {
        let choice = choose(&[1.0, 5.0, 5.0, -9.0]).unwrap();
        assert_eq!((choice.token, choice.margin), (1, 0.0));
        assert!(choose(&[1.0, f64::NAN]).is_none());
    }
}
