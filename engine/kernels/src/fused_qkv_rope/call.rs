//! Operands and numbers of a call.

use mlx_parity_tensor::Dtype;

use super::ID;
use crate::affine::Packed;
use crate::call::{Call, View};
use crate::error::KernelError;
use crate::gated::{self, DTYPES};

/// A call that the kernel takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Qkv<'a> {
    /// `[batch, rows, in]`.
    pub x: View<'a>,
    /// Of x, and so of all else.
    pub dtype: Dtype,
    /// Items of the batch.
    pub batch: usize,
    /// Rows of an item.
    pub rows: usize,
    /// Of queries, keys and values.
    pub projections: [Packed<'a>; 3],
    /// Of queries and keys.
    pub norms: Option<Norms<'a>>,
    /// Values of a head.
    pub head_dim: usize,
    /// Where rows stand.
    pub rope: Rope,
}

/// The norms of queries and keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Norms<'a> {
    /// Of queries and of keys, `[head_dim]`.
    pub weights: [View<'a>; 2],
    /// What is added to the mean of squares.
    pub eps: f32,
}

/// Rotary positions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rope {
    /// Base of the periods.
    pub theta: f32,
    /// Values of a head that are rotated.
    pub dims: usize,
    /// Neighbours pair up, rather than halves.
    pub traditional: bool,
    /// What positions are multiplied by.
    pub scale: f32,
    /// Position of the first row.
    pub offset: i32,
}

impl<'a> Qkv<'a> {
    /// The operands and numbers of a call.
    ///
    /// # Errors
    /// [`KernelError::Malformed`] where they do not fit each other, [`KernelError::Unsupported`] for other dtypes.
    pub(super) fn of(call: &Call<'a>) -> Result<Self, KernelError> {
        let x = call.operand(ID, "x")?;
        let dtype = x.data.dtype();
        if !DTYPES.contains(&dtype) {
            return Err(KernelError::Unsupported {
                kernel: ID,
                found: format!("x of {dtype}"),
                wanted: "float32, float16 or bfloat16".into(),
            });
        }
        let &[batch, rows, cols] = x.shape else {
            return Err(malformed(format!("`x` is {:?}, not [batch, rows, in]", x.shape)));
        };
        let number = |name| call.param(ID, name).map(|number| number as usize);
        let head_dim = number("head_dim")?;
        let projection = |name: &str, heads: usize| {
            let packed = Packed::of(ID, call, name, cols, dtype)?;
            if head_dim == 0 || packed.rows != heads * head_dim {
                let what =
                    format!("`{name}_w` has {} rows for {heads} heads of {head_dim}", packed.rows);
                return Err(malformed(what));
            }
            Ok(packed)
        };
        let (heads, kv_heads) = (number("heads")?, number("kv_heads")?);
        let [q, k, v] = [("q", heads), ("k", kv_heads), ("v", kv_heads)]
            .map(|(name, heads)| projection(name, heads));
        Ok(Self {
            x,
            dtype,
            batch,
            rows,
            projections: [q?, k?, v?],
            norms: Norms::of(call, head_dim, dtype)?,
            head_dim,
            rope: Rope::of(call, head_dim)?,
        })
    }

    /// Heads of queries, keys and values.
    pub(super) fn heads(&self) -> [usize; 3] {
        self.projections.map(|of| of.rows / self.head_dim)
    }

    /// Multiply-adds of the projections.
    pub(super) fn work(&self) -> usize {
        let width: usize = self.projections.iter().map(|of| of.rows).sum();
        self.batch * self.rows * width * self.projections[0].cols
    }

    /// The class of the call.
    pub(super) fn class(&self) -> &'static str {
        gated::class(self.batch * self.rows, self.projections.map(|of| of.bits))
    }
}

impl<'a> Norms<'a> {
    fn of(call: &Call<'a>, head_dim: usize, dtype: Dtype) -> Result<Option<Self>, KernelError> {
        let weights = match (call.find("q_norm"), call.find("k_norm")) {
            (None, None) => return Ok(None),
            (Some(q), Some(k)) => [q, k],
            _ => return Err(malformed("one of `q_norm` and `k_norm` is missing".into())),
        };
        if weights.iter().any(|of| of.shape != [head_dim] || of.data.dtype() != dtype) {
            return Err(malformed(format!("norms are not {dtype} [{head_dim}]")));
        }
        Ok(Some(Self { weights, eps: call.param(ID, "eps")? as f32 }))
    }
}

impl Rope {
    fn of(call: &Call<'_>, head_dim: usize) -> Result<Self, KernelError> {
        let dims = call.param(ID, "dims")? as usize;
        if dims == 0 || !dims.is_multiple_of(2) || dims > head_dim {
            return Err(malformed(format!("{dims} rotated values of a head of {head_dim}")));
        }
        Ok(Self {
            theta: call.param(ID, "theta")? as f32,
            dims,
            traditional: call.param(ID, "traditional")? != 0.0,
            scale: call.param(ID, "rope_scale")? as f32,
            offset: call.param(ID, "offset")? as i32,
        })
    }

    /// The values that make pair `index`.
    #[inline(always)]
    pub(super) fn pair(&self, index: usize) -> (usize, usize) {
        if self.traditional { (2 * index, 2 * index + 1) } else { (index, index + self.dims / 2) }
    }
}

pub(super) fn malformed(what: String) -> KernelError {
    KernelError::Malformed { kernel: ID, what }
}
