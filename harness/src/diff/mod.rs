//! Two safetensors files or model folders, tensor by tensor.
//!
//! Files are mapped and compared window by window, by all threads of the current rayon pool; each window's pages are
//! let go once it is compared, so that memory does not grow with the files.

mod bound;
mod piece;
mod row;
mod source;
mod table;
mod worst;

use std::path::Path;

pub use bound::Bound;
use mlx_parity_tensor::TensorView;
use mlx_parity_tensor::safetensors::SafetensorsError;
use piece::Piece;
use rayon::prelude::*;
pub use row::{Report, TensorRow, Verdict};
pub use source::Source;
pub use table::human;

use crate::compare::bits::Form;

/// Bytes of one side that a thread compares before it lets go of them.
const WINDOW: usize = 1 << 19;
/// Windows whose results are held at once, to be merged in order.
const BATCH: usize = 4096;

/// What to compare by, and how much to show.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// What may differ.
    pub bound: Bound,
    /// How many of the worst elements of each tensor to list.
    pub dump: usize,
}

/// Compares everything two files or folders hold: the tensors of `a` in its order, then those only `b` has.
///
/// # Errors
/// [`SafetensorsError`] when either cannot be read as it should.
pub fn diff(a: &Path, b: &Path, options: &Options) -> Result<Report, SafetensorsError> {
    let (a, b) = (Source::open(a)?, Source::open(b)?);
    let mut rows = Vec::new();
    let mut pairs = Vec::new();
    for name in a.names() {
        if b.contains(name) {
            let pair = Pair::new(&a, &b, name)?;
            pairs.push((rows.len(), pair));
            rows.push(TensorRow::of_forms(name, Some(Form::of(&pair.a)), Some(Form::of(&pair.b))));
        } else {
            rows.push(TensorRow::of_forms(name, Some(Form::of(&a.view(name)?)), None));
        }
    }
    for name in b.names().into_iter().filter(|name| !a.contains(name)) {
        rows.push(TensorRow::of_forms(name, None, Some(Form::of(&b.view(name)?))));
    }
    pairs.retain(|(_, pair)| pair.same_form());
    let bytes = pairs.iter().map(|(_, pair)| pair.a.bytes().len() as u64).sum();
    let compared: Vec<Pair> = pairs.iter().map(|(_, pair)| *pair).collect();
    for ((at, pair), piece) in pairs.iter().zip(compare_pairs(&compared, options)) {
        rows[*at].fill(&pair.a, &pair.b, &piece, options.bound);
    }
    Ok(Report { rows, bytes })
}

/// One tensor of both sides, and where its pages are.
#[derive(Clone, Copy)]
struct Pair<'a> {
    a: TensorView<'a>,
    b: TensorView<'a>,
    places: [source::Place<'a>; 2],
}

impl<'a> Pair<'a> {
    fn new(a: &'a Source, b: &'a Source, name: &str) -> Result<Self, SafetensorsError> {
        let places = [a.place(name)?, b.place(name)?];
        Ok(Self { a: a.view(name)?, b: b.view(name)?, places })
    }

    fn same_form(&self) -> bool {
        self.a.dtype() == self.b.dtype() && self.a.shape() == self.b.shape()
    }
}

/// A run of one pair's bytes.
struct Window {
    pair: usize,
    start: usize,
}

/// Compares pairs of the same form; sums are merged in order, so that they do not depend on the threads.
fn compare_pairs(pairs: &[Pair<'_>], options: &Options) -> Vec<Piece> {
    let mut whole: Vec<Piece> = pairs.iter().map(|p| Piece::new(p.a.dtype(), options)).collect();
    let windows: Vec<Window> = (pairs.iter().enumerate())
        .flat_map(|(pair, p)| {
            (0..p.a.bytes().len()).step_by(WINDOW).map(move |start| Window { pair, start })
        })
        .collect();
    for batch in windows.chunks(BATCH) {
        let pieces: Vec<Option<Piece>> =
            batch.par_iter().map(|window| window.compare(&pairs[window.pair], options)).collect();
        for (window, piece) in batch.iter().zip(pieces) {
            match piece {
                Some(piece) => whole[window.pair].merge(piece),
                None => whole[window.pair].skip(window.elements(&pairs[window.pair])),
            }
        }
    }
    whole
}

impl Window {
    fn end(&self, pair: &Pair<'_>) -> usize {
        pair.a.bytes().len().min(self.start + WINDOW)
    }

    fn elements(&self, pair: &Pair<'_>) -> usize {
        (self.end(pair) - self.start) / pair.a.dtype().size()
    }

    /// `None` when all bytes are equal.
    fn compare(&self, pair: &Pair<'_>, options: &Options) -> Option<Piece> {
        let range = self.start..self.end(pair);
        let (a, b) = (&pair.a.bytes()[range.clone()], &pair.b.bytes()[range.clone()]);
        let dtype = pair.a.dtype();
        let piece = (a != b).then(|| {
            let mut piece = Piece::new(dtype, options);
            piece.add(self.start / dtype.size(), a, b);
            piece
        });
        for place in pair.places {
            place.release(range.clone());
        }
        piece
    }
}

#[cfg(test)]
mod tests;
