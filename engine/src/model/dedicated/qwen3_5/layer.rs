//! `DecoderLayer` of `mlx_lm/models/qwen3_5.py`.

use mlx_rs::Array;

use super::attention::Attention;
use super::gated_delta::{self, GatedDeltaNet};
use super::{LoadNorm, ROOT};
use crate::cache::{KvCache, RecurrentCache, RecurrentState};
use crate::config::{Qwen35Config, Qwen35Experts};
use crate::error::EngineError;
use crate::fault::Fault;
use crate::model::universal::layer::FeedForwardBlock;
use crate::model::universal::moe::{ExpertSpec, Gate, MoeSpec, OriginalNames, SharedSpec};
use crate::model::universal::router::{Choice, Side};
use crate::model::universal::spec::{Activation, FeedForward, MlpSpec};
use crate::nn::RmsNorm;
use crate::ops::{self, Mask};
use crate::place::Place;
use crate::taps::TapSink;
use crate::weights::Weights;

/// One layer; it norms before each block and adds after it.
pub(super) struct Layer {
    input_layernorm: RmsNorm,
    mixer: Mixer,
    post_attention_layernorm: RmsNorm,
    mlp: FeedForwardBlock,
}

/// How positions learn of each other.
enum Mixer {
    Recurrent(GatedDeltaNet),
    Attention(Attention),
}

impl Layer {
    pub(super) fn load(
        config: &Qwen35Config,
        weights: &mut Weights,
        index: usize,
        norm: LoadNorm,
        fault: Option<Fault>,
    ) -> Result<Self, EngineError> {
        let dims = &config.dims;
        let path = format!("{ROOT}.layers.{index}");
        let mixer = if config.is_linear(index) {
            let path = format!("{path}.linear_attn");
            Mixer::Recurrent(GatedDeltaNet::load(config, weights, &path)?)
        } else {
            let path = format!("{path}.self_attn");
            Mixer::Attention(Attention::load(config, weights, &path, norm, fault)?)
        };
        let mut norm =
            |name: &str| norm(weights, &format!("{path}.{name}"), dims.hidden_size, dims.eps);
        Ok(Self {
            input_layernorm: norm("input_layernorm")?,
            post_attention_layernorm: norm("post_attention_layernorm")?,
            mixer,
            mlp: feed_forward(config, weights, &path, fault)?,
        })
    }

    /// [`Network::stretches_from`](crate::model::Network::stretches_from) of this layer.
    pub(super) fn stretches_from(&self) -> Option<i32> {
        match &self.mixer {
            Mixer::Recurrent(_) => None,
            Mixer::Attention(attention) => attention.stretches_from(),
        }
    }

    /// x `[batch, n, hidden]` to the same; `mask` is that of the attention layers.
    pub(super) fn forward(
        &self,
        x: &Array,
        mask: &Mask,
        cache: &mut KvCache,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        match &self.mixer {
            Mixer::Recurrent(net) => self.recur(net, x, cache.recurrent()?, sink),
            Mixer::Attention(attention) => self.attend(attention, x, mask, cache, sink),
        }
    }

    fn attend(
        &self,
        attention: &Attention,
        x: &Array,
        mask: &Mask,
        cache: &mut KvCache,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let at = cache.position();
        let inputs = [x, &cache.position_array()];
        let [queries, keys, values, gate] =
            sink.segment_where(attention.is_pure(), "before", inputs, |[x, array], sink| {
                attention.turned_heads(&self.normed(x, sink)?, at, array, sink)
            })?;
        let mixed = attention.mix([&queries, &keys, &values], mask, cache, sink)?;
        let [out] = sink.segment("after", [x, &mixed, &gate], |[x, mixed, gate], sink| {
            Ok([self.joined(x, &attention.output(mixed, gate, sink)?, sink)?])
        })?;
        Ok(out)
    }

    /// All of a recurrent layer is one segment: its state goes in and comes out.
    fn recur(
        &self,
        net: &GatedDeltaNet,
        x: &Array,
        cache: &mut RecurrentCache,
        sink: &mut TapSink,
    ) -> Result<Array, EngineError> {
        let RecurrentState { conv, memory } = gated_delta::state(x, cache)?;
        let [out, conv, memory] =
            sink.segment("layer", [x, &conv, &memory], |[x, conv, memory], sink| {
                let before = RecurrentState { conv: conv.clone(), memory: memory.clone() };
                let (mixed, after) = net.forward(&self.normed(x, sink)?, before, sink)?;
                Ok([self.joined(x, &mixed, sink)?, after.conv, after.memory])
            })?;
        cache.advance(RecurrentState { conv, memory }, x.dim(1))?;
        Ok(out)
    }

    fn normed(&self, x: &Array, sink: &mut TapSink) -> Result<Array, EngineError> {
        let normed = self.input_layernorm.forward(x)?;
        sink.tap("input_layernorm", &normed);
        Ok(normed)
    }

    /// The layer's output, of its input and what its mixer gives.
    fn joined(&self, x: &Array, mixed: &Array, sink: &mut TapSink) -> Result<Array, EngineError> {
        let h = ops::add(x, mixed)?;
        let normed = self.post_attention_layernorm.forward(&h)?;
        sink.tap("post_attention_layernorm", &normed);
        let out = ops::add(&h, &self.mlp.forward(&normed, sink)?)?;
        sink.tap("out", &out);
        Ok(out)
    }
}

/// `Qwen3NextMLP`, or `Qwen3NextSparseMoeBlock` of `mlx_lm/models/qwen3_next.py`.
fn feed_forward(
    config: &Qwen35Config,
    weights: &mut Weights,
    layer: &str,
    fault: Option<Fault>,
) -> Result<FeedForwardBlock, EngineError> {
    let spec = match &config.experts {
        None => {
            let width = config.dims.intermediate_size;
            FeedForward::Dense(MlpSpec::gated(width, Activation::Silu))
        }
        Some(experts) => FeedForward::Moe(moe(experts)),
    };
    let place = Place::root(layer).join("mlp");
    FeedForwardBlock::load(weights, &place, config.dims.hidden_size, &spec, fault)
}

fn moe(experts: &Qwen35Experts) -> MoeSpec {
    MoeSpec {
        gate: Gate::Linear("gate"),
        choice: Choice::SoftmaxThenTop { side: Side::Last, normalised: experts.normalised },
        picks: experts.picks,
        experts: ExpertSpec {
            path: "switch_mlp",
            count: experts.count,
            width: experts.width,
            bias: false,
            original: OriginalNames::GATE_UP,
        },
        flat: false,
        rounded: false,
        shared: Some(SharedSpec {
            path: "shared_expert",
            mlp: MlpSpec::gated(experts.shared_width, Activation::Silu),
            gate: Some("shared_expert_gate"),
        }),
    }
}
