//! Gradients of gated gelu on the host, sixteen elements at a time.
//!
//! With `u = sqrt(2 / pi) (x + 0.044715 x^3)`, gelu is `x s` where `s = 1 / (1 + exp(-2 u))`, and its derivative
//! `s + 2 x s (1 - s) u'`; no difference of like numbers is taken.

use mlx_parity_tensor::Dtype;

use super::{ID, Operands};
use crate::call::Out;
use crate::error::KernelError;
use crate::how::How;
use crate::lanes::{F32s, LANES, Mask, Simd, Task, Width};
use crate::numbers::{self, Bf16, F16, F32, Format};
use crate::parallel;
use crate::rows::Rows;

/// Multiply-adds that an element costs as much as.
const COST: usize = 32;
/// From here on, either side of zero, `s` is 0 or 1 to the last bit of f32.
const FLAT: f32 = 16.0;
/// sqrt(2 / pi).
const SLOPE: f32 = 0.797_884_56;
/// The factor of the cube.
const CUBE: f32 = 0.044_715;

/// Computes a call.
pub(super) fn run(of: Operands<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
    match of.cotangent.data.dtype() {
        Dtype::F16 => run_in::<F16>(of, how, out),
        Dtype::Bf16 => run_in::<Bf16>(of, how, out),
        _ => run_in::<F32>(of, how, out),
    }
}

fn run_in<F: Format>(of: Operands<'_>, how: How, out: &mut [Out<'_>]) -> Result<(), KernelError> {
    let malformed = |what: &str| KernelError::Malformed { kernel: ID, what: what.into() };
    let views = [of.pair.gate, of.pair.up, of.cotangent];
    let rows = Rows::<F>::of(views).ok_or_else(|| malformed("operands differ"))?;
    let [dgate, dup] = out else { return Err(malformed("wanted two results")) };
    let (Some(dgate), Some(dup)) = (F::out(dgate), F::out(dup)) else {
        return Err(malformed("a result has another dtype"));
    };
    let len = of.cotangent.len();
    if dgate.len() != len || dup.len() != len {
        return Err(malformed("a result has another length"));
    }
    let width = Width::choose(ID, how.path)?;
    let rows = if how.is("strides_ignored") { rows.map(Rows::without_gaps) } else { rows };
    let (dgate, dup) = if how.is("results_swapped") { (dup, dgate) } else { (dgate, dup) };
    parallel::pairs(dgate, dup, rows[0].width(), len * COST, |row, dgate, dup| {
        let [gate, up, cotangent] = rows.map(|rows| rows.row(row, dgate.len()));
        let [gate, up, cotangent] = [&*gate, &*up, &*cotangent];
        width.run(Row::<F> { gate, up, cotangent, dgate, dup, how });
    });
    Ok(())
}

/// One row.
struct Row<'a, F: Format> {
    gate: &'a [F::Bits],
    up: &'a [F::Bits],
    cotangent: &'a [F::Bits],
    dgate: &'a mut [F::Bits],
    dup: &'a mut [F::Bits],
    how: How,
}

impl<F: Format> Task for Row<'_, F> {
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { gate, up, cotangent, dgate, dup, how } = self;
        let (skip, stale) = (how.is("tail_skipped"), how.is("stale_tail"));
        let mut block = [[0.0; LANES]; 3];
        for at in (0..gate.len()).step_by(LANES) {
            let there = (gate.len() - at).min(LANES);
            let partial = there < LANES;
            if partial && skip {
                return;
            }
            if !(partial && stale) {
                for (to, from) in block.iter_mut().zip([gate, up, cotangent]) {
                    to.iter_mut().zip(&from[at..]).for_each(|(to, &from)| *to = F::widen(from));
                }
            }
            let results = gradients(simd, block.map(|of| simd.load(&of)), how);
            for (to, from) in [&mut *dgate, &mut *dup].into_iter().zip(results) {
                let mut all = [0.0; LANES];
                from.store(&mut all);
                to[at..].iter_mut().zip(all).for_each(|(to, from)| *to = F::narrow(from));
            }
        }
    }
}

/// Gradients by the gate and by up.
#[inline(always)]
fn gradients<S: Simd>(simd: S, [x, up, cotangent]: [S::F; 3], how: How) -> [S::F; 2] {
    let one = simd.splat(1.0);
    let near = simd.splat(-FLAT).max(simd.splat(FLAT).min(x));
    let cube = if how.is("cube_forgotten") { 0.0 } else { CUBE };
    let square = near * near;
    let inner = simd.splat(SLOPE * cube).mul_add(square, simd.splat(SLOPE));
    let least = simd.splat(-40.0);
    let e = numbers::exp(simd, (simd.splat(-2.0) * near * inner).min(simd.splat(80.0)).max(least));
    let s = one / (one + e);
    let s = x.lt(simd.splat(-FLAT)).select(simd.splat(0.0), s);
    let times = if how.is("three_forgotten") { 1.0 } else { 3.0 };
    let slope = simd.splat(times * SLOPE * cube).mul_add(square, simd.splat(SLOPE));
    let tangent = if how.is("tangent_not_squared") { s } else { s * (e * s) };
    let curve = simd.splat(2.0) * near * tangent * slope;
    let curve = if how.is("curve_forgotten") { simd.splat(0.0) } else { curve };
    let derivative = s + curve;
    let gelu = x * s;
    let gelu = if how.is("needless_rounding") { gelu.round_bf16() } else { gelu };
    let gelu = if how.is("half_forgotten") { gelu + gelu } else { gelu };
    let gelu = if how.is("dup_of_derivative") { derivative } else { gelu };
    let cotangent = if how.is("cotangent_forgotten") { one } else { cotangent };
    let up = if how.is("up_forgotten") { one } else { up };
    [cotangent * up * derivative, cotangent * gelu]
}
