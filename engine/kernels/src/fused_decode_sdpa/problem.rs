//! A call, checked.

use std::ops::Range;

use mlx_parity_tensor::Dtype;

use super::ID;
use crate::affine;
use crate::call::{Call, Data, View};
use crate::error::KernelError;
use crate::how::How;

/// Groups of a row that the kernel has room for.
pub(super) const MOST_GROUPS: usize = 8;

/// Words of a row that the kernel has room for.
pub(super) const MOST_WORDS: usize = 128;

/// Rows along the last axis of a view `[batch, heads, keys, row]`, whose elements are one behind the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<T> {
    /// The memory, from the first element on.
    pub data: T,
    strides: [usize; 3],
    /// Elements of a row.
    pub len: usize,
}

impl<T> Rows<T> {
    /// Where a row starts.
    #[inline(always)]
    pub(super) fn start(&self, batch: usize, head: usize, key: usize) -> usize {
        batch * self.strides[0] + head * self.strides[1] + key * self.strides[2]
    }

    /// Elements from one key to the next.
    #[inline(always)]
    pub(super) const fn step(&self) -> usize {
        self.strides[2]
    }
}

/// Packed keys or values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cache<'a> {
    /// Codes.
    pub words: Rows<&'a [u32]>,
    /// One for each group of codes.
    pub scales: Rows<Data<'a>>,
    /// One for each group of codes.
    pub biases: Rows<Data<'a>>,
}

/// One call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Problem<'a> {
    /// Sequences.
    pub batch: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Keys there are.
    pub keys: usize,
    /// Elements of a head.
    pub dim: usize,
    /// Bits of a code.
    pub bits: u32,
    /// Codes of a group.
    pub group: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Bound of the scores, `cap · tanh(score / cap)`; none at 0.
    pub softcap: f32,
    /// The last keys that are visible; all at 0.
    pub window: usize,
    /// The first keys that are visible whatever the window.
    pub kept: usize,
    /// `[batch, heads, 1, dim]`.
    pub queries: Rows<Data<'a>>,
    /// `[batch, kv_heads, keys, ..]`.
    pub keys_packed: Cache<'a>,
    /// `[batch, kv_heads, keys, ..]`.
    pub values_packed: Cache<'a>,
}

fn malformed<T>(what: String) -> Result<T, KernelError> {
    Err(KernelError::Malformed { kernel: ID, what })
}

fn unsupported<T>(found: String, wanted: &str) -> Result<T, KernelError> {
    Err(KernelError::Unsupported { kernel: ID, found, wanted: wanted.to_owned() })
}

/// The rows of a view, all of them inside its memory.
fn rows<'a>(name: &str, view: &View<'a>, shape: [usize; 4]) -> Result<Rows<Data<'a>>, KernelError> {
    if view.shape != shape {
        return malformed(format!("`{name}` is {:?}, wanted {shape:?}", view.shape));
    }
    let &[a, b, c, last] = view.strides else {
        return malformed(format!("`{name}` has {} strides", view.strides.len()));
    };
    if last != 1 && shape[3] > 1 {
        return unsupported(format!("`{name}` with a stride of {last} in a row"), "dense rows");
    }
    let strides = [a, b, c];
    let reach: usize = shape.iter().zip(strides).map(|(&extent, by)| (extent - 1) * by).sum();
    if !view.data.is_empty() && reach + shape[3] > view.data.len() {
        return malformed(format!("`{name}` reaches behind its {} elements", view.data.len()));
    }
    Ok(Rows { data: view.data, strides, len: shape[3] })
}

/// A number that counts something; 0 where the call has none.
fn count(call: &Call<'_>, name: &str) -> Result<usize, KernelError> {
    let value = call.params.get(name).unwrap_or(0.0);
    if value < 0.0 || value.fract() != 0.0 {
        return malformed(format!("`{name}` is {value}, not a count"));
    }
    Ok(value as usize)
}

