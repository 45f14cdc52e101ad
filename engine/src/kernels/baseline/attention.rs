//! Attention.

use mlx_rs::Array;

use super::Lent;
use crate::cache::causal_mask;
use crate::error::EngineError;
use crate::ops::packed::{self, Mode, Packed};
use crate::ops::{self, Affine, Mask, ScoreMask};

/// `quantized_scaled_dot_product_attention` of `mlx_lm/models/base.py` for one query a head, which sees
/// the last `window` keys and the first `kept`.
pub(super) fn decode_sdpa(of: &Lent<'_>) -> Result<Vec<Array>, EngineError> {
    let queries = of.array("queries")?;
    let packing = Affine { bits: of.integer("bits")?, group_size: of.integer("group")? };
    let packed = |name: &str| {
        let part = |suffix: &str| of.array(&format!("{name}_{suffix}"));
        Ok::<_, EngineError>(Packed {
            words: part("w")?,
            scales: part("scales")?,
            biases: Some(part("biases")?),
            mode: Mode::Affine(packing),
        })
    };
    let (keys, values) = (packed("keys")?, packed("values")?);
    let scale = of.number("scale")? as f32;
    let seen = keys.words.dim(2);
    let (window, kept) = (of.integer_or_zero("window"), of.integer_or_zero("kept"));
    let allowed = (window > 0 && window < seen).then(|| {
        let first = seen - window;
        let may: Vec<bool> = (0..seen).map(|key| key >= first || key < kept).collect();
        Array::from_slice(&may, &[1, seen])
    });
    let mask = allowed.as_ref().map_or(ScoreMask::None, ScoreMask::Array);
    Ok(vec![packed::scaled_dot_product_attention(&queries, &keys, &values, scale, mask)?])
}

/// `mx.fast.scaled_dot_product_attention`, causal at the lower right and under a window where asked.
pub(super) fn flash(of: &Lent<'_>) -> Result<Vec<Array>, EngineError> {
    let [queries, keys, values] = [of.array("queries")?, of.array("keys")?, of.array("values")?];
    let mask = mask(of, queries.dim(2), keys.dim(2))?;
    let scale = of.number("scale")? as f32;
    Ok(vec![ops::scaled_dot_product_attention(&queries, &keys, &values, scale, &mask)?])
}

/// The mask that a call's `causal` and `window` mean.
pub(super) fn mask(of: &Lent<'_>, count: i32, seen: i32) -> Result<Mask, EngineError> {
    let window = of.integer_or_zero("window");
    Ok(match (of.integer_or_zero("causal") != 0, window) {
        (false, _) => Mask::Full,
        (true, 0) => Mask::Causal,
        (true, window) => Mask::Allowed(causal_mask(count, seen - count, Some(window))?),
    })
}
