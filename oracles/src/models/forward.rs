//! One forward for every plan.

use super::Tap;
use super::plan::{Activation, BlockNorms, LayerPlan, Plan};
use super::weights::{LayerWeights, Linear, Weights};
use crate::error::OracleError;
use crate::ops::{
    Attention, CausalAlignment, Gelu, Mask, NormWeight, Offsets, Rope, add, concat, gelu, mul,
    rms_norm, rope, sdpa, silu, take, times_rows, value_only,
};
use crate::tensor::{IntTensor, Tensor64};

/// Keys and values of the tokens seen so far, every layer's in full.
#[derive(Clone, Debug)]
pub struct State64 {
    tokens: usize,
    /// Keys and values of each layer, `[1, kv_heads, tokens, head_dim]`.
    layers: Vec<Option<(Tensor64, Tensor64)>>,
}

impl State64 {
    /// Nothing seen yet.
    pub fn new(layers: usize) -> Self {
        Self { tokens: 0, layers: vec![None; layers] }
    }

    /// Tokens seen.
    pub fn tokens(&self) -> usize {
        self.tokens
    }
}

type Found = Result<Tensor64, OracleError>;

pub(super) fn advance(
    plan: &Plan,
    weights: &Weights,
    state: &mut State64,
    ids: &[u32],
    tap: Tap,
) -> Found {
    let ids: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
    let ids = IntTensor::new([1, ids.len()], ids)?;
    let mut h = take(&weights.embed_tokens, &ids, 0)?.value.map(|v| v * plan.embedding_scale);
    tap("embed", &h);
    for (i, (layer, weights)) in plan.layers.iter().zip(&weights.layers).enumerate() {
        let mut tap = |name: &str, value: &Tensor64| tap(&format!("layers.{i}.{name}"), value);
        let mut block = Block { plan, layer, weights, tap: &mut tap };
        h = block.forward(&h, state.tokens, &mut state.layers[i])?;
    }
    state.tokens += ids.len();
    let h = norm(&h, &weights.norm, plan)?;
    tap("norm", &h);
    let head = weights.lm_head.as_ref().unwrap_or(&weights.embed_tokens);
    let logits = times_rows("lm_head", &h, head, value_only)?.value;
    tap("logits", &logits);
    logits.reshape([ids.len(), plan.vocab_size])
}

fn norm(x: &Tensor64, weight: &Tensor64, plan: &Plan) -> Found {
    let weight = match plan.block_norms {
        BlockNorms::Pre => NormWeight::Plain(weight),
        BlockNorms::Sandwich => NormWeight::OnePlus(weight),
    };
    Ok(rms_norm(x, weight, plan.eps)?.value)
}

fn linear(x: &Tensor64, linear: &Linear) -> Found {
    let product = times_rows("linear", x, &linear.weight, value_only)?.value;
    match &linear.bias {
        Some(bias) => Ok(add(&product, bias)?.value),
        None => Ok(product),
    }
}

struct Block<'a> {
    plan: &'a Plan,
    layer: &'a LayerPlan,
    weights: &'a LayerWeights,
    tap: Tap<'a>,
}

