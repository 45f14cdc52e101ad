//! Keys that cannot change what a trained model computes.

/// Keys of `config.json` that may be present and are not read, each with why it is harmless. Keys
/// that could change the maths never belong here, whatever the reference does with them.
pub const HARMLESS: &[(&str, &str)] = &[
    ("_name_or_path", "provenance"),
    ("architectures", "names the training class; model_type decides"),
    ("attention_dropout", "training only"),
    ("attn_pdrop", "training only"),
    ("auto_map", "names Python classes"),
    ("bos_token_id", "tokenizer"),
    ("cache_implementation", "how another library stores its cache"),
    ("classifier_dropout", "training only"),
    ("dtype", "the checkpoint's tensors say their own dtype"),
    ("embd_pdrop", "training only"),
    ("embed_dropout", "training only"),
    ("embedding_dropout", "training only"),
    ("eos_token_id", "read for generation, not by the model"),
    ("hidden_dropout", "training only"),
    ("initializer_range", "training only"),
    ("is_decoder", "all models here are decoders"),
    ("is_llama_config", "provenance"),
    ("model_max_length", "tokenizer"),
    ("output_attentions", "asks another library for extra output"),
    ("output_hidden_states", "asks another library for extra output"),
    ("output_router_logits", "training only"),
    ("pad_token_id", "tokenizer"),
    ("resid_pdrop", "training only"),
    ("residual_dropout", "training only"),
    ("return_dict", "asks another library for another output type"),
    ("router_aux_loss_coef", "training only"),
    ("summary_activation", "of a head that language models lack"),
    ("summary_first_dropout", "of a head that language models lack"),
    ("summary_proj_to_labels", "of a head that language models lack"),
    ("summary_type", "of a head that language models lack"),
    ("summary_use_proj", "of a head that language models lack"),
    ("task_specific_params", "settings of generation"),
    ("torch_dtype", "the checkpoint's tensors say their own dtype"),
    ("transformers.js_config", "settings of a JavaScript library"),
    ("transformers_version", "provenance"),
    ("unk_token_id", "tokenizer"),
    ("use_cache", "the decoder always caches"),
];

pub(super) fn is_harmless(key: &str) -> bool {
    HARMLESS.iter().any(|(harmless, _)| *harmless == key)
}
