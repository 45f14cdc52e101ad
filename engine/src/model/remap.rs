//! The model types that mlx-lm runs under another module's name.

/// `MODEL_REMAPPING` of `mlx_lm/utils.py`, version 0.32.2.
const REMAPPING: &[(&str, &str)] = &[
    ("falcon_mamba", "mamba"),
    ("deepseek_v41_text", "deepseek_v41"),
    ("gemma4_unified", "gemma4"),
    ("iquestcoder", "llama"),
    ("joyai_llm_flash", "deepseek_v3"),
    ("kimi_k2", "deepseek_v3"),
    ("llava", "mistral3"),
    ("minimax_m2", "minimax"),
    ("mistral", "llama"),
    ("phi-msft", "phixtral"),
    ("qwen2_5_vl", "qwen2_vl"),
    ("xverse", "llama"),
];

/// The module mlx-lm takes for a model type of another name.
pub(super) fn mlx_lm_module(model_type: &str) -> Option<&'static str> {
    REMAPPING.iter().find(|(from, _)| *from == model_type).map(|(_, to)| *to)
}
