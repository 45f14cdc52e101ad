//! `residual + (silu(x · gateᵀ) · (x · upᵀ)) · downᵀ` in float32.

use super::ID;
use super::operands::Mlp;
use crate::dot::{Dots, Row};
use crate::error::KernelError;
use crate::fused_swiglu_f32::host::{project, swiglu};
use crate::gemm::{COLUMNS, Matrix};
use crate::how::How;
use crate::lanes::{Simd, Task, Width};
use crate::linear::columns;
use crate::numbers::{Bf16, Format};
use crate::parallel;

/// The results in float32, row-major.
///
/// # Errors
/// [`KernelError::Unsupported`] where the processor lacks the instructions asked for.
pub(super) fn mlp(of: &Mlp<'_>, how: How) -> Result<Vec<f32>, KernelError> {
    let width = Width::choose(ID, how.path)?;
    let mut hidden = swiglu(ID, &of.gated, how)?;
    if how.is("hidden_rounded") {
        for x in &mut hidden {
            *x = <Bf16 as Format>::round(*x);
        }
    }
    let (rows, outputs) = (of.gated.rows, of.down.rows);
    let mut out = vec![0.0; rows * outputs];
    if rows == 1 && Row::takes(&of.down, how) {
        let row = Row::new(&hidden, &of.down);
        parallel::chunks(&mut out, COLUMNS, of.work(), |index, out| {
            width.run(Dots { x: &row, weights: &of.down, first: index * COLUMNS, out, how });
        });
    } else {
        let x = Matrix::new(&hidden, rows, of.down.cols);
        columns(&mut out, rows, outputs, of.work(), how, |first| {
            width.run(Down { x, of, first, how })
        });
    }
    add_residual(of, how, &mut out);
    Ok(out)
}

/// Outputs `first .. first + COLUMNS` of all rows.
struct Down<'a> {
    x: Matrix<'a>,
    of: &'a Mlp<'a>,
    first: usize,
    how: How,
}

impl Task for Down<'_> {
    type Out = Vec<f32>;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> Vec<f32> {
        project(simd, self.x, &self.of.down, self.first, self.how)
    }
}

fn add_residual(of: &Mlp<'_>, how: How, out: &mut [f32]) {
    let times = match () {
        () if how.is("residual_twice") => 2,
        () if how.is("residual_forgotten") => 0,
        () => 1,
    };
    for _ in 0..times {
        let residual = of.residual.to_f32();
        out.iter_mut().zip(residual).for_each(|(out, residual)| *out += residual);
    }
}
