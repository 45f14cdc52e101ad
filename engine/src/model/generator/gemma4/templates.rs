//! The pieces of an unrolled gemma4.

pub(super) const BODY: &str = r#"
struct Unrolled {
    embed_tokens: Embedding,
    @input_fields@
    @fields@
    norm: RmsNorm,
    @head_field@
}

impl Unrolled {
    fn load(weights: &mut Weights) -> Result<Self, EngineError> {
        Ok(Self {
            embed_tokens: weights.embedding("@root@.embed_tokens", @table@)?,
            @input_loads@
            @loads@
            norm: weights.norm("@root@.norm", @hidden@, @eps@)?,
            @head_load@
        })
    }
}

impl Network for Unrolled {
    fn forward(&self, ids: &Array, caches: &mut [KvCache], sink: &mut TapSink) -> Result<Array, EngineError> {
        let h = self.embed_tokens.forward(ids)?;
        let h = times(&h, @embed_scale@)?;
        sink.tap("embed", &h);
        sink.tap("generated", &h);
        @input_steps@
        @masks@
        @calls@
        sink.enter(None);
        let h = self.norm.forward(&h)?;
        sink.tap("norm", &h);
        let logits = @head@;
        sink.tap("logits", &logits);
        Ok(logits)
    }

    fn new_caches(&self) -> Vec<KvCache> {
        vec![@caches@]
    }

    fn kv_shape(&self, cache: usize) -> [usize; 2] {
        [@shapes@][cache]
    }

    fn dims(&self) -> &Dims {
        &DIMS
    }

    fn dtype(&self) -> Dtype {
        self.embed_tokens.dtype()
    }
}
"#;

pub(super) const INPUTS: &str = r#"        let inputs = self.embed_tokens_per_layer.forward(ids)?;
        sink.tap("embed_tokens_per_layer", &inputs);
        let inputs = unflatten(&times(&inputs, @table_scale@)?, @layers@, @width@)?;
        let projected = self.per_layer_model_projection.forward(&h)?;
        sink.tap("per_layer_model_projection", &projected);
        let projected = unflatten(&times(&projected, @projection_scale@)?, @layers@, @width@)?;
        let projected = self.per_layer_projection_norm.forward(&projected)?;
        sink.tap("per_layer_projection_norm", &projected);
        let inputs = times(&ops::add(&projected, &inputs)?, @input_scale@)?;
"#;

pub(super) const LAYER: &str = r#"
/// Layer @i@, which @doc@.
struct Layer@i@ {
    input_layernorm: RmsNorm,
    q_proj: Linear,
    q_norm: RmsNorm,
    @key_fields@
    rope: Rope,
    o_proj: Linear,
    post_attention_layernorm: RmsNorm,
    pre_feedforward_layernorm: RmsNorm,
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
    post_feedforward_layernorm: RmsNorm,
    @gate_fields@
    /// `layer_scalar`, `[1]`.
    scalar: Array,
}

impl Layer@i@ {
    fn load(weights: &mut Weights) -> Result<Self, EngineError> {
        Ok(Self {
            input_layernorm: weights.norm("@path@.input_layernorm", @hidden@, @eps@)?,
            q_proj: weights.linear("@path@.self_attn.q_proj", [@queries@, @hidden@], false)?,
            q_norm: weights.norm("@path@.self_attn.q_norm", @head_dim@, @eps@)?,
            @key_loads@
            rope: Rope::new(&@rope@, @rotated@)?,
            o_proj: weights.linear("@path@.self_attn.o_proj", [@hidden@, @queries@], false)?,
            post_attention_layernorm: weights.norm("@path@.post_attention_layernorm", @hidden@, @eps@)?,
            pre_feedforward_layernorm: weights.norm("@path@.pre_feedforward_layernorm", @hidden@, @eps@)?,
            gate_proj: weights.linear("@path@.mlp.gate_proj", [@inner@, @hidden@], false)?,
            up_proj: weights.linear("@path@.mlp.up_proj", [@inner@, @hidden@], false)?,
            down_proj: weights.linear("@path@.mlp.down_proj", [@hidden@, @inner@], false)?,
            post_feedforward_layernorm: weights.norm("@path@.post_feedforward_layernorm", @hidden@, @eps@)?,
            @gate_loads@
            scalar: weights.floats("@path@.layer_scalar", &[1])?,
        })
    }

