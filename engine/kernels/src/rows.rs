//! Operands of elementwise kernels, a row at a time.

use std::borrow::Cow;

use crate::call::View;
use crate::numbers::Format;

/// Elements of a piece of an operand without gaps.
const PIECE: usize = 4096;

/// The rows of an operand: its last axis, or pieces of one length where it has no gaps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a, F: Format> {
    data: &'a [F::Bits],
    view: View<'a>,
    width: usize,
    pieces: bool,
}

impl<'a, F: Format> Rows<'a, F> {
    /// The rows of views of one shape; none where a view has another format.
    pub(crate) fn of<const N: usize>(views: [View<'a>; N]) -> Option<[Self; N]> {
        let pieces = views.iter().all(View::is_contiguous);
        let rows = |view: View<'a>| {
            let width = if pieces { PIECE } else { view.shape.last().copied().unwrap_or(1) };
            Some(Self { data: F::data(view.data)?, view, width, pieces })
        };
        let rows = views.map(rows);
        rows.iter().all(Option::is_some).then(|| rows.map(|rows| rows.expect("all are there")))
    }

    /// Elements of a row; the last may have fewer.
    pub(crate) const fn width(&self) -> usize {
        self.width
    }

    /// The first elements of a row.
    pub(crate) fn row(&self, row: usize, len: usize) -> Cow<'a, [F::Bits]> {
        if self.pieces {
            return Cow::Borrowed(&self.data[row * self.width..][..len]);
        }
        let (start, step) = (self.start(row), self.view.strides.last().copied().unwrap_or(1));
        if step == 1 || len < 2 {
            return Cow::Borrowed(&self.data[start..start + len]);
        }
        (0..len).map(|index| self.data[start + index * step]).collect()
    }

    /// The same rows, read as if there were no gaps between them.
    pub(crate) fn without_gaps(mut self) -> Self {
        self.pieces = true;
        self
    }

    fn start(&self, mut row: usize) -> usize {
        let leading = self.view.shape.len().saturating_sub(1);
        let mut start = 0;
        for axis in (0..leading).rev() {
            start += row % self.view.shape[axis] * self.view.strides[axis];
            row /= self.view.shape[axis];
        }
        start
    }
}