impl<'a> Problem<'a> {
    /// The call, where the kernel takes it.
    ///
    /// # Errors
    /// [`KernelError::Malformed`] where operands do not fit each other, [`KernelError::Unsupported`] for
    /// packings, heads and layouts that the kernel is not made for.
    pub(super) fn of(call: &Call<'a>) -> Result<Self, KernelError> {
        let queries = call.operand(ID, "queries")?;
        let words = call.operand(ID, "keys_w")?;
        let (&[batch, heads, 1, dim], &[_, kv_heads, keys, _]) = (queries.shape, words.shape)
        else {
            return unsupported(
                format!("queries {:?} on keys {:?}", queries.shape, words.shape),
                "[batch, heads, 1, dim] on [batch, kv_heads, keys, words]",
            );
        };
        if batch * heads * kv_heads * keys * dim == 0 || !heads.is_multiple_of(kv_heads) {
            return malformed(format!(
                "{heads} heads on {kv_heads}, {keys} keys of {dim}, batch {batch}"
            ));
        }
        let (bits, group) = packing(call, dim)?;
        let dtype = queries.data.dtype();
        if !super::DTYPES.contains(&dtype) {
            return unsupported(format!("queries of {dtype}"), "float32, float16 or bfloat16");
        }
        let cache = |names| cache(call, names, [batch, kv_heads, keys], dim, (bits, group), dtype);
        Ok(Self {
            batch,
            heads,
            kv_heads,
            keys,
            dim,
            bits,
            group,
            scale: call.param(ID, "scale")? as f32,
            softcap: call.params.get("softcap").unwrap_or(0.0) as f32,
            window: count(call, "window")?,
            kept: count(call, "kept")?,
            queries: rows("queries", &queries, [batch, heads, 1, dim])?,
            keys_packed: cache(["keys_w", "keys_scales", "keys_biases"])?,
            values_packed: cache(["values_w", "values_scales", "values_biases"])?,
        })
    }

    /// The keys that are visible, in order.
    pub(super) fn visible(&self, how: How) -> Vec<Range<usize>> {
        let mut window = self.window;
        if window > 0 && how.is("window_off_by_one") {
            window += 1;
        }
        let recent = if window == 0 { 0 } else { self.keys.saturating_sub(window) };
        let kept = if how.is("kept_ignored") { 0 } else { self.kept.min(recent) };
        let first = usize::from(how.is("first_dropped"));
        let last = self.keys - usize::from(how.is("newest_dropped"));
        let mut ranges = vec![0..kept, recent..last];
        ranges.retain(|range| !range.is_empty());
        if let Some(range) = ranges.first_mut() {
            range.start += first;
        }
        ranges
    }

    /// Groups of a row.
    pub(super) const fn groups(&self) -> usize {
        self.dim / self.group
    }
}

/// Bits and group of a call.
fn packing(call: &Call<'_>, dim: usize) -> Result<(u32, usize), KernelError> {
    let (bits, group) = (call.param(ID, "bits")? as u32, call.param(ID, "group")? as usize);
    if !affine::GROUPS.contains(&group) || !dim.is_multiple_of(group) {
        return malformed(format!("heads of {dim} in groups of {group}"));
    }
    let fits = dim / group <= MOST_GROUPS && affine::words(dim, bits) <= MOST_WORDS;
    if ![4, 8].contains(&bits) || !fits {
        return unsupported(
            format!("heads of {dim} at {bits} bits in groups of {group}"),
            "4 or 8 bits, at most 8 groups and 128 words a head",
        );
    }
    Ok((bits, group))
}

fn cache<'a>(
    call: &Call<'a>,
    [words, scales, biases]: [&str; 3],
    [batch, heads, keys]: [usize; 3],
    dim: usize,
    (bits, group): (u32, usize),
    dtype: Dtype,
) -> Result<Cache<'a>, KernelError> {
    let codes = call.operand(ID, words)?;
    let Data::U32(data) = codes.data else {
        return malformed(format!("`{words}` is {}, not uint32", codes.data.dtype()));
    };
    let Rows { strides, len, .. } =
        rows(words, &codes, [batch, heads, keys, affine::words(dim, bits)])?;
    let factor = |name: &str| {
        let view = call.operand(ID, name)?;
        if view.data.dtype() != dtype {
            return unsupported(
                format!("`{name}` of {}", view.data.dtype()),
                "the dtype of queries",
            );
        }
        rows(name, &view, [batch, heads, keys, dim / group])
    };
    let words = Rows { data, strides, len };
    Ok(Cache { words, scales: factor(scales)?, biases: factor(biases)? })
}
