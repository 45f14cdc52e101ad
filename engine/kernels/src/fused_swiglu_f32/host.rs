//! `silu(x · gateᵀ) · (x · upᵀ)` in float32.

use crate::affine::Packed;
use crate::dot::{Dots, Row};
use crate::error::KernelError;
use crate::gated::{Gated, silu_f32};
use crate::gemm::{COLUMNS, Fused, Matrix};
use crate::how::How;
use crate::lanes::{Simd, Task, Width};
use crate::linear::{Exact, Projection, columns};
use crate::numbers::Bf16;
use crate::parallel;

/// The results in float32, row-major.
///
/// # Errors
/// [`KernelError::Unsupported`] where the processor lacks the instructions asked for.
pub(crate) fn swiglu(
    kernel: &'static str,
    of: &Gated<'_>,
    how: How,
) -> Result<Vec<f32>, KernelError> {
    let width = Width::choose(kernel, how.path)?;
    let x = of.activations(how);
    let (gate, up) =
        if how.is("gate_up_swapped") { (&of.up, &of.gate) } else { (&of.gate, &of.up) };
    let mut out = vec![0.0; of.rows * gate.rows];
    if of.rows == 1 && Row::takes(gate, how) && Row::takes(up, how) {
        let rows = [Row::new(&x, gate), Row::new(&x, up)];
        parallel::chunks(&mut out, COLUMNS, of.work(), |index, out| {
            width.run(Decode { rows: &rows, gate, up, first: index * COLUMNS, out, how });
        });
    } else {
        let x = Matrix::new(&x, of.rows, gate.cols);
        columns(&mut out, of.rows, gate.rows, of.work(), how, |first| {
            width.run(Tile { x, gate, up, first, how })
        });
    }
    Ok(out)
}

/// Outputs `first ..` of one row.
struct Decode<'a> {
    rows: &'a [Row; 2],
    gate: &'a Packed<'a>,
    up: &'a Packed<'a>,
    first: usize,
    out: &'a mut [f32],
    how: How,
}

impl Task for Decode<'_> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { rows: [gate_row, up_row], gate, up, first, out, how } = self;
        let mut other = [0.0; COLUMNS];
        let other = &mut other[..out.len()];
        Dots { x: gate_row, weights: gate, first, out: &mut *out, how }.run(simd);
        Dots { x: up_row, weights: up, first, out: &mut *other, how }.run(simd);
        for (gate, up) in out.iter_mut().zip(other) {
            *gate = silu_f32(*gate) * *up;
        }
    }
}

/// Outputs `first .. first + COLUMNS` of all rows.
struct Tile<'a> {
    x: Matrix<'a>,
    gate: &'a Packed<'a>,
    up: &'a Packed<'a>,
    first: usize,
    how: How,
}

impl Task for Tile<'_> {
    type Out = Vec<f32>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<f32> {
        let mut gate = project(simd, self.x, self.gate, self.first, self.how);
        let up = project(simd, self.x, self.up, self.first, self.how);
        for (gate, up) in gate.iter_mut().zip(up) {
            *gate = silu_f32(*gate) * up;
        }
        gate
    }
}

/// Outputs `first .. first + COLUMNS` of all rows of one projection, `[rows][COLUMNS]`.
#[inline(always)]
pub(crate) fn project<S: Simd>(
    simd: S,
    x: Matrix<'_>,
    weights: &Packed<'_>,
    first: usize,
    how: How,
) -> Vec<f32> {
    let mut tile = vec![0.0; x.rows * COLUMNS];
    let out = &mut tile;
    if how.is("half_accumulator") {
        let arithmetic = Exact(Bf16);
        Projection { arithmetic, x, weights, first, tile: out, how }.run(simd);
    } else {
        Projection { arithmetic: Fused, x, weights, first, tile: out, how }.run(simd);
    }
    tile
}
