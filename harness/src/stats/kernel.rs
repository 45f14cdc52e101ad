//! Sums over one row of logits, in vector code.

#![expect(
    clippy::inline_always,
    reason = "what is not inlined is compiled for the narrowest registers"
)]

use super::block::{Block, LANES, Row, pairwise};
use super::exp::exp;
use crate::compare::vector::{Kernel, vectorized};

/// A row, and a number that is taken off each of its logits before they are exponentiated.
#[derive(Clone, Copy)]
pub(super) struct Lane<'a> {
    pub(super) row: Row<'a>,
    pub(super) pivot: f64,
}

/// The greatest logit of each block of the teacher and of the student.
pub(super) type Maxima = [Vec<f64>; 2];

/// Sums over a row, where t and s are logits less their pivots.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sums {
    /// Σ eᵗ.
    pub(super) t: f64,
    /// Σ eˢ.
    pub(super) s: f64,
    /// Σ eᵗ·(t − s).
    pub(super) t_gap: f64,
    /// Σ eˢ·(t − s).
    pub(super) s_gap: f64,
    /// Σ eᵗ·t.
    pub(super) t_t: f64,
    /// Σ eˢ·s.
    pub(super) s_s: f64,
}

/// Sums of two rows of one length; `maxima` is filled. A sum that is not finite means a logit that is not, or one too far
/// above its pivot.
pub(super) fn sums(lanes: [Lane<'_>; 2], maxima: &mut Maxima) -> Sums {
    let blocks = lanes[0].row.blocks();
    for maxima in &mut *maxima {
        maxima.resize(blocks, 0.0);
    }
    vectorized(SumPass { lanes, maxima })
}

struct SumPass<'a, 'b> {
    lanes: [Lane<'a>; 2],
    maxima: &'b mut Maxima,
}

impl Kernel for SumPass<'_, '_> {
    type Output = Sums;

    #[inline(always)]
    fn run(self) -> Sums {
        let [teacher, student] = self.lanes;
        let [maxima_t, maxima_s] = self.maxima;
        let [mut t, mut s, mut power_t, mut power_s] = [const { Block::new() }; 4];
        let mut totals = [Total::default(); 6];
        for (at, (max_t, max_s)) in maxima_t.iter_mut().zip(maxima_s).enumerate() {
            *max_t = teacher.row.widen(at, &mut t);
            *max_s = student.row.widen(at, &mut s);
            exponentiate(teacher.pivot, &mut t, &mut power_t);
            exponentiate(student.pivot, &mut s, &mut power_s);
            add_block(&mut totals, [&t, &s, &power_t, &power_s]);
        }
        let [t, s, t_gap, s_gap, t_t, s_s] = totals;
        Sums {
            t: t.value(),
            s: s.value(),
            t_gap: t_gap.value(),
            s_gap: s_gap.value(),
            t_t: t_t.value(),
            s_s: s_s.value(),
        }
    }
}

/// Takes the pivot off the logits, and exponentiates.
#[inline(always)]
fn exponentiate(pivot: f64, logits: &mut Block, powers: &mut Block) {
    for (x, power) in logits.0.iter_mut().zip(&mut powers.0) {
        *x -= pivot;
        *power = exp(*x);
    }
}

/// In the order of the fields of [`Sums`].
#[inline(always)]
fn add_block(totals: &mut [Total; 6], [t, s, power_t, power_s]: [&Block; 4]) {
    let mut sums = [[0.0; LANES]; 6];
    let logits = t.lanes().iter().zip(s.lanes());
    let powers = power_t.lanes().iter().zip(power_s.lanes());
    for ((t, s), (power_t, power_s)) in logits.zip(powers) {
        for lane in 0..LANES {
            let (t, s, p, q) = (t[lane], s[lane], power_t[lane], power_s[lane]);
            let gap = t - s;
            sums[0][lane] += p;
            sums[1][lane] += q;
            sums[2][lane] = p.mul_add(gap, sums[2][lane]);
            sums[3][lane] = q.mul_add(gap, sums[3][lane]);
            sums[4][lane] = p.mul_add(t, sums[4][lane]);
            sums[5][lane] = q.mul_add(s, sums[5][lane]);
        }
    }
    for (total, lanes) in totals.iter_mut().zip(sums) {
        total.add(pairwise(lanes));
    }
}

/// A compensated sum (Knuth's two-sum; Ogita, Rump and Oishi, "Accurate sum and dot product", 2005).
#[derive(Clone, Copy, Default)]
struct Total {
    sum: f64,
    lost: f64,
}

impl Total {
    #[inline(always)]
    fn add(&mut self, x: f64) {
        let sum = self.sum + x;
        let kept = sum - self.sum;
        self.lost += (self.sum - (sum - kept)) + (x - kept);
        self.sum = sum;
    }

    #[inline(always)]
    fn value(self) -> f64 {
        self.sum + self.lost
    }
}

/// Σ |eᵗ − `ratio`·eˢ| of two rows of one length.
pub(super) fn distance(lanes: [Lane<'_>; 2], ratio: f64) -> f64 {
    vectorized(DistancePass { lanes, ratio })
}

struct DistancePass<'a> {
    lanes: [Lane<'a>; 2],
    ratio: f64,
}

impl Kernel for DistancePass<'_> {
    type Output = f64;

    #[inline(always)]
    fn run(self) -> f64 {
        let [teacher, student] = self.lanes;
        let [mut t, mut s, mut power_t, mut power_s] = [const { Block::new() }; 4];
        let mut total = Total::default();
        for at in 0..teacher.row.blocks() {
            teacher.row.widen(at, &mut t);
            student.row.widen(at, &mut s);
            exponentiate(teacher.pivot, &mut t, &mut power_t);
            exponentiate(student.pivot, &mut s, &mut power_s);
            total.add(block_distance(&power_t, &power_s, self.ratio));
        }
        total.value()
    }
}

#[inline(always)]
fn block_distance(power_t: &Block, power_s: &Block, ratio: f64) -> f64 {
    let mut sums = [0.0; LANES];
    for (power_t, power_s) in power_t.lanes().iter().zip(power_s.lanes()) {
        for ((sum, p), q) in sums.iter_mut().zip(power_t).zip(power_s) {
            *sum += (-ratio).mul_add(*q, *p).abs();
        }
    }
    pairwise(sums)
}
