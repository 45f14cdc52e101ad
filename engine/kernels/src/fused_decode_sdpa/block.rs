//! One piece of the keys of one kv head. A packed key is unpacked once for up to eight query heads.
//!
//! Scores have a key in each lane, totals a word: either way a vector of codes is one shift away from a vector of
//! words. Totals are put in order at the end. Each code becomes `scale · code + bias` in a register: a product
//! with the codes and one with their bias, each far larger than the score, would cancel.

use std::ops::Range;

use super::host::{AHEAD, head};
use super::problem::{MOST_GROUPS, MOST_WORDS, Problem, Rows};
use crate::call::Data;
use crate::how::How;
use crate::lanes::{F32s, LANES, Mask, Simd, Task, U32s};
use crate::numbers::{Bf16, F16, Format, exp};

/// Keys that are attended between two looks at the maximum.
const KEYS: usize = 64;

/// One piece. Yields maximum, sum and totals of each query head.
pub(super) struct Piece<'a> {
    pub of: &'a Problem<'a>,
    pub how: How,
    pub batch: usize,
    pub kv_head: usize,
    pub keys: Range<usize>,
}

impl Task for Piece<'_> {
    type Out = Vec<f32>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<f32> {
        if self.of.bits == 4 { self.all::<S, 8>(simd) } else { self.all::<S, 4>(simd) }
    }
}