impl Block<'_> {
    fn forward(
        &mut self,
        x: &Tensor64,
        at: usize,
        cache: &mut Option<(Tensor64, Tensor64)>,
    ) -> Found {
        let normed = norm(x, &self.weights.input_layernorm, self.plan)?;
        (self.tap)("input_layernorm", &normed);
        let mixed = self.attention(&normed, at, cache)?;
        let after = &self.weights.post_attention_layernorm;
        let out = match &self.weights.feedforward_layernorms {
            None => {
                let h = add(x, &mixed)?.value;
                let normed = norm(&h, after, self.plan)?;
                (self.tap)("post_attention_layernorm", &normed);
                add(&h, &self.mlp(&normed)?)?.value
            }
            Some([before_mlp, after_mlp]) => {
                let mixed = norm(&mixed, after, self.plan)?;
                (self.tap)("post_attention_layernorm", &mixed);
                let h = add(x, &mixed)?.value;
                let normed = norm(&h, before_mlp, self.plan)?;
                (self.tap)("pre_feedforward_layernorm", &normed);
                let fed = norm(&self.mlp(&normed)?, after_mlp, self.plan)?;
                (self.tap)("post_feedforward_layernorm", &fed);
                add(&h, &fed)?.value
            }
        };
        (self.tap)("out", &out);
        Ok(out)
    }

    fn attention(
        &mut self,
        x: &Tensor64,
        at: usize,
        cache: &mut Option<(Tensor64, Tensor64)>,
    ) -> Found {
        let weights = self.weights;
        let (q, k, v) =
            (linear(x, &weights.q_proj)?, linear(x, &weights.k_proj)?, linear(x, &weights.v_proj)?);
        for (name, value) in [("self_attn.q", &q), ("self_attn.k", &k), ("self_attn.v", &v)] {
            (self.tap)(name, value);
        }
        let [q_norm, k_norm] = match &weights.head_norms {
            Some([q, k]) => [Some(q), Some(k)],
            None => [None, None],
        };
        let q = self.heads(q, self.plan.heads, q_norm, "self_attn.q_norm")?;
        let k = self.heads(k, self.plan.kv_heads, k_norm, "self_attn.k_norm")?;
        let v = self.heads(v, self.plan.kv_heads, None, "")?;
        let (q, k) = (self.rotate(&q, at)?, self.rotate(&k, at)?);
        (self.tap)("self_attn.q_rope", &q);
        (self.tap)("self_attn.k_rope", &k);
        let (k, v) = match cache.take() {
            Some((keys, values)) => {
                (concat(&[&keys, &k], 2)?.value, concat(&[&values, &v], 2)?.value)
            }
            None => (k, v),
        };
        let mask = Mask::Causal(CausalAlignment::BottomRight);
        let attention = Attention {
            window: self.layer.window,
            ..Attention::new(self.plan.attention_scale, mask)
        };
        let mixed = sdpa(&q, &k, &v, &attention)?.value;
        *cache = Some((k, v));
        (self.tap)("self_attn.sdpa", &mixed);
        let joined =
            mixed.permute(&[0, 2, 1, 3]).reshape([1, x.shape()[1], q.len() / x.shape()[1]])?;
        let out = linear(&joined, &weights.o_proj)?;
        (self.tap)("self_attn.o", &out);
        Ok(out)
    }

    /// `[1, tokens, heads · d]` to `[1, heads, tokens, d]`, each head normed where there is a
    /// weight.
    fn heads(&mut self, x: Tensor64, heads: usize, weight: Option<&Tensor64>, name: &str) -> Found {
        let tokens = x.shape()[1];
        let mut x = x.reshape([1, tokens, heads, self.plan.head_dim])?;
        if let Some(weight) = weight {
            x = norm(&x, weight, self.plan)?;
        }
        // The engine taps Gemma's normed heads transposed and Qwen's before, as the references
        // compute them.
        let sandwich = self.plan.block_norms == BlockNorms::Sandwich;
        let turned = x.permute(&[0, 2, 1, 3]);
        if weight.is_some() {
            (self.tap)(name, if sandwich { &turned } else { &x });
        }
        Ok(turned)
    }

    fn rotate(&self, x: &Tensor64, at: usize) -> Found {
        let plan = &self.layer.rope;
        let dims = self.plan.head_dim;
        let end = at + x.shape()[2];
        let table = plan.scaling.table(dims, plan.base, self.plan.max_position, end)?;
        let offsets = Offsets::One(at as i64);
        Ok(rope(x, &Rope { dims, traditional: plan.traditional, table: &table, offsets })?.value)
    }

    fn mlp(&mut self, x: &Tensor64) -> Found {
        let gate = linear(x, &self.weights.gate_proj)?;
        let up = linear(x, &self.weights.up_proj)?;
        (self.tap)("mlp.gate", &gate);
        (self.tap)("mlp.up", &up);
        let gate = match self.plan.activation {
            Activation::Silu => silu(&gate),
            Activation::GeluTanh => gelu(&gate, Gelu::Tanh),
        };
        let act = mul(&gate.value, &up)?.value;
        (self.tap)("mlp.act", &act);
        let down = linear(&act, &self.weights.down_proj)?;
        (self.tap)("mlp.down", &down);
        Ok(down)
    }
}
