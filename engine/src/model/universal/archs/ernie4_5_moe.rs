//! `mlx_lm/models/ernie4_5_moe.py`.

use serde::Deserialize;

use super::Arch;
use super::experts::picks;
use super::layout::{ANY, Layout, Ropes, SILU};
use crate::config::{ConfigFile, Dims, Extents};
use crate::error::EngineError;
use crate::model::universal::moe::{ExpertSpec, Gate, MoeSpec, OriginalNames, SharedSpec};
use crate::model::universal::router::{Choice, Gating};
use crate::model::universal::spec::{
    Activation, AttentionSpec, Block, Drop, FeedForward, Head, LayerSpec, MlpSpec, Spec,
};

pub(super) const ARCH: Arch = Arch { model_type: "ernie4_5_moe", keys, spec };

const LAYOUT: Layout = Layout {
    extents: Extents { needs_kv_heads: true, ..Extents::LLAMA },
    rope: Ropes {
        default_theta: None,
        traditional: true,
        may_be_traditional: false,
        ..Ropes::LLAMA
    },
    // The authors' code corrects its choice of experts with `e_score_correction_bias`, the reference
    // never. Capacity and dropout are for training; `sanitize` drops the layers that predict further
    // tokens.
    neutral: &[
        ("hidden_act", SILU),
        ("moe_use_aux_free", "[false]"),
        ("moe_norm_min", "[1e-12]"),
        ("moe_capacity", ANY),
        ("hidden_dropout_prob", ANY),
        ("num_nextn_predict_layers", ANY),
    ],
};

/// A layer, or one for each modality, of which the reference takes the widest range.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Bound {
    One(usize),
    Several(Vec<usize>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    use_bias: bool,
    tie_word_embeddings: bool,
    moe_num_experts: usize,
    moe_layer_start_index: Option<Bound>,
    moe_layer_end_index: Option<Bound>,
    #[serde(default)]
    moe_intermediate_size: usize,
    #[serde(default = "one")]
    moe_k: usize,
    #[serde(default = "one")]
    moe_layer_interval: usize,
    #[serde(default)]
    moe_num_shared_experts: usize,
    moe_gate_act: Option<String>,
}

fn one() -> usize {
    1
}

fn keys() -> Vec<&'static str> {
    LAYOUT.keys::<Wire>()
}

fn spec(file: &ConfigFile) -> Result<Spec, EngineError> {
    let (dims, rope, wire) = LAYOUT.read::<Wire>(file)?;
    refuse_other_maths(file, &wire)?;
    let attention = AttentionSpec {
        input_bias: wire.use_bias,
        output_bias: wire.use_bias,
        ..AttentionSpec::new(&dims, rope)
    };
    let layers = (0..dims.num_layers)
        .map(|i| {
            let feed_forward = if wire.is_sparse(i, &dims) {
                FeedForward::Moe(moe(file, &wire, &dims)?)
            } else {
                FeedForward::Dense(wire.mlp(dims.intermediate_size))
            };
            Ok(LayerSpec::new(Block::PRE, attention.clone(), feed_forward))
        })
        .collect::<Result<_, EngineError>>()?;
    let drops = ["mtp_block.", "mtp_linear_proj.", "mtp_hidden_norm.", "mtp_emb_norm."];
    let drops = drops.into_iter().map(Drop::Contains).collect();
    Ok(Spec { drops, ..Spec::new(dims, layers, Head::tied_if(wire.tie_word_embeddings)) })
}

impl Wire {
    fn is_sparse(&self, layer: usize, dims: &Dims) -> bool {
        let start = self.moe_layer_start_index.as_ref().map_or(0, Bound::least);
        let last = dims.num_layers - 1;
        let end = self.moe_layer_end_index.as_ref().map_or(last, Bound::most);
        let in_step = (layer + 1).is_multiple_of(self.moe_layer_interval);
        in_step && (start..=end).contains(&layer)
    }

    fn mlp(&self, width: usize) -> MlpSpec {
        MlpSpec { bias: self.use_bias, ..MlpSpec::gated(width, Activation::Silu) }
    }
}

impl Bound {
    fn all(&self) -> &[usize] {
        match self {
            Self::One(layer) => std::slice::from_ref(layer),
            Self::Several(layers) => layers,
        }
    }

    fn least(&self) -> usize {
        self.all().iter().copied().min().unwrap_or(0)
    }

    fn most(&self) -> usize {
        self.all().iter().copied().max().unwrap_or(0)
    }
}

fn moe(file: &ConfigFile, wire: &Wire, dims: &Dims) -> Result<MoeSpec, EngineError> {
    let width = match wire.moe_intermediate_size {
        0 => dims.intermediate_size,
        width => width,
    };
    let count = ("moe_num_experts", wire.moe_num_experts);
    let shared = width * wire.moe_num_shared_experts;
    Ok(MoeSpec {
        gate: Gate::Linear("gate"),
        choice: Choice::Wide(gating(file, wire)?),
        picks: picks(file, ("moe_k", wire.moe_k), count)?,
        experts: ExpertSpec {
            path: "switch_mlp",
            count: count.1,
            width,
            bias: wire.use_bias,
            original: OriginalNames::PROJ,
        },
        flat: false,
        rounded: true,
        shared: (shared > 0).then(|| SharedSpec {
            path: "shared_experts",
            mlp: wire.mlp(shared),
            gate: None,
        }),
    })
}

fn gating(file: &ConfigFile, wire: &Wire) -> Result<Gating, EngineError> {
    match wire.moe_gate_act.as_deref() {
        None | Some("softmax") => Ok(Gating::Softmax),
        Some("sigmoid") => Ok(Gating::Sigmoid),
        Some(other) => {
            Err(file.unsupported("moe_gate_act", format!("`{other}`"), "`softmax` or `sigmoid`"))
        }
    }
}

fn refuse_other_maths(file: &ConfigFile, wire: &Wire) -> Result<(), EngineError> {
    for (key, bound) in [
        ("moe_layer_start_index", &wire.moe_layer_start_index),
        ("moe_layer_end_index", &wire.moe_layer_end_index),
    ] {
        if bound.as_ref().is_some_and(|bound| bound.all().is_empty()) {
            return Err(file.unsupported(key, "[]", "a layer, or several"));
        }
    }
    if wire.moe_layer_interval == 0 {
        return Err(file.unsupported("moe_layer_interval", 0, "1 or more"));
    }
    Ok(())
}