impl Piece<'_> {
    #[inline(always)]
    fn all<S: Simd, const CODES: usize>(&self, simd: S) -> Vec<f32> {
        let (each, size) = (self.of.heads / self.of.kv_heads, self.of.dim + AHEAD);
        let mut out = vec![0.0; each * size];
        let mut at = 0;
        while at < each {
            let to = &mut out[at * size..];
            at += match each - at {
                8.. => self.heads::<S, CODES, 8, 2>(simd, at, to),
                4.. => self.heads::<S, CODES, 4, 4>(simd, at, to),
                2.. => self.heads::<S, CODES, 2, 4>(simd, at, to),
                _ => self.heads::<S, CODES, 1, 4>(simd, at, to),
            };
        }
        out
    }

    /// `H` heads from `at` on, `I` codes of each word at a time.
    #[inline(always)]
    fn heads<S: Simd, const CODES: usize, const H: usize, const I: usize>(
        &self,
        simd: S,
        at: usize,
        out: &mut [f32],
    ) -> usize {
        let queries = Queries::<H>::of(self, at);
        let mut state =
            State::<S, H>::new(simd, self.of.values_packed.words.len.div_ceil(LANES) * CODES);
        let mut room = Room::<H>::new();
        for first in self.keys.clone().step_by(KEYS) {
            let count = KEYS.min(self.keys.end - first);
            self.scores::<S, CODES, H>(simd, first, count, &queries, &mut room);
            state.weigh(simd, self, count, &mut room.weights);
            self.totals::<S, CODES, H, I>(simd, first, count, &mut room, &mut state.totals);
            if self.how.is("bf16_accumulator") {
                state.round(simd);
            }
        }
        state.write::<CODES>(simd, self.of.dim, out);
        H
    }

    /// Scores of keys `first .. first + count`; −inf in the lanes behind them.
    #[inline(always)]
    fn scores<S: Simd, const CODES: usize, const H: usize>(
        &self,
        simd: S,
        first: usize,
        count: usize,
        queries: &Queries<H>,
        room: &mut Room<H>,
    ) {
        let Room { columns, scales, biases, weights, .. } = room;
        let cache = &self.of.keys_packed;
        let shift = usize::from(self.how.is("wrong_group"));
        let wrong = |group: usize| (group + shift).min(self.of.groups() - 1);
        self.factors(&cache.scales, first, count, |key, group, of| scales[group][key] = of);
        self.factors(&cache.biases, first, count, |key, group, of| biases[group][key] = of);
        if self.how.is("bias_forgotten") {
            *biases = [[0.0; KEYS]; MOST_GROUPS];
        }
        for from in (0..count).step_by(LANES) {
            self.columns(simd, first + from, count - from, columns);
            // Two sums a head: a sum waits for the one before.
            let mut sums = [[simd.splat(0.0); 2]; H];
            for group in 0..self.of.groups() {
                let scale = simd.load(&scales[wrong(group)].as_chunks().0[from / LANES]);
                let bias = simd.load(&biases[wrong(group)].as_chunks().0[from / LANES]);
                let words = self.of.group / CODES;
                let at = group * words..(group + 1) * words;
                let rows = std::array::from_fn(|h| &queries.rows[h].as_chunks().0[at.clone()]);
                dots::<S, CODES, H>(simd, rows, &columns[at], [scale, bias], &mut sums);
            }
            let there = simd.first(if self.how.is("tail_unmasked") { LANES } else { count - from });
            for (&[even, odd], to) in sums.iter().zip(weights.iter_mut()) {
                let scores = self.capped(simd, even + odd);
                let scores = there.select(scores, simd.splat(f32::NEG_INFINITY));
                scores.store(&mut to.as_chunks_mut().0[from / LANES]);
            }
        }
    }

    /// `cap · tanh(score / cap)`, where there is a cap.
    #[inline(always)]
    fn capped<S: Simd>(&self, simd: S, scores: S::F) -> S::F {
        if self.of.softcap <= 0.0 || self.how.is("softcap_ignored") {
            return scores;
        }
        let one = simd.splat(1.0);
        let power = exp(simd, scores * simd.splat(2.0 / self.of.softcap));
        let tanh = one - simd.splat(2.0) / (power + one);
        tanh * simd.splat(self.of.softcap)
    }

    /// The words of sixteen keys from `first` on, a key in each lane; the last of `count` is repeated.
    #[inline(always)]
    fn columns<S: Simd>(
        &self,
        simd: S,
        first: usize,
        count: usize,
        columns: &mut [[u32; LANES]; MOST_WORDS],
    ) {
        let words = &self.of.keys_packed.words;
        let last = first + count.min(LANES) - 1;
        let (base, step) = self.place(words);
        for at in (0..words.len).step_by(LANES) {
            let there = LANES.min(words.len - at);
            // No closures around vectors: one that is not inlined is compiled without their instructions.
            let mut rows = [simd.splat_bits(0); LANES];
            for (lane, row) in rows.iter_mut().enumerate() {
                let start = base + step * (first + lane).min(last) + at;
                *row = load_words(simd, &words.data[start..start + there]);
            }
            for (column, to) in simd.transpose(rows).iter().zip(&mut columns[at..]) {
                column.store(to);
            }
        }
    }

    /// Adds `count` weighted values from `first` on to the totals.
    #[inline(always)]
    fn totals<S: Simd, const CODES: usize, const H: usize, const I: usize>(
        &self,
        simd: S,
        first: usize,
        count: usize,
        room: &mut Room<H>,
        totals: &mut [[[f32; LANES]; H]],
    ) {
        let cache = &self.of.values_packed;
        let Room { rows_scales, rows_biases, weights, .. } = room;
        let by = if self.how.is("bias_x099") { 0.99 } else { 1.0 };
        self.factors(&cache.scales, first, count, |key, group, of| rows_scales[key][group] = of);
        self.factors(&cache.biases, first, count, |key, group, of| {
            rows_biases[key][group] = by * of;
        });
        let (base, step) = self.place(&cache.words);
        for at in (0..cache.words.len).step_by(LANES) {
            let there = LANES.min(cache.words.len - at);
            let group = std::array::from_fn(|lane| {
                ((at + lane.min(there - 1)) * CODES / self.of.group) as u32
            });
            let group = simd.load_bits(&group);
            for part in (0..CODES).step_by(I) {
                let to = &mut totals[at / LANES * CODES + part..][..I];
                let mut sums = [[simd.splat(0.0); H]; I];
                for (sums, from) in sums.iter_mut().zip(to.iter()) {
                    for (sum, from) in sums.iter_mut().zip(from) {
                        *sum = simd.load(from);
                    }
                }
                for key in 0..count.min(KEYS) {
                    let start = base + step * (first + key) + at;
                    let words = load_words(simd, &cache.words.data[start..start + there]);
                    let words = words >> (part * 32 / CODES) as u32;
                    let scale = simd.load(&rows_scales[key]).lookup(group);
                    let bias = simd.load(&rows_biases[key]).lookup(group);
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let value = decode::<S, CODES>(words, i).mul_add(scale, bias);
                        for (sum, weights) in sums.iter_mut().zip(weights.iter()) {
                            *sum = simd.splat(weights[key]).mul_add(value, *sum);
                        }
                    }
                }
                for (sums, to) in sums.iter().zip(to) {
                    for (sum, to) in sums.iter().zip(to) {
                        sum.store(to);
                    }
                }
            }
        }
    }

    /// Where the first row of this kv head starts, and elements to the next row.
    #[inline(always)]
    fn place<T>(&self, rows: &Rows<T>) -> (usize, usize) {
        if self.how.is("strides_ignored") {
            let head = self.batch * self.of.kv_heads + self.kv_head;
            return (head * self.of.keys * rows.len, rows.len);
        }
        (rows.start(self.batch, self.kv_head, 0), rows.step())
    }

    /// Scales or biases of keys `first .. first + count`, widened.
    #[inline(always)]
    fn factors(
        &self,
        rows: &Rows<Data<'_>>,
        first: usize,
        count: usize,
        mut put: impl FnMut(usize, usize, f32),
    ) {
        for key in 0..count.min(KEYS) {
            let start = rows.start(self.batch, self.kv_head, first + key);
            let at = start..start + rows.len;
            match rows.data {
                Data::F32(of) => each(&of[at], |group, of| put(key, group, of)),
                Data::F16(of) => each(&of[at], |group, of| put(key, group, F16::widen(of))),
                Data::Bf16(of) => each(&of[at], |group, of| put(key, group, Bf16::widen(of))),
                Data::U32(_) | Data::I32(_) => {}
            }
        }
    }
}