    fn forward(&self, x: &Array, mask: &Mask, @parameter@, @slice@ sink: &mut TapSink) -> Result<@result@, EngineError> {
        sink.enter(Some(@i@));
        @attention@
        @feed_forward@
        @gate@
        let h = ops::multiply(&h, &self.scalar)?;
        sink.tap("out", &h);
        Ok(@out@)
    }
}
"#;

pub(super) const KEY_LOADS: &str = r#"k_proj: weights.linear("@path@.self_attn.k_proj", [@keys@, @hidden@], false)?,
            @value_load@
            k_norm: weights.norm("@path@.self_attn.k_norm", @head_dim@, @eps@)?,"#;

pub(super) const VALUE_LOAD: &str =
    r#"v_proj: weights.linear("@path@.self_attn.v_proj", [@keys@, @hidden@], false)?,"#;

pub(super) const ATTENTION: &str = r#"
        let normed = self.input_layernorm.forward(x)?;
        sink.tap("input_layernorm", &normed);
        let queries = self.q_proj.forward(&normed)?;
        sink.tap("self_attn.q", &queries);
        let queries = self.q_norm.forward(&split(&queries, @heads@)?)?;
        sink.tap("self_attn.q_norm", &queries);
        @own_keys@
        let queries = self.rope.forward(&turn(&queries)?, @at@)?;
        sink.tap("self_attn.q_rope", &queries);
        let mixed = attend(&queries, @rows@, 1.0, mask)?;
        sink.tap("self_attn.sdpa", &mixed);
        let mixed = self.o_proj.forward(&join(&mixed)?)?;
        sink.tap("self_attn.o", &mixed);
        let mixed = self.post_attention_layernorm.forward(&mixed)?;
        sink.tap("post_attention_layernorm", &mixed);
        let h = ops::add(x, &mixed)?;
"#;

pub(super) const KEYS: &str = r#"
        let keys = self.k_proj.forward(&normed)?;
        sink.tap("self_attn.k", &keys);
        let keys = split(&keys, @kv_heads@)?;
        @values_step@
        let at = cache.position();
        let keys = self.k_norm.forward(&keys)?;
        sink.tap("self_attn.k_norm", &keys);
        let keys = self.rope.forward(&turn(&keys)?, at)?;
        sink.tap("self_attn.k_rope", &keys);
        let values = ops::rms_norm(&values, None, @eps32@)?;
        sink.tap("self_attn.v_norm", &values);
        let rows = cache.update(&keys, &turn(&values)?)?;
"#;

pub(super) const VALUES: &str = r#"
        let values = self.v_proj.forward(&normed)?;
        sink.tap("self_attn.v", &values);
        let values = split(&values, @kv_heads@)?;
"#;

pub(super) const VALUES_ARE_KEYS: &str = "let values = keys.clone();";

pub(super) const FEED_FORWARD: &str = r#"
        let normed = self.pre_feedforward_layernorm.forward(&h)?;
        sink.tap("pre_feedforward_layernorm", &normed);
        let gate = self.gate_proj.forward(&normed)?;
        let up = self.up_proj.forward(&normed)?;
        sink.tap("mlp.gate", &gate);
        sink.tap("mlp.up", &up);
        let act = ops::multiply(&ops::gelu_approx(&gate)?, &up)?;
        sink.tap("mlp.act", &act);
        let down = self.down_proj.forward(&act)?;
        sink.tap("mlp.down", &down);
        let out = self.post_feedforward_layernorm.forward(&down)?;
        sink.tap("post_feedforward_layernorm", &out);
        let h = ops::add(&h, &out)?;
"#;

pub(super) const GATE_FIELDS: &str = "per_layer_input_gate: Linear, per_layer_projection: Linear, post_per_layer_input_norm: RmsNorm,";

pub(super) const GATE_LOADS: &str = r#"per_layer_input_gate: weights.linear("@path@.per_layer_input_gate", [@width@, @hidden@], false)?,
            per_layer_projection: weights.linear("@path@.per_layer_projection", [@hidden@, @width@], false)?,
            post_per_layer_input_norm: weights.norm("@path@.post_per_layer_input_norm", @hidden@, @eps@)?,"#;

pub(super) const GATE: &str = r#"
        let gate = self.per_layer_input_gate.forward(&h)?;
        sink.tap("per_layer_input_gate", &gate);
        let gate = ops::multiply(&ops::gelu_approx(&gate)?, slice)?;
        let gate = self.per_layer_projection.forward(&gate)?;
        sink.tap("per_layer_projection", &gate);
        let gate = self.post_per_layer_input_norm.forward(&gate)?;
        sink.tap("post_per_layer_input_norm", &gate);
        let h = ops::add(&h, &gate)?;
"#;
