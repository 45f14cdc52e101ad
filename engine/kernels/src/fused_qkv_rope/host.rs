//! Queries, keys and values on the host, every operation rounded where MLX's CPU backend rounds it: projections as
//! `quantized_matmul`, norms and rotations as the fallbacks of `mlx/fast.cpp`, which compose ops.

use super::ID;
use super::call::{Qkv, Rope, malformed};
use crate::call::Out;
use crate::error::KernelError;
use crate::exact;
use crate::gemm::{COLUMNS, Matrix};
use crate::how::How;
use crate::lanes::{Simd, Task, Width};
use crate::linear::{Exact, Projection, Rounded};
use crate::numbers::{Bf16, F16, F32, Format};
use crate::parallel;

/// What a rounded multiply-add costs, in fused ones.
const HEAVY: usize = 8;
/// Rows whose sums of squares run beside each other.
const ABREAST: usize = 8;

/// Computes a call.
///
/// # Errors
/// [`KernelError::Malformed`] where results do not fit, [`KernelError::Unsupported`] where the processor lacks the
/// instructions asked for.
pub(super) fn run(of: &Qkv<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
    match out {
        [Out::F32(q), Out::F32(k), Out::F32(v)] => qkv(F32, of, how, &mut [q, k, v]),
        [Out::F16(q), Out::F16(k), Out::F16(v)] => qkv(F16, of, how, &mut [q, k, v]),
        [Out::Bf16(q), Out::Bf16(k), Out::Bf16(v)] => qkv(Bf16, of, how, &mut [q, k, v]),
        _ => Err(malformed("wanted three results of one dtype".into())),
    }
}

fn qkv<F: Format + Rounded>(
    format: F,
    of: &Qkv<'_>,
    how: How,
    out: &mut [&mut [F::Bits]; 3],
) -> Result<(), KernelError> {
    let (heads, rows) = (of.heads(), of.batch * of.rows);
    let fits = |(out, heads): (&&mut [F::Bits], usize)| out.len() == rows * heads * of.head_dim;
    if of.dtype != F::DTYPE || !out.iter().zip(heads).all(fits) {
        return Err(malformed("a result has another dtype or length".into()));
    }
    let width = Width::choose(ID, how.path)?;
    let mut x = of.x.to_f32();
    if how.is("strides_ignored") {
        of.x.data.widen(0, &mut x);
    }
    let shared = Shared::<F> {
        format,
        of,
        x: Matrix::new(&x, rows, of.projections[0].cols),
        norms: of.norms.as_ref().map(|norms| norms.weights.map(|weight| weight.to_f32())),
        angles: Angles::of::<F>(
            &of.rope,
            if how.is("batch_continues") { rows } else { of.rows },
            how,
        ),
        how,
    };
    let pieces = pieces(of);
    let done = parallel::map(pieces.len(), of.work() * HEAVY, |index| {
        width.run(Heads { shared: &shared, piece: pieces[index] })
    });
    for (piece, values) in pieces.iter().zip(done) {
        scatter(of, piece, &values, out[piece.which]);
    }
    Ok(())
}

/// Some heads of queries (0), keys (1) or values (2).
#[derive(Debug, Clone, Copy)]
struct Piece {
    which: usize,
    first: usize,
    heads: usize,
}

/// All heads, in pieces of whole tiles where they have that many.
fn pieces(of: &Qkv<'_>) -> Vec<Piece> {
    let each = (1..COLUMNS).find(|heads| (heads * of.head_dim).is_multiple_of(COLUMNS));
    let each = each.unwrap_or(COLUMNS);
    let pieces = of.heads().into_iter().enumerate().flat_map(|(which, heads)| {
        let starts = (0..heads).step_by(each);
        starts.map(move |first| Piece { which, first, heads: each.min(heads - first) })
    });
    pieces.collect()
}

/// `[heads, batch * rows, head_dim]` of a piece to its places in `[batch, heads, rows, head_dim]`.
fn scatter<T: Copy>(of: &Qkv<'_>, piece: &Piece, values: &[T], out: &mut [T]) {
    let (block, heads) = (of.rows * of.head_dim, of.heads()[piece.which]);
    for (index, block_of) in values.chunks_exact(block.max(1)).enumerate() {
        let (head, batch) = (index / of.batch, index % of.batch);
        let at = (batch * heads + piece.first + head) * block;
        out[at..at + block].copy_from_slice(block_of);
    }
}

/// Cosines and sines of each row and pair, `[rows, dims / 2]`, rounded to the format.
struct Angles {
    cos: Vec<f32>,
    sin: Vec<f32>,
    pairs: usize,
}

impl Angles {
    fn of<F: Format>(rope: &Rope, rows: usize, how: How) -> Self {
        let pairs = rope.dims / 2;
        let slope = rope.theta.ln() / pairs as f32;
        let inverse: Vec<f32> = (0..pairs).map(|pair| exact::exp(-(pair as f32) * slope)).collect();
        let offset = if how.is("offset_forgotten") { 0.0 } else { rope.offset as f32 };
        let more = if how.is("position_off_by_one") { 1.0 } else { 0.0 };
        let position = |row: usize| (row as f32 + offset + more) * rope.scale;
        let angles =
            (0..rows).flat_map(|row| inverse.iter().map(move |inverse| position(row) * inverse));
        let angles: Vec<f32> = angles.collect();
        Self {
            cos: angles.iter().map(|&angle| F::round(exact::cos(angle))).collect(),
            sin: angles.iter().map(|&angle| F::round(exact::sin(angle))).collect(),
            pairs,
        }
    }
}