#[inline(always)]
fn each<T: Copy>(of: &[T], mut put: impl FnMut(usize, T)) {
    for (group, &of) in of.iter().enumerate() {
        put(group, of);
    }
}

/// Up to sixteen words; zeros behind them.
#[inline(always)]
fn load_words<S: Simd>(simd: S, words: &[u32]) -> S::U {
    match words.first_chunk() {
        Some(all) => simd.load_bits(all),
        None => simd.load_bits_first(words),
    }
}

/// Code `index` of each word.
#[inline(always)]
fn decode<S: Simd, const CODES: usize>(words: S::U, index: usize) -> S::F {
    let moved = words >> (index * 32 / CODES) as u32;
    if CODES == 8 { moved.low_nibbles() } else { moved.low_bytes() }
}

/// Adds the products of one group, a key in each lane. They are summed alone first: short sums err less.
#[inline(always)]
fn dots<S: Simd, const CODES: usize, const H: usize>(
    simd: S,
    rows: [&[[f32; CODES]]; H],
    columns: &[[u32; LANES]],
    [scale, bias]: [S::F; 2],
    sums: &mut [[S::F; 2]; H],
) {
    let rows = rows.map(|row| &row[..columns.len()]);
    let mut local = [[simd.splat(0.0); 2]; H];
    for (word, column) in columns.iter().enumerate() {
        let column = simd.load_bits(column);
        for pair in 0..CODES / 2 {
            let [even, odd] = [2 * pair, 2 * pair + 1];
            let keys = [
                decode::<S, CODES>(column, even).mul_add(scale, bias),
                decode::<S, CODES>(column, odd).mul_add(scale, bias),
            ];
            for (row, sums) in rows.iter().zip(&mut local) {
                sums[0] = keys[0].mul_add(simd.splat(row[word][even]), sums[0]);
                sums[1] = keys[1].mul_add(simd.splat(row[word][odd]), sums[1]);
            }
        }
    }
    for (sums, local) in sums.iter_mut().zip(local) {
        *sums = [sums[0] + local[0], sums[1] + local[1]];
    }
}

/// The queries of some heads.
struct Queries<const H: usize> {
    /// Multiplied by the factor of the scores.
    rows: [Vec<f32>; H],
}

