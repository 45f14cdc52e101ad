//! One file an architecture: its `config.json`, read strictly, to a [`Spec`].

mod cohere;
mod cohere2;
mod dots1;
mod ernie4_5;
mod ernie4_5_moe;
mod exaone;
mod exaone4;
mod experts;
mod gemma;
mod gemma2;
mod gemma3_text;
mod glm;
mod glm4;
mod glm4_moe;
mod gpt2;
mod gpt_neox;
mod granite;
mod granitemoe;
mod helium;
mod hunyuan_v1_dense;
mod internlm3;
mod layout;
pub(in crate::model) mod llama;
mod mimo;
mod ministral3;
mod mixtral;
mod nemotron;
mod olmo2;
mod olmo3;
mod olmoe;
mod phi;
mod phi3;
mod phimoe;
#[cfg(test)]
mod probes;
mod qwen2;
mod qwen2_moe;
pub(in crate::model) mod qwen3;
mod qwen3_moe;
mod seed_oss;
mod shared;
mod smollm3;
mod stablelm;
mod starcoder2;

use super::spec::Spec;
use crate::config::ConfigFile;
use crate::error::EngineError;

/// One architecture of the universal network.
pub(in crate::model) struct Arch {
    /// Its `model_type`.
    pub(in crate::model) model_type: &'static str,
    /// The keys its reader knows.
    pub(in crate::model) keys: fn() -> Vec<&'static str>,
    /// Reads its config.
    pub(in crate::model) spec: fn(&ConfigFile) -> Result<Spec, EngineError>,
}

/// Every architecture of the universal network, by name.
pub(in crate::model) const ARCHS: &[Arch] = &[
    cohere::ARCH,
    cohere2::ARCH,
    dots1::ARCH,
    ernie4_5::ARCH,
    ernie4_5_moe::ARCH,
    exaone::ARCH,
    exaone4::ARCH,
    gemma::ARCH,
    gemma2::ARCH,
    gemma3_text::ARCH,
    glm::ARCH,
    glm4::ARCH,
    glm4_moe::ARCH,
    gpt2::ARCH,
    gpt_neox::ARCH,
    granite::ARCH,
    granitemoe::ARCH,
    helium::ARCH,
    hunyuan_v1_dense::ARCH,
    internlm3::ARCH,
    llama::ARCH,
    mimo::ARCH,
    ministral3::ARCH,
    mixtral::ARCH,
    nemotron::ARCH,
    olmo2::ARCH,
    olmo3::ARCH,
    olmoe::ARCH,
    phi::ARCH,
    phi3::ARCH,
    phimoe::ARCH,
    qwen2::ARCH,
    qwen2_moe::ARCH,
    qwen3::ARCH,
    qwen3_moe::ARCH,
    seed_oss::ARCH,
    smollm3::ARCH,
    stablelm::ARCH,
    starcoder2::ARCH,
];
