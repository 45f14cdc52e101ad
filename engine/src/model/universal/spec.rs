//! The descriptor of a decoder: what `mlx_lm/models/*.py` differ in, said as data.
//!
//! Every architecture of `archs/` turns its config into a [`Spec`]; the network of `universal` is the
//! only code that runs one. Names are module paths of the reference, relative to their parent.

use super::moe::MoeSpec;
use crate::config::{Dims, LayerKind, RopeConfig};

/// A whole model.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    /// Extents; `dims.eps` is that of every norm.
    pub dims: Dims,
    /// Module paths of the parts outside the layers.
    pub names: Names,
    /// The norm of the layers' blocks and of the output.
    pub norm: NormKind,
    /// What the embedded tokens are multiplied by.
    pub embed_scale: EmbedScale,
    /// A table of `dims.max_positions` learned positions that are added to them, by its module path.
    pub positions: Option<&'static str>,
    /// One a layer.
    pub layers: Vec<LayerSpec>,
    /// Positions a sliding layer sees; there where any layer slides.
    pub window: Option<usize>,
    /// Whether sliding layers keep every position and leave the window to their mask (smollm3, whose
    /// model has no `make_cache`).
    pub keeps_all: bool,
    /// What queries are multiplied by, position by position.
    pub query_scale: Option<QueryScale>,
    /// The output projection.
    pub head: Head,
    /// What is done to its logits.
    pub logits: LogitScale,
    /// The name that `sanitize` gives a tensor.
    pub rename: Option<fn(&str) -> String>,
    /// Tensors that `sanitize` throws away, by the names it gives them.
    pub drops: Vec<Drop>,
}

/// Module paths of the parts outside the layers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    /// The embedding.
    pub embed: &'static str,
    /// The list of layers.
    pub layers: &'static str,
    /// The last norm.
    pub norm: &'static str,
}

impl Default for Names {
    fn default() -> Self {
        Self { embed: "model.embed_tokens", layers: "model.layers", norm: "model.norm" }
    }
}

/// How a norm divides and what it multiplies by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NormKind {
    /// `nn.RMSNorm`.
    Rms,
    /// gemma's: `1.0 + weight`, the sum in the weight's dtype.
    RmsOnePlus,
    /// `nn.LayerNorm`.
    Layer {
        /// Whether it has one.
        bias: bool,
    },
    /// nemotron's: `weight + 1`, the sum in the weight's dtype, with a bias.
    LayerOnePlus,
}

/// What the embedded tokens are multiplied by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum EmbedScale {
    /// Nothing.
    None,
    /// A number, rounded to the tokens' dtype (gemma, gemma2, granite).
    Number(f64),
    /// A number, rounded to bf16 and then to the tokens' dtype (`gemma3_text`).
    Bf16(f64),
}

/// One layer.
#[derive(Debug, Clone)]
pub(crate) struct LayerSpec {
    /// What it may attend to; decides its cache and its mask.
    pub kind: LayerKind,
    /// Where it norms and how its blocks are joined.
    pub block: Block,
    /// Its attention.
    pub attention: AttentionSpec,
    /// The module path of its feed-forward block, `mlp` in most.
    pub mlp: &'static str,
    /// Its feed-forward block.
    pub feed_forward: FeedForward,
}

impl LayerSpec {
    /// A layer that sees everything, with its feed-forward block at `mlp`.
    pub fn new(block: Block, attention: AttentionSpec, feed_forward: FeedForward) -> Self {
        Self { kind: LayerKind::Full, block, attention, mlp: "mlp", feed_forward }
    }
}

/// Names of a layer's norms, none where it has no such norm, and how its blocks are joined.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    /// Of the stream, for attention.
    pub before_attention: Option<&'static str>,
    /// Of what attention gives.
    pub after_attention: Option<&'static str>,
    /// Of the stream, for the feed-forward block.
    pub before_mlp: Option<&'static str>,
    /// Of what the feed-forward block gives.
    pub after_mlp: Option<&'static str>,
    /// How they are joined.
    pub flow: Flow,
}

