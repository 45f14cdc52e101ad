//! llama, from its descriptor.

use super::{Source, fill, literal};
use crate::config::{ConfigFile, LayerKind};
use crate::error::EngineError;
use crate::model::universal::archs::llama;
use crate::model::universal::spec::{Drop, FeedForward, Head, LayerSpec, MlpSpec, Spec};

/// The network of a llama config, without the head of the file.
pub(super) fn network(file: &ConfigFile) -> Result<Source, EngineError> {
    let spec = llama::spec(file)?;
    let mut text = literal::dims(&spec.dims);
    let Some(rope) = spec.layers.first().and_then(|layer| layer.attention.rope.as_ref()) else {
        return Err(file.error("llama has a rope in every layer"));
    };
    text += &literal::rope(file, "ROPE", rope)?;
    text += &body(&spec);
    for (i, spec_of_layer) in spec.layers.iter().enumerate() {
        text += &layer(file, &spec, i, spec_of_layer)?;
    }
    let load = "|_, weights, _| Ok(Box::new(Unrolled::load(weights)?))";
    Ok(Source { parts: vec!["join", "split", "turn"], load, text })
}

fn body(spec: &Spec) -> String {
    let each = |line: fn(usize, &LayerSpec) -> String| -> String {
        spec.layers.iter().enumerate().map(|(i, layer)| line(i, layer)).collect()
    };
    let window = spec.window.unwrap_or(0);
    let first = |kind| spec.layers.iter().position(|layer| layer.kind == kind);
    let mask = |name, kind, window: String| match first(kind) {
        Some(at) => format!("let {name} = caches[{at}].mask(h.dim(1), {window})?;"),
        None => String::new(),
    };
    let masks = mask("full", LayerKind::Full, "None".to_owned())
        + &mask("sliding", LayerKind::Sliding, format!("Some({window})"));
    let own_head = matches!(spec.head, Head::Own { .. });
    let table = format!("[{}, {}]", literal::size(spec.dims.vocab_size), spec.dims.hidden_size);
    let loads_head = format!(r#"lm_head: weights.linear("lm_head", {table}, false)?,"#);
    fill(
        BODY,
        &[
            ("fields", each(|i, _| format!("layer_{i}: Layer{i},"))),
            ("loads", each(|i, _| format!("layer_{i}: Layer{i}::load(weights)?,"))),
            (
                "calls",
                each(|i, layer| {
                    let mask = mask_name(layer.kind);
                    format!("let h = self.layer_{i}.forward(&h, &{mask}, &mut caches[{i}], sink)?;")
                }),
            ),
            ("masks", masks),
            (
                "caches",
                each(|_, layer| match layer.kind {
                    LayerKind::Full => {
                        "KvCache::Plain(crate::cache::PlainCache::new()),".to_owned()
                    }
                    LayerKind::Sliding => {
                        "KvCache::Rotating(crate::cache::RotatingCache::new(@window@, 0)),"
                            .to_owned()
                    }
                }),
            ),
            ("window", window.to_string()),
            ("drops", drops(&spec.drops)),
            ("head_field", if own_head { "lm_head: Linear,".to_owned() } else { String::new() }),
            ("head_load", if own_head { loads_head } else { String::new() }),
            (
                "head",
                if own_head { "self.lm_head.forward" } else { "self.embed_tokens.as_linear" }
                    .to_owned(),
            ),
            ("table", table),
            ("hidden", spec.dims.hidden_size.to_string()),
            ("eps", literal::number(spec.dims.eps)),
        ],
    )
}

fn mask_name(kind: LayerKind) -> &'static str {
    if kind == LayerKind::Full { "full" } else { "sliding" }
}

fn drops(drops: &[Drop]) -> String {
    let tests: Vec<String> = drops
        .iter()
        .map(|drop| match drop {
            Drop::Name(name) => format!("name == {name:?}"),
            Drop::Prefix(start) => format!("name.starts_with({start:?})"),
            Drop::Contains(part) => format!("name.contains({part:?})"),
            Drop::Suffix(end) => format!("name.ends_with({end:?})"),
        })
        .collect();
    format!("weights.discard(|name| {});", tests.join(" || "))
}

fn layer(
    file: &ConfigFile,
    spec: &Spec,
    i: usize,
    layer: &LayerSpec,
) -> Result<String, EngineError> {
    let (dims, attention) = (&spec.dims, &layer.attention);
    let FeedForward::Dense(MlpSpec { width, bias, .. }) = &layer.feed_forward else {
        return Err(file.error("llama has no experts"));
    };
    let rotated = attention.rope.as_ref().map_or(0, |rope| rope.rotated(dims.head_dim));
    Ok(fill(
        LAYER,
        &[
            ("i", i.to_string()),
            (
                "sees",
                if layer.kind == LayerKind::Full { "everything" } else { "a window" }.to_owned(),
            ),
            ("hidden", dims.hidden_size.to_string()),
            ("eps", literal::number(dims.eps)),
            ("queries", (dims.heads * dims.head_dim).to_string()),
            ("keys", (dims.kv_heads * dims.head_dim).to_string()),
            ("inner", literal::size(*width)),
            ("input_bias", attention.input_bias.to_string()),
            ("output_bias", attention.output_bias.to_string()),
            ("mlp_bias", bias.to_string()),
            ("rotated", rotated.to_string()),
            ("heads", dims.heads.to_string()),
            ("kv_heads", dims.kv_heads.to_string()),
            ("scale", format!("{:?}", attention.scale as f32)),
        ],
    ))
}

