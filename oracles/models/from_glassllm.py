"""glassllm's wheel (a trained English llama of 0.85 M parameters, MIT) to a model folder, in float32.

usage: from_glassllm.py WHEEL OUT

The package stores float16 arrays as [in, out] matrices, so float32 loses nothing. Two changes keep
the function the same: rows of q and k move from RoPE on adjacent pairs to RoPE on halves, and the
341 hidden units of the MLP are padded with zeros to 384, because MLX quantises rows in groups of 32
or more (silu(0) * 0 is 0, and the extra columns of `down_proj` are 0).
"""

import io
import json
import sys
import zipfile
from pathlib import Path

import mlx.core as mx
import numpy as np

from folder import write_model

LANGUAGE = "en"
HIDDEN_UNITS = 384
SPECIALS = ["<pad>", "<unk>", "<bos>", "<eos>"]
SPACE = "▁"


def main(wheel: Path, out: Path):
    with zipfile.ZipFile(wheel) as package:
        stored = np.load(io.BytesIO(package.read(f"glassllm/weights/{LANGUAGE}.npz")))
        merges = json.loads(package.read(f"glassllm/weights/{LANGUAGE}.tokenizer.json"))
    shape = json.loads(str(stored["__config__"]))
    vocabulary = SPECIALS + merges["alphabet"] + [left + right for left, right in merges["merges"]]
    if len(set(vocabulary)) != shape["vocab_size"]:
        sys.exit(f"{wheel}: {len(set(vocabulary))} tokens, want {shape['vocab_size']}")
    write_model(
        out,
        {name: mx.array(array) for name, array in weights(stored, shape).items()},
        config(shape),
        tokenizer(vocabulary, merges["merges"]),
        tokenizer_config(shape),
    )


def weights(stored, shape: dict) -> dict:
    """Arrays under the names of an HF llama checkpoint, as contiguous float32."""
    named = {"model.embed_tokens.weight": stored["E"], "model.norm.weight": stored["norm_f.gamma"]}
    for layer in range(shape["n_layers"]):
        for name, array in layer_weights(stored, f"blocks.{layer}.", shape).items():
            named[f"model.layers.{layer}.{name}.weight"] = array
    return {name: np.ascontiguousarray(array, np.float32) for name, array in named.items()}


def layer_weights(stored, block: str, shape: dict) -> dict:
    def linear(name):
        return stored[block + name].T

    return {
        "input_layernorm": stored[block + "norm1.gamma"],
        "post_attention_layernorm": stored[block + "norm2.gamma"],
        "self_attn.q_proj": split_halves(linear("attn.W_Q"), shape["n_heads"]),
        "self_attn.k_proj": split_halves(linear("attn.W_K"), shape["n_kv_heads"]),
        "self_attn.v_proj": linear("attn.W_V"),
        "self_attn.o_proj": linear("attn.W_O"),
        "mlp.gate_proj": pad_rows(linear("ffn.W1")),
        "mlp.up_proj": pad_rows(linear("ffn.W3")),
        "mlp.down_proj": pad_rows(linear("ffn.W2").T).T,
    }


def split_halves(matrix, heads: int):
    """Rows 2i and 2i+1 of each head move to i and i + head_dim / 2."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def pad_rows(matrix):
    return np.pad(matrix, ((0, HIDDEN_UNITS - matrix.shape[0]), (0, 0)))


def config(shape: dict) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "bos_token_id": SPECIALS.index("<bos>"),
        "eos_token_id": SPECIALS.index("<eos>"),
        "head_dim": shape["d_model"] // shape["n_heads"],
        "hidden_act": "silu",
        "hidden_size": shape["d_model"],
        "intermediate_size": HIDDEN_UNITS,
        "max_position_embeddings": shape["max_len"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": shape["n_heads"],
        "num_hidden_layers": shape["n_layers"],
        "num_key_value_heads": shape["n_kv_heads"],
        "pad_token_id": SPECIALS.index("<pad>"),
        "rms_norm_eps": shape["eps"],
        "rope_theta": shape["rope_base"],
        "rope_traditional": False,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "vocab_size": shape["vocab_size"],
    }


def tokenizer(vocabulary: list, merges: list) -> dict:
    """The package's character BPE: NFC, spaces marked, chunks of one word or one line break."""
    to_mark = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    from_mark = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    chunk = {"Regex": rf"\n|{SPACE}*[^{SPACE}\n]+|{SPACE}+"}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [special(number, content) for number, content in enumerate(SPECIALS)],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, to_mark]},
        "pre_tokenizer": {"type": "Split", "pattern": chunk, "behavior": "Isolated", "invert": False},
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [from_mark, {"type": "Fuse"}]},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(vocabulary)},
            "merges": merges,
        },
    }


def special(number: int, content: str) -> dict:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": content, **flags, "special": True}


def tokenizer_config(shape: dict) -> dict:
    return {
        "bos_token": "<bos>",
        "clean_up_tokenization_spaces": False,
        "eos_token": "<eos>",
        "model_max_length": shape["max_len"],
        "pad_token": "<pad>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
    }


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
