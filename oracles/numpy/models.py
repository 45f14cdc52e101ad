"""Logits of mlx-lm in float32 on the CPU: models of the checkout, widened, and a tiny quantized Llama made here.

python oracles/numpy/models.py        (needs mlx 0.32.2, mlx-lm 0.32.2, numpy)
"""

import json
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models import llama
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

from fixture import FOLDER, write

COMMAND = "python oracles/numpy/models.py"
MODELS = Path(__file__).parent.parent.parent / "goldens" / "models"
TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rms_norm_eps": 1e-5,
    "vocab_size": 64,
    "rope_theta": 10000.0,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32},
    "max_position_embeddings": 256,
    "attention_bias": True,
    "mlp_bias": True,
    "tie_word_embeddings": False,
    "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    "sliding_window": 12,
    "quantization": {
        "group_size": 32,
        "bits": 4,
        "model.layers.0.mlp.down_proj": {"group_size": 32, "bits": 6},
        "model.layers.1.self_attn.v_proj": False,
    },
}


def tiny_llama(folder):
    """Seeded weights; the predicate packs each layer as the configuration says."""
    mx.random.seed(11)
    model = llama.Model(llama.ModelArgs.from_dict(TINY))
    for name, value in tree_flatten(model.parameters()):
        scale = 0.25 if name.endswith("weight") else 0.1
        center = 1.0 if "norm" in name else 0.0
        model.load_weights([(name, center + scale * mx.random.normal(value.shape))], strict=False)
    quantization = TINY["quantization"]

    def packing(path, module):
        default = {"group_size": quantization["group_size"], "bits": quantization["bits"]}
        return hasattr(module, "to_quantized") and quantization.get(path, default)

    nn.quantize(model, class_predicate=packing)
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())), {"command": COMMAND})
    (folder / "config.json").write_text(json.dumps(TINY, indent=1) + "\n")


def logits(folder, ids):
    """mlx-lm's prefill in chunks of 32 with its own caches, then the last id alone."""
    model, _ = load_model(folder)
    model.set_dtype(mx.float32)
    cache = make_prompt_cache(model)
    split = [ids[i : i + 32] for i in range(0, len(ids) - 1, 32)]
    split[-1] = split[-1][: len(ids) - 1 - 32 * (len(split) - 1)]
    split.append(ids[-1:])
    assert sum(map(len, split)) == len(ids)
    parts = [np.array(model(mx.array([part]), cache=cache))[0] for part in split if part]
    return np.concatenate(parts)


def main():
    mx.set_default_device(mx.cpu)
    tiny_llama(FOLDER / "llama-tiny")
    tensors = {}
    folders = {
        "qwen3": MODELS / "qwen3-1m",
        "gemma3_text": MODELS / "gemma3-1m",
        "llama": FOLDER / "llama-tiny",
    }
    rng = np.random.default_rng(5)
    for name, folder in folders.items():
        vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
        # Past two of Gemma's windows of 32 and past the tiny Llama's of 12.
        ids = rng.integers(4, vocabulary, 75).tolist()
        rows = np.array([0, 1, 11, 12, 31, 32, 33, 63, 64, 73, 74])
        tensors[f"{name}.ids"] = np.array(ids, dtype=np.uint32)
        tensors[f"{name}.rows"] = rows
        tensors[f"{name}.logits"] = logits(folder, ids)[rows]
    write("models", tensors, COMMAND)


if __name__ == "__main__":
    main()
