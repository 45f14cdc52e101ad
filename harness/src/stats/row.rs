//! Scoring one position.

use mlx_parity_tensor::TensorView;

use super::block::Row;
use super::kernel::{Lane, Maxima, Sums, distance, sums};
use super::position::{Position, TrueToken};
use super::score::{NonFinite, ScoreOptions, Side};
use super::top::Top;

/// A logit further above its pivot than this could overflow a sum.
const FAR: f64 = 300.0;

/// Two sets of logits of one shape.
pub(super) struct Pair<'a> {
    pub(super) teacher: TensorView<'a>,
    pub(super) student: TensorView<'a>,
    pub(super) targets: Option<&'a [u32]>,
    pub(super) options: ScoreOptions,
}

/// A position, and the NaNs and infinities it has, the teacher's first.
pub(super) struct Outcome {
    pub(super) position: Position,
    pub(super) nonfinite: [u64; 2],
    pub(super) located: Vec<NonFinite>,
}

/// Both rows of a position with their sums.
struct Summed<'a> {
    lanes: [Lane<'a>; 2],
    sums: Sums,
}

impl Pair<'_> {
    /// Scores position `at`.
    pub(super) fn outcome(&self, at: usize, maxima: &mut Maxima) -> Outcome {
        let summed = self.summed(at, maxima);
        if summed.sums.is_finite() {
            let position = self.position(at, &summed, maxima);
            return Outcome { position, nonfinite: [0, 0], located: Vec::new() };
        }
        let (mut nonfinite, mut located) = ([0, 0], Vec::new());
        for (count, side) in nonfinite.iter_mut().zip([Side::Teacher, Side::Student]) {
            let found = self.nonfinite(at, side);
            *count = found.len() as u64;
            located.extend(found.into_iter().take(self.options.locate));
        }
        Outcome { position: Position::unscored(), nonfinite, located }
    }

    fn summed(&self, at: usize, maxima: &mut Maxima) -> Summed<'_> {
        let rows = [row(&self.teacher, at), row(&self.student, at)];
        let mut lanes = rows.map(|row| Lane { row, pivot: row.first_maximum() });
        let mut found = sums(lanes, maxima);
        let greatest = [0, 1].map(|side| greatest(&maxima[side]));
        if lanes.iter().zip(greatest).any(|(lane, greatest)| greatest - lane.pivot > FAR) {
            lanes = [0, 1].map(|side| Lane { row: rows[side], pivot: greatest[side] });
            found = sums(lanes, maxima);
        }
        Summed { lanes, sums: found }
    }

    fn position(&self, at: usize, summed: &Summed<'_>, maxima: &Maxima) -> Position {
        let (sums, k) = (&summed.sums, self.options.top_k);
        let [teacher, student] =
            [0, 1].map(|side| Top::of(summed.lanes[side].row, &maxima[side], k));
        Position {
            kl: sums.kl(),
            reverse_kl: sums.reverse_kl(),
            total_variation: self.options.total_variation.then(|| summed.total_variation()),
            entropy_teacher: nonnegative(sums.t.ln() - sums.t_t / sums.t),
            entropy_student: nonnegative(sums.s.ln() - sums.s_s / sums.s),
            margin_teacher: teacher.greatest - teacher.second,
            top1_teacher: teacher.first,
            top1_student: student.first,
            agree: self.agree(at, &teacher, &student),
            top_k_overlap: self.overlap(at, &teacher, &student),
            true_token: self.targets.map(|targets| self.true_token(at, targets[at], summed)),
        }
    }

    fn logit(&self, side: Side, at: usize, token: u32) -> f64 {
        let logits = if side == Side::Teacher { &self.teacher } else { &self.student };
        logits.value_at(at * logits.shape()[1] + token as usize)
    }

    /// The teacher's greatest tokens are among its k likeliest.
    fn agree(&self, at: usize, teacher: &Top, student: &Top) -> bool {
        let is_greatest = |token| {
            self.logit(Side::Teacher, at, token) == teacher.greatest
                && self.logit(Side::Student, at, token) == student.greatest
        };
        teacher.tokens.iter().any(|token| is_greatest(*token))
    }

    fn overlap(&self, at: usize, teacher: &Top, student: &Top) -> f64 {
        let k = self.options.top_k.min(self.teacher.shape()[1]);
        let in_both = |token| self.logit(Side::Student, at, token) >= student.threshold;
        let shared = teacher.tokens.iter().filter(|token| in_both(**token)).count();
        shared.min(k) as f64 / k as f64
    }

    fn true_token(&self, at: usize, id: u32, summed: &Summed<'_>) -> TrueToken {
        let Summed { lanes: [teacher, student], sums } = summed;
        let nll_teacher = sums.t.ln() - (self.logit(Side::Teacher, at, id) - teacher.pivot);
        let nll_student = sums.s.ln() - (self.logit(Side::Student, at, id) - student.pivot);
        let delta_p = (-nll_student).exp() - (-nll_teacher).exp();
        let [nll_teacher, nll_student] = [nll_teacher, nll_student].map(nonnegative);
        TrueToken { id, nll_teacher, nll_student, delta_p }
    }

    fn nonfinite(&self, position: usize, side: Side) -> Vec<NonFinite> {
        let valued = (0..self.teacher.shape()[1])
            .map(|token| (token, self.logit(side, position, token as u32)));
        let finite = f64::from(f32::MIN)..=f64::from(f32::MAX);
        let found = valued.filter(|(_, x)| !finite.contains(x));
        found.map(|(token, x)| NonFinite { position, token, side, value: x.to_string() }).collect()
    }
}

