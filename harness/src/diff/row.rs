//! What is said about one tensor, and about all.

use mlx_parity_tensor::TensorView;
use serde::{Deserialize, Serialize};

use super::bound::Bound;
use super::piece::Piece;
use crate::compare::Histogram;
use crate::compare::bits::{Difference, Form};

/// How a tensor compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Same dtype, shape and bits.
    Equal,
    /// Bits differ, all within the bound.
    Within,
    /// Bits differ, at least once by more than the bound.
    Differs,
    /// The dtypes differ.
    Dtype,
    /// The shapes differ.
    Shape,
    /// Only the first side has it.
    OnlyInA,
    /// Only the second side has it.
    OnlyInB,
}

impl Verdict {
    /// Whether the two sides count as the same.
    pub fn holds(self) -> bool {
        matches!(self, Self::Equal | Self::Within)
    }
}

/// One tensor: one line of the machine-readable output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorRow {
    /// Its name.
    pub tensor: String,
    /// How it compares.
    pub verdict: Verdict,
    /// Dtype and shape on the first side.
    pub a: Option<Form>,
    /// Dtype and shape on the second side.
    pub b: Option<Form>,
    /// Elements compared: none unless both sides have the same form.
    pub elements: u64,
    /// Elements whose bits differ.
    pub differ: u64,
    /// Elements that differ by more than the bound.
    pub over: u64,
    /// Greatest distance among differing elements that have one.
    pub max_ulp: Option<u64>,
    /// Greatest absolute difference of finite elements, if any are finite and differ.
    pub max_abs: Option<f64>,
    /// Mean absolute difference over all elements.
    pub mean_abs: Option<f64>,
    /// Root mean square difference over all elements.
    pub rmse: Option<f64>,
    /// Differing elements by distance.
    pub histogram: Histogram,
    /// The farthest pair.
    pub worst: Option<Difference>,
    /// The worst elements, as many as were asked for, the worst first.
    pub dump: Vec<Difference>,
}

impl TensorRow {
    /// A row of which only the forms are known yet.
    pub(super) fn of_forms(name: &str, a: Option<Form>, b: Option<Form>) -> Self {
        let verdict = match (&a, &b) {
            (Some(a), Some(b)) if a.dtype != b.dtype => Verdict::Dtype,
            (Some(a), Some(b)) if a.shape != b.shape => Verdict::Shape,
            (Some(_), Some(_)) => Verdict::Equal,
            (Some(_), None) => Verdict::OnlyInA,
            (None, _) => Verdict::OnlyInB,
        };
        Self {
            tensor: name.to_owned(),
            verdict,
            a,
            b,
            elements: 0,
            differ: 0,
            over: 0,
            max_ulp: None,
            max_abs: None,
            mean_abs: None,
            rmse: None,
            histogram: Histogram::default(),
            worst: None,
            dump: Vec::new(),
        }
    }

    /// Adds what comparing the elements has shown.
    pub(super) fn fill(
        &mut self,
        a: &TensorView<'_>,
        b: &TensorView<'_>,
        piece: &Piece,
        bound: Bound,
    ) {
        let (tally, moments) = (&piece.tally, &piece.moments);
        self.elements = tally.elements();
        self.differ = tally.differ();
        if self.differ == 0 {
            return;
        }
        self.over = piece.over();
        self.verdict = match (self.over, bound) {
            (0, Bound::Ulp(_) | Bound::Close(_)) => Verdict::Within,
            _ => Verdict::Differs,
        };
        self.max_ulp = tally.max_ulp();
        if moments.pairs > 0 {
            let mean = |sum: f64| sum / self.elements as f64;
            self.max_abs = Some(moments.max_abs);
            self.mean_abs = Some(mean(moments.sum_abs));
            self.rmse = Some(mean(moments.sum_squares).sqrt());
        }
        self.histogram = tally.histogram();
        self.worst = tally.find_worst(a, b).map(|index| Difference::at(a, b, index));
        let dump = piece.worst.indices();
        self.dump = dump.into_iter().map(|index| Difference::at(a, b, index)).collect();
    }
}

/// All tensors.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// One row for each tensor of either side.
    pub rows: Vec<TensorRow>,
    /// Bytes of one side that were compared.
    pub bytes: u64,
}

impl Report {
    /// Tensors with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// Whether there was something to compare and all of it counts as the same.
    pub fn holds(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row.verdict.holds())
    }
}