impl<const H: usize> Queries<H> {
    fn of(piece: &Piece<'_>, at: usize) -> Self {
        let of = piece.of;
        let scale = if piece.how.is("scale_off") { of.scale * 1.01 } else { of.scale };
        let rows: [Vec<f32>; H] = std::array::from_fn(|h| {
            let start =
                of.queries.start(piece.batch, head(piece.kv_head, at + h, of, piece.how), 0);
            (0..of.dim).map(|i| scale * of.queries.data.f32(start + i)).collect()
        });
        Self { rows }
    }
}

/// What one block of keys is worked in.
struct Room<const H: usize> {
    columns: [[u32; LANES]; MOST_WORDS],
    scales: [[f32; KEYS]; MOST_GROUPS],
    biases: [[f32; KEYS]; MOST_GROUPS],
    rows_scales: [[f32; LANES]; KEYS],
    rows_biases: [[f32; LANES]; KEYS],
    /// Scores, then weights.
    weights: [[f32; KEYS]; H],
}

impl<const H: usize> Room<H> {
    fn new() -> Box<Self> {
        Box::new(Self {
            columns: [[0; LANES]; MOST_WORDS],
            scales: [[0.0; KEYS]; MOST_GROUPS],
            biases: [[0.0; KEYS]; MOST_GROUPS],
            rows_scales: [[0.0; LANES]; KEYS],
            rows_biases: [[0.0; LANES]; KEYS],
            weights: [[0.0; KEYS]; H],
        })
    }
}

/// The softmax of some heads, so far.
struct State<S: Simd, const H: usize> {
    best: [f32; H],
    whole: [S::F; H],
    /// By code of a word (and by sixteen words), then by head, then by word.
    totals: Vec<[[f32; LANES]; H]>,
}

impl<S: Simd, const H: usize> State<S, H> {
    #[inline(always)]
    fn new(simd: S, vectors: usize) -> Self {
        let totals = vec![[[0.0; LANES]; H]; vectors];
        Self { best: [f32::NEG_INFINITY; H], whole: [simd.splat(0.0); H], totals }
    }

    /// Scores of a block become weights; what was before is scaled down where the maximum grew.
    #[inline(always)]
    fn weigh(&mut self, simd: S, piece: &Piece<'_>, count: usize, weights: &mut [[f32; KEYS]; H]) {
        let mut keep = [1.0; H];
        for (h, scores) in weights.iter_mut().enumerate() {
            let vectors = &mut scores.as_chunks_mut().0[..count.div_ceil(LANES)];
            let mut most = simd.splat(self.best[h]);
            for scores in vectors.iter() {
                most = simd.load(scores).max(most);
            }
            let mut best = most.largest();
            if piece.how.is("max_not_subtracted") {
                best = 0.0;
            }
            keep[h] = if best > self.best[h] { (self.best[h] - best).exp() } else { 1.0 };
            if piece.how.is("rescale_forgotten") {
                keep[h] = 1.0;
            }
            self.best[h] = best;
            self.whole[h] = self.whole[h] * simd.splat(keep[h]);
            for scores in vectors {
                let weight = exp(simd, simd.load(scores) - simd.splat(best));
                self.whole[h] = self.whole[h] + weight;
                weight.store(scores);
            }
        }
        if keep.iter().any(|&keep| keep != 1.0) {
            for totals in &mut self.totals {
                for (total, &keep) in totals.iter_mut().zip(&keep) {
                    (simd.load(total) * simd.splat(keep)).store(total);
                }
            }
        }
    }

    /// Rounds the totals to bfloat16.
    #[inline(always)]
    fn round(&mut self, simd: S) {
        for total in self.totals.as_flattened_mut() {
            simd.load(total).round_bf16().store(total);
        }
    }

    /// Maximum, sum and totals of each head, in the order of elements.
    #[inline(always)]
    fn write<const CODES: usize>(&self, _: S, dim: usize, out: &mut [f32]) {
        for (h, out) in out.chunks_exact_mut(dim + AHEAD).take(H).enumerate() {
            let (ahead, totals) = out.split_at_mut(AHEAD);
            ahead.copy_from_slice(&[self.best[h], self.whole[h].sum()]);
            for (index, to) in totals.iter_mut().enumerate() {
                let word = index / CODES;
                let row = &self.totals[word / LANES * CODES + index % CODES];
                *to = row[h][word % LANES];
            }
        }
    }
}
