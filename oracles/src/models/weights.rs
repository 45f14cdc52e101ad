//! A checkpoint's tensors, widened or dequantized, under the names the reference gives them.

use std::path::Path;

use mlx_parity_tensor::HostTensor;
use mlx_parity_tensor::safetensors::Checkpoint;

use super::config::Config;
use super::plan::{BlockNorms, Plan};
use crate::error::OracleError;
use crate::ops::{Mode, Quantized, Scales, dequantize};
use crate::tensor::{PackedTensor, Tensor64};

/// A projection: rows are outputs.
#[derive(Debug)]
pub(super) struct Linear {
    pub weight: Tensor64,
    pub bias: Option<Tensor64>,
}

/// One block.
#[derive(Debug)]
pub(super) struct LayerWeights {
    pub q_proj: Linear,
    pub k_proj: Linear,
    pub v_proj: Linear,
    pub o_proj: Linear,
    pub gate_proj: Linear,
    pub up_proj: Linear,
    pub down_proj: Linear,
    pub head_norms: Option<[Tensor64; 2]>,
    pub input_layernorm: Tensor64,
    pub post_attention_layernorm: Tensor64,
    /// Norms before and after the MLP, of sandwich blocks.
    pub feedforward_layernorms: Option<[Tensor64; 2]>,
}

/// The whole model.
#[derive(Debug)]
pub(super) struct Weights {
    pub embed_tokens: Tensor64,
    pub layers: Vec<LayerWeights>,
    pub norm: Tensor64,
    /// Absent where the embedding serves.
    pub lm_head: Option<Tensor64>,
}

struct Reader<'a> {
    folder: &'a Path,
    checkpoint: &'a Checkpoint,
    config: &'a Config,
}

impl Weights {
    pub fn read(
        folder: &Path,
        checkpoint: &Checkpoint,
        config: &Config,
        plan: &Plan,
    ) -> Result<Self, OracleError> {
        let reader = Reader { folder, checkpoint, config };
        let vocabulary = [plan.vocab_size, plan.hidden];
        let head = || reader.matrix("lm_head", vocabulary);
        Ok(Self {
            embed_tokens: reader.matrix("model.embed_tokens", vocabulary)?,
            layers: (0..plan.layers.len())
                .map(|i| reader.layer(i, plan))
                .collect::<Result<_, _>>()?,
            norm: reader.vector("model.norm.weight", plan.hidden)?,
            lm_head: (!plan.tied).then(head).transpose()?,
        })
    }
}

impl Reader<'_> {
    fn error(&self, message: impl Into<String>) -> OracleError {
        OracleError::model(self.folder, message)
    }

    fn tensor(&self, name: &str) -> Result<HostTensor, OracleError> {
        self.checkpoint.tensor(name).map_err(|error| self.error(error.to_string()))
    }

    fn sized(
        &self,
        name: &str,
        found: Tensor64,
        wanted: &[usize],
    ) -> Result<Tensor64, OracleError> {
        if found.shape() == wanted {
            return Ok(found);
        }
        Err(self.error(format!("`{name}` has shape {:?}, wanted {wanted:?}", found.shape())))
    }

    fn vector(&self, name: &str, width: usize) -> Result<Tensor64, OracleError> {
        self.sized(name, Tensor64::from_host(&self.tensor(name)?), &[width])
    }

    /// A weight matrix; quantized where its scales stand beside it.
    fn matrix(&self, module: &str, shape: [usize; 2]) -> Result<Tensor64, OracleError> {
        let name = format!("{module}.weight");
        let host = self.tensor(&name)?;
        let scales = format!("{module}.scales");
        if !self.checkpoint.contains(&scales) {
            return self.sized(&name, Tensor64::from_host(&host), &shape);
        }
        let mode = self.config.quantization(module)?.ok_or_else(|| {
            self.error(format!("`{scales}` is there, but config.json has no quantization for it"))
        })?;
        let weight = self.dequantized(module, mode, &host)?;
        self.sized(&name, weight, &shape)
    }

    fn dequantized(
        &self,
        module: &str,
        mode: Mode,
        words: &HostTensor,
    ) -> Result<Tensor64, OracleError> {
        let part = |name: &str| {
            Ok::<_, OracleError>(Tensor64::from_host(&self.tensor(&format!("{module}.{name}"))?))
        };
        let scales = Scales::Affine { scales: part("scales")?, biases: part("biases")? };
        let quantized = Quantized::new(mode, PackedTensor::from_host(words)?, scales)
            .map_err(|error| self.error(format!("`{module}`: {error}")))?;
        Ok(dequantize(&quantized).value)
    }

    fn linear(&self, module: &str, shape: [usize; 2], bias: bool) -> Result<Linear, OracleError> {
        let read_bias = || self.vector(&format!("{module}.bias"), shape[0]);
        Ok(Linear { weight: self.matrix(module, shape)?, bias: bias.then(read_bias).transpose()? })
    }

    fn layer(&self, index: usize, plan: &Plan) -> Result<LayerWeights, OracleError> {
        let path = |name: &str| format!("model.layers.{index}.{name}");
        let (hidden, inner) = (plan.hidden, plan.intermediate);
        let (queries, keys) = (plan.heads * plan.head_dim, plan.kv_heads * plan.head_dim);
        let attention = |name: &str, shape| {
            self.linear(&path(&format!("self_attn.{name}")), shape, plan.attention_bias)
        };
        let mlp =
            |name: &str, shape| self.linear(&path(&format!("mlp.{name}")), shape, plan.mlp_bias);
        let norm = |name: &str, width| self.vector(&path(&format!("{name}.weight")), width);
        let head_norms = || {
            Ok::<_, OracleError>([
                norm("self_attn.q_norm", plan.head_dim)?,
                norm("self_attn.k_norm", plan.head_dim)?,
            ])
        };
        let feedforward = || {
            Ok::<_, OracleError>([
                norm("pre_feedforward_layernorm", hidden)?,
                norm("post_feedforward_layernorm", hidden)?,
            ])
        };
        let sandwich = plan.block_norms == BlockNorms::Sandwich;
        Ok(LayerWeights {
            q_proj: attention("q_proj", [queries, hidden])?,
            k_proj: attention("k_proj", [keys, hidden])?,
            v_proj: attention("v_proj", [keys, hidden])?,
            o_proj: attention("o_proj", [hidden, queries])?,
            gate_proj: mlp("gate_proj", [inner, hidden])?,
            up_proj: mlp("up_proj", [inner, hidden])?,
            down_proj: mlp("down_proj", [hidden, inner])?,
            head_norms: plan.head_norms.then(head_norms).transpose()?,
            input_layernorm: norm("input_layernorm", hidden)?,
            post_attention_layernorm: norm("post_attention_layernorm", hidden)?,
            feedforward_layernorms: sandwich.then(feedforward).transpose()?,
        })
    }
}
