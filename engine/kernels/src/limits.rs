//! Work that shows what a machine can do at most: kernels are measured against it in the same run.

use crate::gemm::{COLUMNS, Matrix, Tile, multiply, pack_rows, panel_len};
use crate::lanes::Width;
use crate::parallel;

/// Sums `words` on all cores: reads each once.
pub fn read(words: &[u64]) -> u64 {
    const CHUNK: usize = 1 << 16;
    let sum = |index: usize| {
        let chunk = &words[index * CHUNK..words.len().min((index + 1) * CHUNK)];
        chunk.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word))
    };
    let sums = parallel::map(words.len().div_ceil(CHUNK), words.len(), sum);
    sums.into_iter().fold(0, u64::wrapping_add)
}

/// `out = a · bᵀ` of `a` `[n, n]` and `b` `[n, n]` in float32, on all cores.
pub fn multiply_square(a: &[f32], b: &[f32], n: usize) -> Vec<f32> {
    let (a, b) = (Matrix::new(a, n, n), Matrix::new(b, n, n));
    let width = Width::widest();
    let tiles = parallel::map(n.div_ceil(COLUMNS), n * n * n, |index| {
        let mut panel = vec![0.0; panel_len(n)];
        pack_rows(b, index * COLUMNS, &mut panel);
        let mut tile = vec![0.0; n * COLUMNS];
        let out = Tile { data: &mut tile, cols: COLUMNS, stride: COLUMNS, add: false };
        multiply(width, a, &panel, out);
        tile
    });
    tiles.concat()
}
