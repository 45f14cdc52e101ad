//! One piece of the keys of one kv head. A packed key is unpacked once for up to eight query heads.
//!
//! Scores have a key in each lane, totals a word: either way a vector of codes is one shift away from a vector of
//! words. Totals are put in order at the end. Codes are centred: with m, the code in the middle, a score is
//! `Σ_g scale_g·Σ (code − m)·q + Σ_g (bias_g + m·scale_g)·Σ q`. Keys lie about 0, so that with codes as they are
//! the two sums would cancel.

use std::ops::Range;

use super::host::{AHEAD, head};
use super::problem::{Cache, MOST_GROUPS, MOST_WORDS, Problem, Rows};
use crate::call::Data;
use crate::how::How;
use crate::lanes::{F32s, LANES, Mask, Simd, Task, U32s, lanes_at};
use crate::numbers::exp;

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
        let queries = Queries::<H>::of(self, at, unit(CODES));
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
        let Room { columns, keys_scales, keys_biases, rows, weights, .. } = room;
        let Cache { words, scales, biases } = &self.of.keys_packed;
        let groups = self.of.groups();
        let shift = usize::from(self.how.is("wrong_group"));
        let wrong = |group: usize| (group + shift).min(groups - 1);
        self.factors(scales, first, count, rows);
        turn(rows, groups, keys_scales);
        self.factors(biases, first, count, rows);
        if self.how.is("bias_forgotten") {
            rows.0.fill(0.0);
        }
        turn(rows, groups, keys_biases);
        let middle = simd.splat(middle(CODES));
        let (base, step) = self.place(words);
        for from in (0..count).step_by(LANES) {
            self.columns(simd, first + from, count - from, columns);
            let next = base + step * (first + from + KEYS);
            // What codes add, and what biases do.
            let mut sums = [[simd.splat(0.0); 2]; H];
            for group in 0..groups {
                let scale = simd.load(&keys_scales[wrong(group)].as_chunks().0[from / LANES]);
                let bias = simd.load(&keys_biases[wrong(group)].as_chunks().0[from / LANES]);
                let bias = scale.mul_add(middle, bias);
                let per = self.of.group / CODES;
                let at = group * per..(group + 1) * per;
                let dots =
                    dots::<S, CODES, H>(simd, queries, at, columns, words.data, (next, step));
                let query = &queries.sums[group];
                for ((sums, dot), &query) in sums.iter_mut().zip(dots).zip(query) {
                    sums[0] = dot.mul_add(scale, sums[0]);
                    sums[1] = bias.mul_add(simd.splat(query), sums[1]);
                }
            }
            let there = simd.first(if self.how.is("tail_unmasked") { LANES } else { count - from });
            for (&[codes, biases], to) in sums.iter().zip(weights.iter_mut()) {
                let scores = self.capped(simd, codes + biases);
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
        let Cache { words, scales, biases } = &self.of.values_packed;
        let Room { rows, rows_biases, lanes_scales, lanes_biases, weights, .. } = room;
        let groups = self.of.groups();
        self.factors(scales, first, count, rows);
        self.factors(biases, first, count, rows_biases);
        if self.how.is("bias_x099") {
            rows_biases.0.iter_mut().for_each(|of| *of *= 0.99);
        }
        let (base, step) = self.place(words);
        for at in (0..words.len).step_by(LANES) {
            let there = LANES.min(words.len - at);
            let group = std::array::from_fn(|lane| {
                ((at + lane.min(there - 1)) * CODES / self.of.group) as u32
            });
            let group = simd.load_bits(&group);
            for key in 0..count.min(KEYS) {
                let scale = simd.load(lanes_at(&rows.0, key * groups));
                let bias = simd.load(lanes_at(&rows_biases.0, key * groups));
                scale.lookup(group).store(&mut lanes_scales[key]);
                bias.lookup(group).store(&mut lanes_biases[key]);
            }
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
                    // Each part asks for its share of the keys of the next block.
                    if key % (CODES / I) == part / I {
                        ask(simd, words.data, start + step * KEYS);
                    }
                    let codes = load_words(simd, &words.data[start..start + there]);
                    let scale = simd.load(&lanes_scales[key]);
                    let bias = simd.load(&lanes_biases[key]);
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let value = decode::<S, CODES>(codes, part + i).mul_add(scale, bias);
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

    /// Scales or biases of keys `first .. first + count`, widened, one key behind the other.
    #[inline(always)]
    fn factors(&self, of: &Rows<Data<'_>>, first: usize, count: usize, to: &mut Factors) {
        let start = of.start(self.batch, self.kv_head, first);
        let to = &mut to.0[..count.min(KEYS) * of.len];
        if of.step() == of.len {
            of.data.widen(start, to);
        } else {
            for (key, to) in to.chunks_exact_mut(of.len).enumerate() {
                of.data.widen(start + key * of.step(), to);
            }
        }
    }
}

/// From a key's groups to a group's keys.
#[inline(always)]
fn turn(rows: &Factors, groups: usize, to: &mut [[f32; KEYS]; MOST_GROUPS]) {
    for (group, to) in to.iter_mut().enumerate().take(groups) {
        for (to, &of) in to.iter_mut().zip(rows.0[group..].iter().step_by(groups)) {
            *to = of;
        }
    }
}

/// The code in the middle.
const fn middle(codes: usize) -> f32 {
    if codes == 8 { 8.0 } else { 128.0 }
}

/// What a centred code is to be multiplied by.
const fn unit(codes: usize) -> f32 {
    if codes == 8 { 1.0 } else { 1.0 / 16_777_216.0 }
}

/// Asks for an element that is read soon, where there is one.
#[inline(always)]
fn ask<S: Simd, T>(simd: S, of: &[T], at: usize) {
    if let Some(next) = of.get(at) {
        simd.prefetch(next);
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
    if CODES == 8 {
        (words >> (4 * index) as u32).low_nibbles()
    } else {
        words.bytes(index).to_f32()
    }
}

/// Code `index` of each word, less the one in the middle, in units.
#[inline(always)]
fn centred<S: Simd, const CODES: usize>(words: S::U, index: usize) -> S::F {
    if CODES == 8 {
        (words >> (4 * index) as u32).centred_nibbles()
    } else {
        words.top_bytes(index).to_f32()
    }
}

/// The products of the words `at` of one group, a key in each lane. Meanwhile asks for the rows from `next` on.
#[inline(always)]
fn dots<S: Simd, const CODES: usize, const H: usize>(
    simd: S,
    queries: &Queries<H>,
    at: Range<usize>,
    columns: &[[u32; LANES]; MOST_WORDS],
    words: &[u32],
    (next, step): (usize, usize),
) -> [S::F; H] {
    // Two sums a head: a sum waits for the one before.
    let mut sums = [[simd.splat(0.0); 2]; H];
    let rows = &queries.rows.as_chunks::<CODES>().0[at.clone()];
    for ((word, column), query) in at.clone().zip(&columns[at]).zip(rows) {
        ask(simd, words, next + word % LANES * step + word / LANES * LANES);
        let mut column = simd.load_bits(column);
        if CODES == 4 {
            // With its highest bit flipped, a byte less 128 is a signed one.
            column = column ^ simd.splat_bits(0x8080_8080);
        }
        for pair in 0..CODES / 2 {
            let [even, odd] = [2 * pair, 2 * pair + 1];
            let keys = [centred::<S, CODES>(column, even), centred::<S, CODES>(column, odd)];
            for (h, sums) in sums.iter_mut().enumerate() {
                sums[0] = keys[0].mul_add(simd.splat(query[even][h]), sums[0]);
                sums[1] = keys[1].mul_add(simd.splat(query[odd][h]), sums[1]);
            }
        }
    }
    sums.map(|[even, odd]| even + odd)
}

/// The queries of some heads, multiplied by the factor of the scores.
struct Queries<const H: usize> {
    /// By element, per unit of a code.
    rows: Vec<[f32; H]>,
    /// By group.
    sums: Vec<[f32; H]>,
}

impl<const H: usize> Queries<H> {
    fn of(piece: &Piece<'_>, at: usize, unit: f32) -> Self {
        let of = piece.of;
        let scale = if piece.how.is("scale_off") { of.scale * 1.01 } else { of.scale };
        let starts: [usize; H] = std::array::from_fn(|h| {
            of.queries.start(piece.batch, head(piece.kv_head, at + h, of, piece.how), 0)
        });
        let rows: Vec<[f32; H]> = (0..of.dim)
            .map(|i| starts.map(|start| scale * of.queries.data.f32(start + i)))
            .collect();
        let sum = |rows: &[[f32; H]]| {
            let sum = |h: usize| rows.iter().map(|of| f64::from(of[h])).sum::<f64>();
            std::array::from_fn(|h| sum(h) as f32)
        };
        let sums = rows.chunks(of.group).map(sum).collect();
        Self { rows: rows.into_iter().map(|row| row.map(|of| unit * of)).collect(), sums }
    }
}

/// Scales or biases of a block, and room to read sixteen from the last.
#[repr(align(64))]
struct Factors([f32; KEYS * MOST_GROUPS + LANES]);

/// What one block of keys is worked in, in whole lines of the cache.
#[repr(align(64))]
struct Room<const H: usize> {
    columns: [[u32; LANES]; MOST_WORDS],
    keys_scales: [[f32; KEYS]; MOST_GROUPS],
    keys_biases: [[f32; KEYS]; MOST_GROUPS],
    rows: Factors,
    rows_biases: Factors,
    /// Of each word.
    lanes_scales: [[f32; LANES]; KEYS],
    lanes_biases: [[f32; LANES]; KEYS],
    /// Scores, then weights.
    weights: [[f32; KEYS]; H],
}

impl<const H: usize> Room<H> {
    fn new() -> Box<Self> {
        const NONE: Factors = Factors([0.0; KEYS * MOST_GROUPS + LANES]);
        Box::new(Self {
            columns: [[0; LANES]; MOST_WORDS],
            keys_scales: [[0.0; KEYS]; MOST_GROUPS],
            keys_biases: [[0.0; KEYS]; MOST_GROUPS],
            rows: NONE,
            rows_biases: NONE,
            lanes_scales: [[0.0; LANES]; KEYS],
            lanes_biases: [[0.0; LANES]; KEYS],
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
