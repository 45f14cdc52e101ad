//! Work spread over the cores, where there is enough of it.
//!
//! Results never depend on how the work is spread: each piece is computed by one thread, in the same
//! order of operations as alone.

use rayon::prelude::*;

/// Multiply-adds below which one core is done before a second one is awake: a sleeping thread takes some 100 µs.
const WORTH: usize = 1 << 20;

/// `each(0)`, `each(1)`, … `each(count - 1)`, in order; on all cores where `work`, the multiply-adds of
/// them together, is worth it.
pub fn map<T: Send>(count: usize, work: usize, each: impl Fn(usize) -> T + Sync + Send) -> Vec<T> {
    if count < 2 || work < WORTH {
        return (0..count).map(each).collect();
    }
    (0..count).into_par_iter().map(each).collect()
}

/// `each(i, chunk i)` for every chunk of `size` elements (the last may be shorter).
pub fn chunks<T: Send>(
    of: &mut [T],
    size: usize,
    work: usize,
    each: impl Fn(usize, &mut [T]) + Sync + Send,
) {
    let size = size.max(1);
    if of.len() <= size || work < WORTH {
        return of.chunks_mut(size).enumerate().for_each(|(index, chunk)| each(index, chunk));
    }
    of.par_chunks_mut(size).enumerate().for_each(|(index, chunk)| each(index, chunk));
}

/// `each(i, chunk i, chunk i)` for every chunk of `size` elements of two results of one length.
pub fn pairs<T: Send>(
    first: &mut [T],
    second: &mut [T],
    size: usize,
    work: usize,
    each: impl Fn(usize, &mut [T], &mut [T]) + Sync + Send,
) {
    let size = size.max(1);
    if first.len() <= size || work < WORTH {
        let both = first.chunks_mut(size).zip(second.chunks_mut(size));
        return both.enumerate().for_each(|(index, (first, second))| each(index, first, second));
    }
    let both = first.par_chunks_mut(size).zip(second.par_chunks_mut(size));
    both.enumerate().for_each(|(index, (first, second))| each(index, first, second));
}

/// `each(i, piece i)` for every piece of an iterator.
pub fn each<T: Send>(
    pieces: impl Iterator<Item = T>,
    work: usize,
    each: impl Fn(usize, T) + Sync + Send,
) {
    if work < WORTH {
        return pieces.enumerate().for_each(|(index, piece)| each(index, piece));
    }
    let pieces: Vec<T> = pieces.collect();
    pieces.into_par_iter().enumerate().for_each(|(index, piece)| each(index, piece));
}
