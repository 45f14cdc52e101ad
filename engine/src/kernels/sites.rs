//! Where models offer calls to kernels. Each function answers none where the composed ops are to be used.

use mlx_parity_kernels::Params;
use mlx_rs::Array;

use super::launch::{offer, unfit, wanted};
use crate::error::EngineError;
use crate::nn::{Linear, PackedWeight, RmsNorm, Rope};
use crate::ops::Mask;
use crate::ops::packed::{Mode, Packed};

/// The kernels of `silu(gate(x)) * up(x)`, in the order they are asked.
const SWIGLU: [&str; 2] = ["fused_swiglu", "fused_swiglu_f32"];
const MLP: &str = "fused_mlp";
const GEGLU: &str = "fused_geglu";
const DECODE_SDPA: &str = "fused_decode_sdpa";
const FLASH: &str = "flash_attention";
const QKV_ROPE: &str = "fused_qkv_rope";

const OTHER_WEIGHTS: &str = "a plain weight, or one with a bias or an adapter";
const PACKED_WEIGHTS: &str = "affine-quantized weights alone";

/// `silu(gate(x)) * up(x)` of x `[.., in]`.
pub(crate) fn swiglu(x: &Array, gate: &Linear, up: &Linear) -> Result<Option<Array>, EngineError> {
    for id in SWIGLU {
        if !wanted(id) {
            continue;
        }
        let (Some(gate), Some(up)) = (gate.packed(), up.packed()) else {
            return unfit(id, OTHER_WEIGHTS, PACKED_WEIGHTS);
        };
        let operands = [
            ("x", x),
            ("gate_w", &gate.words),
            ("gate_scales", &gate.scales),
            ("gate_biases", &gate.biases),
            ("up_w", &up.words),
            ("up_scales", &up.scales),
            ("up_biases", &up.biases),
        ];
        let params = params(&[("gate", &gate), ("up", &up)]);
        if let Some(out) = first(offer(id, rows(x), &operands, params)?) {
            return Ok(Some(out));
        }
    }
    Ok(None)
}

/// Whether [`mlp`] would look at a call.
pub(crate) fn mlp_wanted() -> bool {
    wanted(MLP)
}

/// `residual + down(silu(gate(x)) * up(x))` of x and a residual `[.., in]`.
pub(crate) fn mlp(
    x: &Array,
    residual: &Array,
    [gate, up, down]: [&Linear; 3],
) -> Result<Option<Array>, EngineError> {
    if !wanted(MLP) {
        return Ok(None);
    }
    let (Some(gate), Some(up), Some(down)) = (gate.packed(), up.packed(), down.packed()) else {
        return unfit(MLP, OTHER_WEIGHTS, PACKED_WEIGHTS);
    };
    let operands = [
        ("x", x),
        ("gate_w", &gate.words),
        ("gate_scales", &gate.scales),
        ("gate_biases", &gate.biases),
        ("up_w", &up.words),
        ("up_scales", &up.scales),
        ("up_biases", &up.biases),
        ("down_w", &down.words),
        ("down_scales", &down.scales),
        ("down_biases", &down.biases),
        ("residual", residual),
    ];
    let params = params(&[("gate", &gate), ("up", &up), ("down", &down)]);
    Ok(first(offer(MLP, rows(x), &operands, params)?))
}

/// `gelu_approx(gate) * up` of two arrays of one shape.
pub(crate) fn geglu(gate: &Array, up: &Array) -> Result<Option<Array>, EngineError> {
    if !wanted(GEGLU) {
        return Ok(None);
    }
    let operands = [("gate", gate), ("up", up)];
    Ok(first(offer(GEGLU, rows(gate), &operands, Params::default())?))
}

/// Attention of one query a head on packed keys and values.
pub(crate) fn decode_sdpa(
    queries: &Array,
    keys: &Packed,
    values: &Packed,
    scale: f32,
    mask: &Mask,
) -> Result<Option<Array>, EngineError> {
    if queries.dim(2) != 1 || !wanted(DECODE_SDPA) {
        return Ok(None);
    }
    if matches!(mask, Mask::Allowed(_)) {
        return unfit(DECODE_SDPA, "a mask of its own", "all keys visible");
    }
    let (Mode::Affine(packing), Some(key_biases), Some(value_biases), true) =
        (keys.mode, &keys.biases, &values.biases, keys.mode == values.mode)
    else {
        return unfit(DECODE_SDPA, "rows packed otherwise", "keys and values packed alike, affine");
    };
    let operands = [
        ("queries", queries),
        ("keys_w", &keys.words),
        ("keys_scales", &keys.scales),
        ("keys_biases", key_biases),
        ("values_w", &values.words),
        ("values_scales", &values.scales),
        ("values_biases", value_biases),
    ];
    let params = Params(vec![
        ("scale", f64::from(scale)),
        ("bits", f64::from(packing.bits)),
        ("group", f64::from(packing.group_size)),
    ]);
    Ok(first(offer(DECODE_SDPA, 1, &operands, params)?))
}