/// What all pieces need.
struct Shared<'a, F> {
    format: F,
    of: &'a Qkv<'a>,
    x: Matrix<'a>,
    norms: Option<[Vec<f32>; 2]>,
    angles: Angles,
    how: How,
}

/// The heads of a piece, `[heads, batch * rows, head_dim]`.
struct Heads<'a, F> {
    shared: &'a Shared<'a, F>,
    piece: Piece,
}

impl<F: Format + Rounded> Task for Heads<'_, F> {
    type Out = Vec<F::Bits>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<F::Bits> {
        let Self { shared, piece: Piece { which, .. } } = self;
        let how = shared.how;
        let mut values = self.project(simd);
        if let (Some(norms), 0..2) = (&shared.norms, which)
            && !how.is("norm_forgotten")
        {
            let weight = &norms[if how.is("query_norm_for_keys") { 0 } else { which }];
            self.norm(weight, &mut values);
        }
        if which < 2 || how.is("value_rotated") {
            let (d, rows) = (shared.of.head_dim, shared.angles.cos.len() / shared.angles.pairs);
            for (index, head) in values.chunks_exact_mut(d).enumerate() {
                self.rotate(index % shared.x.rows % rows, head);
            }
        }
        if how.is("wrong_head") && self.piece.heads > 1 {
            values.rotate_left(shared.x.rows * shared.of.head_dim);
        }
        values.into_iter().map(F::narrow).collect()
    }
}

impl<F: Format + Rounded> Heads<'_, F> {
    #[inline(always)]
    fn project<S: Simd>(&self, simd: S) -> Vec<f32> {
        let Self { shared: &Shared { format, of, x, how, .. }, piece } = *self;
        let (d, weights) = (of.head_dim, &of.projections[piece.which]);
        let mut values = vec![0.0; piece.heads * x.rows * d];
        let mut tile = vec![0.0; x.rows * COLUMNS];
        for at in (0..piece.heads * d).step_by(COLUMNS) {
            let first = piece.first * d + at;
            Projection { arithmetic: Exact(format), x, weights, first, tile: &mut tile, how }
                .run(simd);
            for column in at..(at + COLUMNS).min(piece.heads * d) {
                let to = &mut values[column / d * x.rows * d + column % d..];
                let from = tile[column - at..].iter().step_by(COLUMNS);
                to.iter_mut().step_by(d).zip(from).for_each(|(to, &from)| *to = from);
            }
        }
        values
    }

    /// `mx.fast.rms_norm` of each head: in f32, rounded, times the weight.
    #[inline(always)]
    fn norm(&self, weight: &[f32], values: &mut [f32]) {
        let (d, how) = (weight.len(), self.shared.how);
        let eps = self.shared.of.norms.as_ref().map_or(0.0, |norms| norms.eps);
        let eps = if how.is("eps_forgotten") { 0.0 } else { eps };
        let share = if how.is("norm_of_sum") { 1.0 } else { (1.0 / d as f64) as f32 };
        let once = how.is("norm_unrounded");
        for heads in values.chunks_mut(ABREAST * d) {
            let sums = squares(heads, d);
            for (head, sum) in heads.chunks_exact_mut(d).zip(sums) {
                let scale = exact::rsqrt(sum * share + eps);
                for (x, &weight) in head.iter_mut().zip(weight) {
                    let normed = *x * scale;
                    let normed = if once { normed } else { <F as Format>::round(normed) };
                    *x = <F as Format>::round(normed * weight);
                }
            }
        }
    }

    /// `mx.fast.rope` of one head in a row.
    #[inline(always)]
    fn rotate(&self, row: usize, head: &mut [f32]) {
        let Shared { angles, how, of, .. } = self.shared;
        let mut rope = of.rope;
        rope.traditional ^= how.is("pairs_interleaved");
        let far = how.is("half_of_head") && !rope.traditional;
        let sign = if how.is("rotated_backwards") { -1.0 } else { 1.0 };
        let once = how.is("rotation_unrounded");
        let round = |x: f32| if once { x } else { <F as Format>::round(x) };
        for index in 0..angles.pairs {
            let (first, mut second) = rope.pair(index);
            if far {
                second = index + of.head_dim / 2;
            }
            let (cos, sin) =
                (angles.cos[row * angles.pairs + index], angles.sin[row * angles.pairs + index]);
            let (a, b, sin) = (head[first], head[second], sign * sin);
            head[first] = <F as Format>::round(round(a * cos) - round(b * sin));
            head[second] = <F as Format>::round(round(a * sin) + round(b * cos));
        }
        if how.is("rest_not_copied") {
            head[rope.dims..].fill(0.0);
        }
    }
}

/// Sums of squares of up to [`ABREAST`] heads, each in order of its values.
#[inline(always)]
fn squares(heads: &[f32], d: usize) -> [f32; ABREAST] {
    let mut sums = [0.0; ABREAST];
    if heads.len() == ABREAST * d {
        for k in 0..d {
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum += heads[row * d + k] * heads[row * d + k];
            }
        }
        return sums;
    }
    for (head, sum) in heads.chunks_exact(d).zip(&mut sums) {
        head.iter().for_each(|x| *sum += x * x);
    }
    sums
}
