//! `silu(x · gateᵀ) · (x · upᵀ)`, every operation rounded where MLX's CPU backend rounds it.

use super::ID;
use mlx_parity_tensor::Dtype;

use crate::affine::Packed;
use crate::call::Out;
use crate::error::KernelError;
use crate::exact;
use crate::gated::Gated;
use crate::gemm::{COLUMNS, Matrix};
use crate::how::How;
use crate::lanes::{Simd, Task, Width};
use crate::linear::{Exact, Loose, Projection, Rounded, columns};
use crate::numbers::{Bf16, F16, F32, Format};

/// What a multiply-add costs that is rounded to a half behind each operation, in fused ones.
const HEAVY: usize = 8;

/// Computes a call.
///
/// # Errors
/// [`KernelError::Unsupported`] where the processor lacks the instructions asked for.
pub(super) fn run(of: &Gated<'_>, how: How, out: &mut Out<'_>) -> Result<(), KernelError> {
    match out {
        Out::F32(out) => swiglu(F32, of, how, out),
        Out::F16(out) => swiglu(F16, of, how, out),
        Out::Bf16(out) => swiglu(Bf16, of, how, out),
    }
}

fn swiglu<F: Format + Rounded>(
    format: F,
    of: &Gated<'_>,
    how: How,
    out: &mut [F::Bits],
) -> Result<(), KernelError> {
    let width = Width::choose(ID, how.path)?;
    let x = of.activations(how);
    let x = Matrix::new(&x, of.rows, of.gate.cols);
    let work = of.work() * if F::DTYPE == Dtype::F32 { 2 } else { HEAVY };
    columns(out, of.rows, of.gate.rows, work, how, |first| {
        let tile = Tile { format, x, gate: &of.gate, up: &of.up, first, how };
        width.run(tile)
    });
    Ok(())
}

/// Outputs `first .. first + COLUMNS` of all rows.
struct Tile<'a, F> {
    format: F,
    x: Matrix<'a>,
    gate: &'a Packed<'a>,
    up: &'a Packed<'a>,
    first: usize,
    how: How,
}

impl<F: Format + Rounded> Task for Tile<'_, F> {
    type Out = Vec<F::Bits>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<F::Bits> {
        let (mut gate, mut up) = (self.project(simd, self.gate), self.project(simd, self.up));
        if self.how.is("gate_up_swapped") {
            std::mem::swap(&mut gate, &mut up);
        }
        let unrounded = self.how.is("silu_unrounded");
        let mut out = vec![F::Bits::default(); gate.len()];
        // A loop and no closures, which need not be inlined.
        for ((out, &gate), &up) in out.iter_mut().zip(&gate).zip(&up) {
            let silu = exact::silu::<F>(gate);
            let silu = if unrounded { gate * exact::sigmoid::<F>(gate) } else { silu };
            *out = F::narrow(silu * up);
        }
        out
    }
}

impl<F: Format + Rounded> Tile<'_, F> {
    #[inline(always)]
    fn project<S: Simd>(&self, simd: S, weights: &Packed<'_>) -> Vec<f32> {
        let mut tile = vec![0.0; self.x.rows * COLUMNS];
        let (x, first, how) = (self.x, self.first, self.how);
        let float_sum = how.is("float_accumulator");
        let weight_once = how.is("weight_rounded_once");
        if float_sum || weight_once {
            let arithmetic = Loose { format: self.format, float_sum, weight_once };
            Projection { arithmetic, x, weights, first, tile: &mut tile, how }.run(simd);
            for x in &mut tile {
                *x = <F as Format>::round(*x);
            }
        } else {
            let arithmetic = Exact(self.format);
            Projection { arithmetic, x, weights, first, tile: &mut tile, how }.run(simd);
        }
        tile
    }
}