impl Summed<'_> {
    /// ½ Σ |P − Q| = ½ Σ |eᵗ − eˢ·(Σ eᵗ / Σ eˢ)| / Σ eᵗ.
    fn total_variation(&self) -> f64 {
        let Sums { t, s, .. } = self.sums;
        distance(self.lanes, t / s) / t / 2.0
    }
}

impl Sums {
    fn is_finite(&self) -> bool {
        let Self { t, s, t_gap, s_gap, t_t, s_s } = self;
        [t, s, t_gap, s_gap, t_t, s_s].iter().all(|sum| sum.is_finite())
    }

    /// Σ P (t − s) − ln(Σ eᵗ / Σ eˢ).
    fn kl(&self) -> f64 {
        nonnegative(self.t_gap / self.t - self.log_ratio())
    }

    fn reverse_kl(&self) -> f64 {
        nonnegative(self.log_ratio() - self.s_gap / self.s)
    }

    /// ln(Σ eᵗ / Σ eˢ), to full precision near 0.
    fn log_ratio(&self) -> f64 {
        let excess = (self.t - self.s) / self.s;
        if excess.abs() < 0.5 { excess.ln_1p() } else { self.t.ln() - self.s.ln() }
    }
}

impl Position {
    fn unscored() -> Self {
        Self {
            kl: f64::NAN,
            reverse_kl: f64::NAN,
            total_variation: None,
            entropy_teacher: f64::NAN,
            entropy_student: f64::NAN,
            margin_teacher: f64::NAN,
            top1_teacher: 0,
            top1_student: 0,
            agree: false,
            top_k_overlap: f64::NAN,
            true_token: None,
        }
    }
}

fn row<'a>(logits: &TensorView<'a>, at: usize) -> Row<'a> {
    let dtype = logits.dtype();
    let length = logits.shape()[1] * dtype.size();
    Row { dtype, bytes: &logits.bytes()[at * length..][..length] }
}

fn greatest(maxima: &[f64]) -> f64 {
    maxima.iter().copied().fold(f64::MIN, |max, x| if x > max { x } else { max })
}

/// What is 0 or more but for the rounding of its parts; a NaN stays one.
fn nonnegative(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}
