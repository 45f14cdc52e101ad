//! The operands of a call: those of the gate, the way down, and what the result is added to.

use mlx_parity_tensor::Dtype;

use crate::affine::Packed;
use crate::call::{Call, Params, View};
use crate::candidate::Trial;
use crate::draw::{Draw, Kind};
use crate::error::KernelError;
use crate::gated::{self, Gated};

/// Sizes of a trial, in the order of a lattice's entries.
pub(super) const SIZES: &[&str] =
    &["rows", "in", "width", "out", "gate_bits", "gate_group", "down_bits", "down_group"];

/// `x`, `gate` and `up`, `down` `[out, width]` and `residual` `[.., out]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mlp<'a> {
    /// What happens before the way down.
    pub gated: Gated<'a>,
    /// The way down.
    pub down: Packed<'a>,
    /// What the result is added to.
    pub residual: View<'a>,
}

impl<'a> Mlp<'a> {
    /// The operands of a call.
    ///
    /// # Errors
    /// As [`Gated::of`].
    pub fn of(kernel: &'static str, call: &Call<'a>) -> Result<Self, KernelError> {
        let gated = Gated::of(kernel, call)?;
        let down = Packed::of(kernel, call, "down", gated.gate.rows, gated.dtype)?;
        let residual = call.operand(kernel, "residual")?;
        let of = Self { gated, down, residual };
        if residual.shape != of.shape() || residual.data.dtype() != gated.dtype {
            let (found, dtype) = (residual.shape, residual.data.dtype());
            let what = format!("`residual` is {found:?} of {dtype}, not {:?}", of.shape());
            return Err(KernelError::Malformed { kernel, what });
        }
        Ok(of)
    }

    /// Shape of the result.
    pub fn shape(&self) -> Vec<usize> {
        gated::with_last(self.gated.x.shape, self.down.rows)
    }

    /// The class of the call.
    pub fn class(&self) -> &'static str {
        let matrices = [self.gated.gate, self.gated.up, self.down];
        gated::class(self.gated.rows, matrices.map(|of| of.bits))
    }

    /// Multiply-adds of the way down.
    pub const fn work(&self) -> usize {
        self.gated.rows * self.down.cols * self.down.rows
    }
}

/// A trial of the given sizes.
pub(super) fn trial(sizes: &[usize], dtype: Dtype, seed: u64, kind: Kind) -> Trial {
    let &[rows, cols, width, outputs, bits, group, down_bits, down_group] = sizes else {
        unreachable!("lattices have an entry for each of SIZES")
    };
    let gated = [rows, cols, width, bits, group, bits, group];
    let mut trial = gated::trial(&gated, dtype, seed, kind);
    let mut draw = Draw::new(!seed);
    let names = ["down_w", "down_scales", "down_biases"];
    let scale = 1.0 / (width as f32).sqrt();
    let packing = (down_bits as u32, down_group);
    trial.operands.extend(draw.packed(names, (outputs, width), packing, dtype, scale));
    trial.operands.push(draw.operand("residual", &[rows, outputs], dtype, kind, 1.0));
    let Params(params) = &mut trial.params;
    params.extend([("down_bits", down_bits as f64), ("down_group", down_group as f64)]);
    trial.name = gated::name(SIZES, sizes, kind.name());
    trial
}