/// Attention of several queries a head on plain keys and values.
pub(crate) fn flash(
    queries: &Array,
    keys: &Array,
    values: &Array,
    scale: f32,
    mask: &Mask,
) -> Result<Option<Array>, EngineError> {
    if !wanted(FLASH) {
        return Ok(None);
    }
    if matches!(mask, Mask::Allowed(_)) {
        return unfit(FLASH, "a mask of its own", "a causal mask or none");
    }
    let operands = [("queries", queries), ("keys", keys), ("values", values)];
    let causal = f64::from(u8::from(matches!(mask, Mask::Causal)));
    let params = Params(vec![
        ("scale", f64::from(scale)),
        ("causal", causal),
        ("window", 0.0),
        ("want_lse", 0.0),
    ]);
    Ok(first(offer(FLASH, queries.dim(2) as usize, &operands, params)?))
}

/// What queries, keys and values are made by.
pub(crate) struct QkvRope<'a> {
    pub(crate) projections: [&'a Linear; 3],
    /// Of queries and of keys, over each head.
    pub(crate) norms: Option<[&'a RmsNorm; 2]>,
    pub(crate) rope: &'a Rope,
    pub(crate) heads: i32,
    pub(crate) kv_heads: i32,
    pub(crate) head_dim: i32,
}

/// What [`qkv_rope`] says where queries, keys and values are made otherwise.
pub(crate) fn no_qkv_rope<T>(found: &str) -> Result<Option<T>, EngineError> {
    unfit(QKV_ROPE, found, "separate projections, with norms over each head or none")
}

/// Whether [`qkv_rope`] would look at a call.
pub(crate) fn qkv_rope_wanted() -> bool {
    wanted(QKV_ROPE)
}

/// Queries, keys and values `[batch, heads, n, head_dim]` of x `[batch, n, in]`, whose first row stands at
/// `offset`, normed and rotated.
pub(crate) fn qkv_rope(
    x: &Array,
    offset: i32,
    of: &QkvRope<'_>,
) -> Result<Option<[Array; 3]>, EngineError> {
    let Some(rotation) = of.rope.plain_rotation() else {
        return unfit(QKV_ROPE, "a scaled rotation or none", "one by the periods of a base");
    };
    let [Some(q), Some(k), Some(v)] = of.projections.map(Linear::packed) else {
        return unfit(QKV_ROPE, OTHER_WEIGHTS, PACKED_WEIGHTS);
    };
    let mut operands = vec![
        ("x", x),
        ("q_w", &q.words),
        ("q_scales", &q.scales),
        ("q_biases", &q.biases),
        ("k_w", &k.words),
        ("k_scales", &k.scales),
        ("k_biases", &k.biases),
        ("v_w", &v.words),
        ("v_scales", &v.scales),
        ("v_biases", &v.biases),
    ];
    let mut params = vec![
        ("q_bits", f64::from(q.packing.bits)),
        ("q_group", f64::from(q.packing.group_size)),
        ("k_bits", f64::from(k.packing.bits)),
        ("k_group", f64::from(k.packing.group_size)),
        ("v_bits", f64::from(v.packing.bits)),
        ("v_group", f64::from(v.packing.group_size)),
        ("heads", f64::from(of.heads)),
        ("kv_heads", f64::from(of.kv_heads)),
        ("head_dim", f64::from(of.head_dim)),
        ("theta", f64::from(rotation.base)),
        ("dims", f64::from(rotation.dims)),
        ("traditional", f64::from(u8::from(rotation.traditional))),
        ("rope_scale", f64::from(rotation.scale)),
        ("offset", f64::from(offset)),
    ];
    if let Some(norms) = of.norms {
        let [(q_norm, eps), (k_norm, _)] = norms.map(RmsNorm::weight_and_eps);
        operands.extend([("q_norm", q_norm), ("k_norm", k_norm)]);
        params.push(("eps", f64::from(eps)));
    }
    let results = offer(QKV_ROPE, rows(x), &operands, Params(params))?;
    Ok(results.and_then(|results| results.try_into().ok()))
}

/// Rows of an array whose last axis they are.
fn rows(x: &Array) -> usize {
    x.shape().iter().rev().skip(1).map(|&extent| extent as usize).product()
}

fn first(results: Option<Vec<Array>>) -> Option<Array> {
    results?.into_iter().next()
}

/// `NAME_bits` and `NAME_group` of each weight.
fn params(weights: &[(&str, &PackedWeight)]) -> Params {
    let names = |name: &str| match name {
        "gate" => ("gate_bits", "gate_group"),
        "up" => ("up_bits", "up_group"),
        _ => ("down_bits", "down_group"),
    };
    let both = weights.iter().flat_map(|(name, weight)| {
        let (bits, group) = names(name);
        [(bits, f64::from(weight.packing.bits)), (group, f64::from(weight.packing.group_size))]
    });
    Params(both.collect())
}
