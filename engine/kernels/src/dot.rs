//! Projections of a single row by packed matrices of 4 or 8 bits, read once as they lie.
//!
//! A vector holds sixteen consecutive words of one output's row; its j-th codes meet the activations that
//! were laid out the same way. With m, the code in the middle, `Σ (scale·code + bias)·x` becomes
//! `Σ_g scale_g·Σ (code − m)·x + Σ_g (bias_g + m·scale_g)·Σ x`: weights lie about 0, so that with codes as they are the
//! two sums would cancel.

use crate::affine::Packed;
use crate::how::How;
use crate::lanes::{F32s, LANES, Mask, Simd, Task, U32s, lanes_at};

/// Groups whose scales are looked up in one vector.
const LOOKED_UP: usize = 8;

/// One row of activations, laid out as the codes of a packing are.
#[derive(Debug)]
pub(crate) struct Row {
    /// `[block][code of a word][word of the block]`.
    x: Vec<[f32; LANES]>,
    /// Sums over groups, eight to a vector.
    sums: Vec<[f32; LANES]>,
    /// Which of eight scales each word of a block has; blocks repeat after eight groups.
    groups: Vec<[u32; LANES]>,
    bits: u32,
    group: usize,
}

impl Row {
    /// Whether a packing can be read as it lies, and has none of the bugs of panels.
    pub fn takes(weights: &Packed<'_>, how: How) -> bool {
        let of_panels = ["half_accumulator", "high_bit_lost", "last_input_dropped", "tail_skipped"];
        matches!(weights.bits, 4 | 8) && !of_panels.iter().any(|bug| how.is(bug))
    }

    /// A row for a matrix.
    pub fn new(x: &[f32], weights: &Packed<'_>) -> Self {
        let (bits, group) = (weights.bits, weights.group);
        let per = 32 / bits as usize;
        let block = per * LANES;
        let at = |index: usize| x.get(index).copied().unwrap_or(0.0);
        let lay = |vector: usize| {
            let (block_at, code) = (vector / per * block, vector % per);
            std::array::from_fn(|word| at(block_at + word * per + code))
        };
        let sum = |index: usize| x.chunks(group).nth(index).map_or(0.0, |of| of.iter().sum());
        let eight = |first: usize| {
            let here = |lane| if lane < LOOKED_UP { sum(first * LOOKED_UP + lane) } else { 0.0 };
            std::array::from_fn(here)
        };
        let which =
            |at: usize| std::array::from_fn(|word| ((at * block + word * per) / group) as u32);
        Self {
            x: (0..x.len().div_ceil(block) * per).map(lay).collect(),
            sums: (0..weights.groups().div_ceil(LOOKED_UP)).map(eight).collect(),
            groups: (0..LOOKED_UP * group / block).map(which).collect(),
            bits,
            group,
        }
    }
}

/// Outputs `first ..` of one row, as many as `out` takes.
#[derive(Debug)]
pub(crate) struct Dots<'a> {
    /// The activations.
    pub x: &'a Row,
    /// The packed matrix.
    pub weights: &'a Packed<'a>,
    /// The first output.
    pub first: usize,
    /// The results.
    pub out: &'a mut [f32],
    /// With which bugs.
    pub how: How,
}

impl Task for Dots<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { x, weights, first, out, how } = self;
        let [scales, biases] = weights.rows_of_scales(first, out.len(), how);
        for (index, out) in out.iter_mut().enumerate() {
            let (words, at) = (weights.row(first + index), index * weights.groups());
            *out = match x.bits {
                4 => dot::<S, 4>(simd, x, words, &scales[at..], &biases[at..]),
                _ => dot::<S, 8>(simd, x, words, &scales[at..], &biases[at..]),
            };
        }
    }
}

/// One output. `scales` and `biases` reach at least sixteen elements beyond the row's.
#[inline(always)]
fn dot<S: Simd, const BITS: u32>(
    simd: S,
    x: &Row,
    words: &[u32],
    scales: &[f32],
    biases: &[f32],
) -> f32 {
    let per = 32 / BITS as usize;
    let mut total = simd.splat(0.0);
    let mut offset = simd.splat(0.0);
    let middle = simd.splat(middle(BITS));
    let mut blocks = words.chunks(LANES).zip(x.x.chunks_exact(per));
    let last = words.len() * per / x.group - 1;
    for (eight, sums) in x.sums.iter().enumerate() {
        let at = eight * LOOKED_UP;
        let scales = simd.load(lanes_at(scales, at));
        let biases = scales.mul_add(middle, simd.load(lanes_at(biases, at)));
        let biases = simd.first((last + 1 - at).min(LOOKED_UP)).select(biases, simd.splat(0.0));
        offset = biases.mul_add(simd.load(sums), offset);
        for (groups, (words, x)) in x.groups.iter().zip(&mut blocks) {
            let sum = codes_by_x::<S, BITS>(simd, words, x);
            let scale = scales.lookup(simd.load_bits(groups));
            total = sum.mul_add(scale, total);
        }
    }
    (total + offset).sum()
}

/// The code in the middle of those there are.
const fn middle(bits: u32) -> f32 {
    (1_u32 << (bits - 1)) as f32
}

/// `Σ_j (code_j − m) · x_j` of each word.
#[inline(always)]
fn codes_by_x<S: Simd, const BITS: u32>(simd: S, words: &[u32], x: &[[f32; LANES]]) -> S::F {
    let mut codes = match words.first_chunk() {
        Some(words) => simd.load_bits(words),
        None => simd.load_bits_first(words),
    };
    let middle = simd.splat(middle(BITS));
    let mut sums = [simd.splat(0.0); 2];
    for pair in x.chunks_exact(2) {
        for (sum, x) in sums.iter_mut().zip(pair) {
            let numbers =
                if BITS == 4 { codes.centred_nibbles() } else { codes.low_bytes() - middle };
            *sum = numbers.mul_add(simd.load(x), *sum);
            codes = codes >> BITS;
        }
    }
    sums[0] + sums[1]
}