impl Block {
    /// Norms before each block, under the usual names (llama).
    pub const PRE: Self = Self {
        before_attention: Some("input_layernorm"),
        after_attention: None,
        before_mlp: Some("post_attention_layernorm"),
        after_mlp: None,
        flow: Flow::Sequential(Residual::Add),
    };
    /// Norms before and after each block, under gemma's names (gemma2).
    pub const SANDWICH: Self = Self {
        before_attention: Some("input_layernorm"),
        after_attention: Some("post_attention_layernorm"),
        before_mlp: Some("pre_feedforward_layernorm"),
        after_mlp: Some("post_feedforward_layernorm"),
        flow: Flow::Sequential(Residual::Add),
    };
    /// Norms after each block only (olmo2).
    pub const POST: Self = Self {
        before_attention: None,
        after_attention: Some("post_attention_layernorm"),
        before_mlp: None,
        after_mlp: Some("post_feedforward_layernorm"),
        flow: Flow::Sequential(Residual::Add),
    };
    /// One norm for both blocks, which see the same stream (cohere).
    pub const PARALLEL: Self = Self {
        before_attention: Some("input_layernorm"),
        after_attention: None,
        before_mlp: None,
        after_mlp: None,
        flow: Flow::Parallel(ParallelSum::BlocksFirst),
    };
}

/// How the two blocks of a layer are joined.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Flow {
    /// Attention, then the feed-forward block on the sum.
    Sequential(Residual),
    /// Both on the same stream. Where [`Block::before_mlp`] is none, the feed-forward block sees what
    /// attention sees.
    Parallel(ParallelSum),
}

/// How a block's result joins the stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Residual {
    /// `x + r`.
    Add,
    /// `x + r * number`, the number rounded to r's dtype (granite).
    Scaled(f64),
    /// `x + r`; in f16 summed in f32 and clipped to f16's range (`gemma3_text`).
    Clipped,
}

/// The order of a parallel layer's sum, which decides its rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParallelSum {
    /// `attention + feed_forward + x` (cohere, phi, `gpt_neox`).
    BlocksFirst,
    /// `x + attention + feed_forward` (stablelm).
    StreamFirst,
}

/// The attention block of a layer.
#[derive(Debug, Clone)]
pub(crate) struct AttentionSpec {
    /// Its module path.
    pub path: &'static str,
    /// The projections of queries, keys and values.
    pub inputs: Inputs,
    /// Whether those have biases.
    pub input_bias: bool,
    /// The output projection.
    pub output: &'static str,
    /// Whether that has a bias.
    pub output_bias: bool,
    /// Norms of queries and keys.
    pub qk_norm: Option<QkNorm>,
    /// Position encoding; none in a layer without positions.
    pub rope: Option<RopeConfig>,
    /// What scores are multiplied by.
    pub scale: f64,
    /// How scores and their mixture are computed.
    pub kernel: Kernel,
}

impl AttentionSpec {
    /// llama's: four projections without biases, `head_dim` to the power of -1/2.
    pub fn new(dims: &Dims, rope: RopeConfig) -> Self {
        Self {
            path: "self_attn",
            inputs: Inputs::Separate(["q_proj", "k_proj", "v_proj"]),
            input_bias: false,
            output: "o_proj",
            output_bias: false,
            qk_norm: None,
            rope: Some(rope),
            scale: (dims.head_dim as f64).powf(-0.5),
            kernel: Kernel::Fast,
        }
    }
}

/// Where queries, keys and values come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inputs {
    /// One projection each.
    Separate([&'static str; 3]),
    /// One projection to all queries, then all keys, then all values (phi3).
    Fused(&'static str),
    /// One projection to query, key and value of a head, head by head (`gpt_neox`).
    FusedByHead(&'static str),
}

/// Norms of queries and keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QkNorm {
    /// Their names.
    pub names: [&'static str; 2],
    /// Where they are applied.
    pub place: QkPlace,
    /// What they compute.
    pub kind: QkNormKind,
}

impl QkNorm {
    /// A norm of each head, under the usual names.
    pub fn by_head(place: QkPlace, kind: NormKind) -> Self {
        Self { names: ["q_norm", "k_norm"], place, kind: QkNormKind::Shared(kind) }
    }
}

/// Where queries and keys are normed. The places within a head give the same values; they differ in
/// the memory layout that later ops see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QkPlace {
    /// All heads as one, `[batch, n, heads * head_dim]` (olmo2).
    Width,
    /// On `[batch, n, heads, head_dim]` (qwen3).
    BeforeTranspose,
    /// On `[batch, heads, n, head_dim]` (`gemma3_text`).
    AfterTranspose,
    /// On `[batch, heads, n, head_dim]`, after rope (`hunyuan_v1_dense`).
    AfterRope,
}

/// What a norm of queries or keys computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QkNormKind {
    /// One norm for every head, or for the whole width.
    Shared(NormKind),
    /// `weight * layer_norm(x)` with one `[heads, head_dim]` weight (cohere).
    Matrix,
    /// The same with one tensor a head, at `norms.{head}` (stablelm).
    Stacked,
}

/// How attention computes its scores and their mixture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kernel {
    /// `mx.fast.scaled_dot_product_attention` in the queries' dtype.
    Fast,
    /// The same in f32, the result rounded back (stablelm, phi).
    F32,
    /// The same in f32 where the queries are f16 (cohere2).
    F32ForF16,
    /// Composed ops with `tanh(scores / cap) * cap` before the mask; queries are scaled first (gemma2).
    Softcap(f64),
}

