//! Operands of a head with its loss, forward and backward.

use std::borrow::Cow;

use mlx_parity_tensor::Dtype;

use crate::affine::{self, Packed};
use crate::call::{Call, Data, View};
use crate::error::KernelError;
use crate::gated::DTYPES;
use crate::how::How;

/// The target of a position that has no loss.
pub(crate) const IGNORED: i32 = -100;

/// Hidden states, and the matrix and targets they meet.
#[derive(Debug, Clone)]
pub(crate) struct Head<'a> {
    /// `[rows, cols]`.
    pub hidden: View<'a>,
    /// Positions.
    pub rows: usize,
    /// Values of a position.
    pub cols: usize,
    /// The matrix.
    pub weight: Weight<'a>,
    /// Rows of the matrix.
    pub classes: usize,
    /// One for each position: a class, or [`IGNORED`].
    pub targets: Vec<i32>,
}

/// The matrix of a head, `[classes, cols]`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Weight<'a> {
    /// As it is.
    Plain(View<'a>),
    /// In affine packing.
    Packed(Packed<'a>),
}

impl<'a> Head<'a> {
    /// The operands of a call.
    ///
    /// # Errors
    /// [`KernelError::Malformed`] where they do not fit each other or a target is no class,
    /// [`KernelError::Unsupported`] for other dtypes.
    pub(crate) fn of(kernel: &'static str, call: &Call<'a>) -> Result<Self, KernelError> {
        let malformed = |what: String| KernelError::Malformed { kernel, what };
        let hidden = call.operand(kernel, "hidden")?;
        let &[rows, cols] = hidden.shape else {
            return Err(malformed(format!("`hidden` is {:?}, not [positions, in]", hidden.shape)));
        };
        let weight = Weight::of(kernel, call, cols)?;
        for (name, dtype) in [("hidden", hidden.data.dtype()), ("weight", weight.dtype())] {
            if !DTYPES.contains(&dtype) {
                return Err(KernelError::Unsupported {
                    kernel,
                    found: format!("`{name}` of {dtype}"),
                    wanted: "float32, float16 or bfloat16".into(),
                });
            }
        }
        let classes = weight.classes();
        let targets = targets(kernel, call, rows, classes)?;
        Ok(Self { hidden, rows, cols, weight, classes, targets })
    }

    /// Hidden states in float32, `[rows, cols]`.
    pub(crate) fn hidden(&self) -> Cow<'a, [f32]> {
        match self.hidden.data {
            Data::F32(data) if self.hidden.is_contiguous() => {
                Cow::Borrowed(&data[..self.rows * self.cols])
            }
            _ => Cow::Owned(self.hidden.to_f32()),
        }
    }

    /// Multiply-adds of the logits.
    pub(crate) const fn work(&self) -> usize {
        self.rows * self.cols * self.classes
    }

    /// The class of the call.
    pub(crate) const fn class(&self) -> &'static str {
        match self.weight {
            Weight::Plain(_) => "plain",
            Weight::Packed(_) => "packed",
        }
    }
}

fn targets(
    kernel: &'static str,
    call: &Call<'_>,
    rows: usize,
    classes: usize,
) -> Result<Vec<i32>, KernelError> {
    let malformed = |what: String| KernelError::Malformed { kernel, what };
    let view = call.operand(kernel, "targets")?;
    let (Data::I32(data), true) = (view.data, view.shape == [rows]) else {
        return Err(malformed(format!("`targets` are not int32 [{rows}]")));
    };
    if data.is_empty() {
        return Ok(Vec::new());
    }
    let targets: Vec<i32> = view.offsets().map(|at| data[at]).collect();
    let known = |&target: &i32| {
        target == IGNORED || usize::try_from(target).is_ok_and(|target| target < classes)
    };
    match targets.iter().find(|target| !known(target)) {
        Some(target) => Err(malformed(format!("target {target} of {classes} classes"))),
        None => Ok(targets),
    }
}

impl<'a> Weight<'a> {
    fn of(kernel: &'static str, call: &Call<'a>, cols: usize) -> Result<Self, KernelError> {
        let Some(plain) = call.find("weight") else {
            let parts = ["weight_w", "weight_scales", "weight_biases"];
            let [words, scales, biases] = parts.map(|name| call.operand(kernel, name));
            let packing =
                (call.param(kernel, "bits")? as u32, call.param(kernel, "group")? as usize);
            let (words, scales, biases) = (words?, scales?, biases?);
            let dtype = scales.data.dtype();
            let views = [words, scales, biases];
            return Packed::new(kernel, "weight", views, packing, cols, dtype).map(Self::Packed);
        };
        match plain.shape {
            &[_, of] if of == cols => Ok(Self::Plain(plain)),
            shape => Err(KernelError::Malformed {
                kernel,
                what: format!("`weight` is {shape:?}, not [classes, {cols}]"),
            }),
        }
    }

    /// Of its numbers; of the scales where it is packed.
    pub(crate) fn dtype(&self) -> Dtype {
        match self {
            Self::Plain(view) => view.data.dtype(),
            Self::Packed(packed) => packed.dtype(),
        }
    }

    fn classes(&self) -> usize {
        match self {
            Self::Plain(view) => view.shape[0],
            Self::Packed(packed) => packed.rows,
        }
    }

    /// Writes rows `first ..` in float32, as many as fit.
    pub(crate) fn rows(&self, first: usize, cols: usize, how: How, to: &mut [f32]) {
        for (index, row) in to.chunks_exact_mut(cols).enumerate() {
            match self {
                Self::Plain(view) => plain_row(view, first + index, row),
                Self::Packed(packed) => packed_row(packed, first + index, how, row),
            }
        }
    }

    /// A row in float64.
    pub(crate) fn row_f64(&self, row: usize, cols: usize) -> Vec<f64> {
        match self {
            Self::Plain(view) => {
                let mut to = vec![0.0; cols];
                plain_row(view, row, &mut to);
                to.into_iter().map(f64::from).collect()
            }
            Self::Packed(packed) => packed.row_f64(row),
        }
    }
}

fn plain_row(view: &View<'_>, row: usize, to: &mut [f32]) {
    let at = row * view.strides[0];
    if view.strides[1] == 1 || to.len() < 2 {
        return view.data.widen(at, to);
    }
    let of = |(col, to): (usize, &mut f32)| *to = view.data.f32(at + col * view.strides[1]);
    to.iter_mut().enumerate().for_each(of);
}

fn packed_row(packed: &Packed<'_>, row: usize, how: How, to: &mut [f32]) {
    affine::unpack(packed.row(row), packed.bits, to);
    let neighbour = usize::from(how.is("wrong_group"));
    for (group, codes) in to.chunks_mut(packed.group).enumerate() {
        let (scale, bias) = packed.scale_bias(row, (group + neighbour) % packed.groups());
        let bias = if how.is("bias_forgotten") { 0.0 } else { bias };
        codes.iter_mut().for_each(|x| *x = *x * scale + bias);
    }
}