const BODY: &str = r#"
struct Unrolled {
    embed_tokens: Embedding,
    @fields@
    norm: RmsNorm,
    @head_field@
}

impl Unrolled {
    fn load(weights: &mut Weights) -> Result<Self, EngineError> {
        @drops@
        Ok(Self {
            embed_tokens: weights.embedding("model.embed_tokens", @table@)?,
            @loads@
            norm: weights.norm("model.norm", @hidden@, @eps@)?,
            @head_load@
        })
    }
}

impl Network for Unrolled {
    fn forward(&self, ids: &Array, caches: &mut [KvCache], sink: &mut TapSink) -> Result<Array, EngineError> {
        let h = self.embed_tokens.forward(ids)?;
        sink.tap("embed", &h);
        sink.tap("generated", &h);
        @masks@
        @calls@
        sink.enter(None);
        let h = self.norm.forward(&h)?;
        sink.tap("norm", &h);
        let logits = @head@(&h)?;
        sink.tap("logits", &logits);
        Ok(logits)
    }

    fn new_caches(&self) -> Vec<KvCache> {
        vec![@caches@]
    }

    fn dims(&self) -> &Dims {
        &DIMS
    }

    fn dtype(&self) -> Dtype {
        self.embed_tokens.dtype()
    }
}
"#;

const LAYER: &str = r#"
/// Layer @i@, which sees @sees@.
struct Layer@i@ {
    input_layernorm: RmsNorm,
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    rope: Rope,
    o_proj: Linear,
    post_attention_layernorm: RmsNorm,
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

impl Layer@i@ {
    fn load(weights: &mut Weights) -> Result<Self, EngineError> {
        Ok(Self {
            input_layernorm: weights.norm("model.layers.@i@.input_layernorm", @hidden@, @eps@)?,
            q_proj: weights.linear("model.layers.@i@.self_attn.q_proj", [@queries@, @hidden@], @input_bias@)?,
            k_proj: weights.linear("model.layers.@i@.self_attn.k_proj", [@keys@, @hidden@], @input_bias@)?,
            v_proj: weights.linear("model.layers.@i@.self_attn.v_proj", [@keys@, @hidden@], @input_bias@)?,
            rope: Rope::new(&ROPE, @rotated@)?,
            o_proj: weights.linear("model.layers.@i@.self_attn.o_proj", [@hidden@, @queries@], @output_bias@)?,
            post_attention_layernorm: weights.norm("model.layers.@i@.post_attention_layernorm", @hidden@, @eps@)?,
            gate_proj: weights.linear("model.layers.@i@.mlp.gate_proj", [@inner@, @hidden@], @mlp_bias@)?,
            up_proj: weights.linear("model.layers.@i@.mlp.up_proj", [@inner@, @hidden@], @mlp_bias@)?,
            down_proj: weights.linear("model.layers.@i@.mlp.down_proj", [@hidden@, @inner@], @mlp_bias@)?,
        })
    }

    fn forward(&self, x: &Array, mask: &Mask, cache: &mut KvCache, sink: &mut TapSink) -> Result<Array, EngineError> {
        sink.enter(Some(@i@));
        let normed = self.input_layernorm.forward(x)?;
        sink.tap("input_layernorm", &normed);
        let queries = self.q_proj.forward(&normed)?;
        let keys = self.k_proj.forward(&normed)?;
        let values = self.v_proj.forward(&normed)?;
        sink.tap("self_attn.q", &queries);
        sink.tap("self_attn.k", &keys);
        sink.tap("self_attn.v", &values);
        let at = cache.position();
        let queries = self.rope.forward(&turn(&split(&queries, @heads@)?)?, at)?;
        let keys = self.rope.forward(&turn(&split(&keys, @kv_heads@)?)?, at)?;
        sink.tap("self_attn.q_rope", &queries);
        sink.tap("self_attn.k_rope", &keys);
        let rows = cache.update(&keys, &turn(&split(&values, @kv_heads@)?)?)?;
        let mixed = attend(&queries, &rows, @scale@, mask)?;
        sink.tap("self_attn.sdpa", &mixed);
        let r = self.o_proj.forward(&join(&mixed)?)?;
        sink.tap("self_attn.o", &r);
        let h = ops::add(x, &r)?;

        let normed = self.post_attention_layernorm.forward(&h)?;
        sink.tap("post_attention_layernorm", &normed);
        let gate = self.gate_proj.forward(&normed)?;
        let up = self.up_proj.forward(&normed)?;
        sink.tap("mlp.gate", &gate);
        sink.tap("mlp.up", &up);
        let act = ops::multiply(&ops::silu(&gate)?, &up)?;
        sink.tap("mlp.act", &act);
        let down = self.down_proj.forward(&act)?;
        sink.tap("mlp.down", &down);
        let out = ops::add(&h, &down)?;
        sink.tap("out", &out);
        Ok(out)
    }
}
"#;
