//! Faults of attention.

use mlx_rs::{Array, Dtype};

use super::{Fault, is, planted};
use crate::array::to_host;
use crate::attention::attend;
use crate::cache::Rows;
use crate::error::EngineError;
use crate::ops::{self, Mask};

/// The mask under a fault; `newest` is the column of the newest of `keys` keys.
pub(crate) fn mask(
    fault: Option<Fault>,
    mask: &Mask,
    [queries, keys, newest]: [i32; 3],
) -> Result<Mask, EngineError> {
    if is(fault, Fault::DropLastKey) {
        return without_newest(mask, queries, keys, newest);
    }
    Ok(mask.clone())
}

/// The softmax of scores, in f32 inside, under a fault.
pub(crate) fn softmax(fault: Option<Fault>, scores: &Array) -> Result<Array, EngineError> {
    if is(fault, Fault::SoftmaxDtype) {
        let rounded = ops::softmax(&ops::cast(scores, Dtype::Bfloat16)?, false)?;
        return ops::cast(&rounded, scores.dtype());
    }
    ops::softmax(scores, true)
}

/// Attention of queries on rows under a fault; `newest` is the column of the newest key.
pub(crate) fn attention(
    fault: Option<Fault>,
    queries: &Array,
    rows: &Rows,
    scale: f32,
    mask: &Mask,
    newest: i32,
) -> Result<Array, EngineError> {
    if is(fault, Fault::DropLastKey) {
        let mask = without_newest(mask, queries.dim(2), rows.positions(), newest)?;
        return attend(queries, rows, scale, &mask);
    }
    match rows {
        Rows::Plain { keys, values }
            if is(fault, Fault::SoftmaxDtype) || is(fault, Fault::ScaleAfter) =>
        {
            unfused_attention(fault, [queries, keys, values], scale, mask)
        }
        _ => planted::mixed(fault, attend(queries, rows, scale, mask)?),
    }
}

/// Who may attend to whom, row-major `[queries, keys]`.
fn allowed_pairs(mask: &Mask, queries: i32, keys: i32) -> Result<Vec<bool>, EngineError> {
    let pairs = (0..queries).flat_map(|query| (0..keys).map(move |key| (query, key)));
    Ok(match mask {
        Mask::Full => vec![true; (queries * keys) as usize],
        Mask::Causal => pairs.map(|(query, key)| key <= keys - queries + query).collect(),
        Mask::Allowed(array) => {
            let shape = [queries, keys];
            let array = crate::error::op("broadcast_to", mlx_rs::ops::broadcast_to(array, &shape))?;
            to_host(&array)?.bytes().iter().map(|&may| may != 0).collect()
        }
    })
}

fn without_newest(mask: &Mask, queries: i32, keys: i32, newest: i32) -> Result<Mask, EngineError> {
    let mut allowed = allowed_pairs(mask, queries, keys)?;
    for (query, row) in allowed.chunks_mut(keys as usize).enumerate() {
        // Several new rows lie in order at the end, each query's own key on the diagonal.
        let column = (newest + 1 - queries) as usize + query;
        if row.iter().filter(|&&may| may).count() > 1 {
            row[column] = false;
        }
    }
    Ok(Mask::Allowed(Array::from_slice(&allowed, &[queries, keys])))
}

/// MLX's unfused attention, with the scale or the softmax where a fault has it.
fn unfused_attention(
    fault: Option<Fault>,
    [q, k, v]: [&Array; 3],
    scale: f32,
    mask: &Mask,
) -> Result<Array, EngineError> {
    let (heads, queries, keys) = (q.dim(1), q.dim(2), k.dim(2));
    let groups = [q.dim(0), k.dim(1), heads / k.dim(1), queries, q.dim(3)];
    let after = is(fault, Fault::ScaleAfter);
    let scaled = |a: &Array, here: bool| {
        let factor = if here { f64::from(scale) } else { 1.0 };
        ops::multiply(&ops::scalar(factor, a.dtype())?, a)
    };
    let q = ops::reshape(&scaled(q, !after)?, &groups)?;
    let (k, v) = (ops::expand_dims(k, 2)?, ops::expand_dims(v, 2)?);
    let scores = ops::matmul(&q, &ops::transpose(&k, &[0, 1, 2, 4, 3])?)?;
    let scores = scaled(&scores, after)?;
    let allowed = allowed_pairs(mask, queries, keys)?;
    let allowed = Array::from_slice(&allowed, &[queries, keys]);
    let never = ops::scalar(f64::NEG_INFINITY, scores.dtype())?;
    let scores = ops::select(&allowed, &scores, &never)?;
    let mixed = ops::matmul(&softmax(fault, &scores)?, &v)?;
    ops::reshape(&mixed, &[groups[0], heads, queries, v.dim(-1)])
}
