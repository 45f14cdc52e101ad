//! Calls of the gated kernels: activations and the packed matrices they meet, and trials of them.

use mlx_parity_tensor::Dtype;

use crate::affine::Packed;
use crate::call::{Call, Out, Params, View};
use crate::candidate::Trial;
use crate::draw::{Draw, Kind};
use crate::error::KernelError;
use crate::exact;
use crate::how::How;

/// Sizes of a trial, in the order of a lattice's entries.
pub(crate) const SIZES: &[&str] =
    &["rows", "in", "width", "gate_bits", "gate_group", "up_bits", "up_group"];

/// Dtypes of activations.
pub(crate) const DTYPES: &[Dtype] = &[Dtype::F32, Dtype::F16, Dtype::Bf16];

/// `x` `[.., in]`, and `gate` and `up` `[width, in]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gated<'a> {
    /// Activations.
    pub x: View<'a>,
    /// Their rows.
    pub rows: usize,
    /// Their dtype, that of scales and biases too.
    pub dtype: Dtype,
    /// The gate's matrix.
    pub gate: Packed<'a>,
    /// The other one.
    pub up: Packed<'a>,
}

impl<'a> Gated<'a> {
    /// The operands of a call.
    ///
    /// # Errors
    /// [`KernelError::Malformed`] where they do not fit each other, [`KernelError::Unsupported`] where x is
    /// of another dtype or weights are views with gaps.
    pub fn of(kernel: &'static str, call: &Call<'a>) -> Result<Self, KernelError> {
        let x = call.operand(kernel, "x")?;
        let dtype = x.data.dtype();
        if !DTYPES.contains(&dtype) {
            return Err(KernelError::Unsupported {
                kernel,
                found: format!("x of {dtype}"),
                wanted: "float32, float16 or bfloat16".into(),
            });
        }
        let malformed = |what: String| KernelError::Malformed { kernel, what };
        let Some((&cols, leading)) = x.shape.split_last() else {
            return Err(malformed("`x` has no axis".into()));
        };
        let matrix = |name| Packed::of(kernel, call, name, cols, dtype);
        let (gate, up) = (matrix("gate")?, matrix("up")?);
        if gate.rows != up.rows {
            let what = format!("`gate_w` has {} rows, `up_w` has {}", gate.rows, up.rows);
            return Err(malformed(what));
        }
        Ok(Self { x, rows: leading.iter().product(), dtype, gate, up })
    }

    /// The activations, row-major.
    pub fn activations(&self, how: How) -> Vec<f32> {
        if how.is("strides_ignored") {
            let mut x = vec![0.0; self.x.len()];
            self.x.data.widen(0, &mut x);
            return x;
        }
        self.x.to_f32()
    }

    /// Shape of `silu(gate(x)) · up(x)`.
    pub fn shape(&self) -> Vec<usize> {
        with_last(self.x.shape, self.gate.rows)
    }

    /// Multiply-adds of both projections.
    pub const fn work(&self) -> usize {
        2 * self.rows * self.gate.cols * self.gate.rows
    }

    /// The class of the call.
    pub fn class(&self) -> &'static str {
        class(self.rows, [self.gate.bits, self.up.bits])
    }
}

/// A shape with another last extent.
pub(crate) fn with_last(shape: &[usize], last: usize) -> Vec<usize> {
    let leading = &shape[..shape.len().saturating_sub(1)];
    leading.iter().copied().chain([last]).collect()
}

/// The memory of the one result of a call.
///
/// # Errors
/// [`KernelError::Malformed`] where it is of another dtype or length, or there is not one.
pub(crate) fn result<'a, 'b>(
    kernel: &'static str,
    (dtype, shape): (Dtype, &[usize]),
    out: &'a mut [Out<'b>],
) -> Result<&'a mut Out<'b>, KernelError> {
    let wanted: usize = shape.iter().product();
    match out {
        [out] if out.dtype() == dtype && out.len() == wanted => Ok(out),
        _ => Err(KernelError::Malformed {
            kernel,
            what: format!("the result is not one of {wanted} elements of {dtype}"),
        }),
    }
}

/// The class of a call with so many rows and such packings.
pub(crate) fn class(rows: usize, bits: impl IntoIterator<Item = u32>) -> &'static str {
    let mut bits = bits.into_iter();
    let first = bits.next();
    match (rows, first.filter(|first| bits.all(|other| other == *first))) {
        (0..=1, Some(4)) => "decode-q4",
        (_, Some(4)) => "prefill-q4",
        (0..=1, Some(8)) => "decode-q8",
        (_, Some(8)) => "prefill-q8",
        _ => "mixed",
    }
}

/// `silu(x) = x / (1 + exp(-x))` in float64.
pub(crate) fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// `silu` in float32: 0 with x's sign where the exponential is infinite.
#[inline(always)]
pub(crate) fn silu_f32(x: f32) -> f32 {
    x / (1.0 + exact::exp(-x))
}

/// `x · Wᵀ` in float64, `[rows, weights.rows]`.
pub(crate) fn project(x: &[f64], weights: &Packed<'_>) -> Vec<f64> {
    let width = weights.rows;
    let mut out = vec![0.0; x.len() / weights.cols.max(1) * width];
    for column in 0..width {
        let row = weights.row_f64(column);
        for (x, out) in x.chunks_exact(weights.cols).zip(out.chunks_exact_mut(width)) {
            out[column] = x.iter().zip(&row).map(|(x, w)| x * w).sum();
        }
    }
    out
}

/// Operands and numbers of a trial: `x` `[rows, in]` of a kind, gate and up as [`SIZES`] say.
pub(crate) fn trial(sizes: &[usize], dtype: Dtype, seed: u64, kind: Kind) -> Trial {
    let &[rows, cols, width, gate_bits, gate_group, up_bits, up_group] = sizes else {
        unreachable!("lattices have an entry for each of SIZES")
    };
    let mut draw = Draw::new(seed);
    let scale = 1.0 / (cols as f32).sqrt();
    let mut operands = vec![draw.operand("x", &[rows, cols], dtype, kind, 1.0)];
    let gate = ["gate_w", "gate_scales", "gate_biases"];
    let up = ["up_w", "up_scales", "up_biases"];
    operands.extend(draw.packed(gate, (width, cols), (gate_bits as u32, gate_group), dtype, scale));
    operands.extend(draw.packed(up, (width, cols), (up_bits as u32, up_group), dtype, scale));
    let params = [gate_bits, gate_group, up_bits, up_group].map(|number| number as f64);
    let names = ["gate_bits", "gate_group", "up_bits", "up_group"];
    let params = Params(names.into_iter().zip(params).collect());
    Trial { name: name(SIZES, sizes, kind.name()), operands, params }
}

/// Name of a trial.
pub(crate) fn name(names: &[&str], sizes: &[usize], what: &str) -> String {
    let sizes = names.iter().zip(sizes).map(|(name, size)| format!("{name}={size}"));
    format!("{}/{what}", sizes.collect::<Vec<_>>().join(","))
}

/// The call with `x` (and each operand of its shape) as a view with gaps that hold NaN; results are the same.
pub(crate) fn with_gaps(mut trial: Trial, which: &[&str]) -> Trial {
    for operand in trial.operands.iter_mut().filter(|of| which.contains(&of.name)) {
        *operand = operand.with_gaps();
    }
    trial.name.push_str("/gaps");
    trial
}