/// `_get_llama_4_attn_scale` of `mlx_lm/models/ministral3.py`: queries at position p are multiplied by
/// `1 + beta * log(1 + floor(p / original))`, computed in f32 and rounded to the stream's dtype.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct QueryScale {
    /// Growth.
    pub beta: f64,
    /// Positions below which nothing grows.
    pub original: usize,
}

/// The feed-forward block of a layer.
#[derive(Debug, Clone)]
pub(crate) enum FeedForward {
    /// One network for all tokens.
    Dense(MlpSpec),
    /// A router and experts.
    Moe(MoeSpec),
}

/// A feed-forward network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MlpSpec {
    /// Its inner width.
    pub width: usize,
    /// The projections into the inner width.
    pub inputs: MlpInputs,
    /// The projection out of it.
    pub down: &'static str,
    /// Whether all of them have biases.
    pub bias: bool,
    /// What is applied within.
    pub activation: Activation,
}

impl MlpSpec {
    /// llama's: `down(silu(gate(x)) * up(x))` without biases.
    pub fn gated(width: usize, activation: Activation) -> Self {
        let inputs = MlpInputs::Gated { gate: "gate_proj", up: "up_proj" };
        Self { width, inputs, down: "down_proj", bias: false, activation }
    }
}

/// What a feed-forward network projects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MlpInputs {
    /// `activation(gate(x)) * up(x)`.
    Gated {
        /// The gate's name.
        gate: &'static str,
        /// The other's.
        up: &'static str,
    },
    /// The same of the first and second half of one projection (phi3, glm4).
    Fused(&'static str),
    /// `activation(up(x))` (starcoder2, nemotron).
    Plain(&'static str),
}

/// The function within a feed-forward block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    /// `nn.silu`, and as a gate `swiglu` of `mlx_lm/models/activations.py`.
    Silu,
    /// `nn.gelu`.
    Gelu,
    /// `nn.gelu_approx`.
    GeluApprox,
    /// `nn.relu` squared.
    Relu2,
}

/// The output projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    /// The embedding's table.
    Tied,
    /// A layer of its own.
    Own {
        /// Its module path.
        path: &'static str,
        /// Whether it has a bias.
        bias: bool,
    },
    /// `lm_head` where the checkpoint has one, else the embedding's table (`gemma3_text`).
    AsStored {
        /// What the config says of tying.
        tied: Option<bool>,
    },
}

impl Head {
    /// `lm_head` without a bias, or the embedding's table.
    pub fn tied_if(tied: bool) -> Self {
        if tied { Self::Tied } else { Self::Own { path: "lm_head", bias: false } }
    }
}

/// What is done to the logits; numbers are rounded to their dtype.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LogitScale {
    /// Nothing.
    None,
    /// Divided by a number (granite).
    Divide(f64),
    /// Multiplied by a number (cohere).
    Multiply(f64),
    /// `tanh(logits / cap) * cap` (gemma2).
    Softcap(f64),
}

/// Tensors that `sanitize` throws away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Drop {
    /// Those of exactly this name.
    Name(&'static str),
    /// Those whose name starts like this.
    Prefix(String),
    /// Those whose name ends like this.
    Suffix(&'static str),
    /// Those whose name has this in it.
    Contains(&'static str),
}

impl Drop {
    /// Precomputed rope frequencies.
    pub const INV_FREQ: Self = Self::Contains("self_attn.rotary_emb.inv_freq");
    /// The head of a tied model.
    pub const HEAD: Self = Self::Name("lm_head.weight");

    /// Whether this throws a tensor away.
    pub fn covers(&self, name: &str) -> bool {
        match self {
            Self::Name(exact) => name == *exact,
            Self::Prefix(start) => name.starts_with(start),
            Self::Suffix(end) => name.ends_with(end),
            Self::Contains(part) => name.contains(part),
        }
    }
}

impl Spec {
    /// A model of these layers with llama's other parts: no scales, `nn.RMSNorm`.
    pub fn new(dims: Dims, layers: Vec<LayerSpec>, head: Head) -> Self {
        Self {
            dims,
            names: Names::default(),
            norm: NormKind::Rms,
            embed_scale: EmbedScale::None,
            positions: None,
            layers,
            window: None,
            keeps_all: false,
            query_scale: None,
            head,
            logits: LogitScale::None,
            rename: None,
            drops: Vec::new(),
        }
    }
}
