"""A model folder quantised as mlx-lm quantises one.

usage: quantize.py MODEL OUT BITS GROUP_SIZE
"""

import os
import sys
from pathlib import Path

# Nothing here is fetched.
os.environ["HF_HUB_OFFLINE"] = "1"

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model, quantize_model

from folder import read_json, write_model


def main(model_folder: Path, out: Path, bits: int, group_size: int):
    mx.set_default_device(mx.cpu)
    model, config = load_model(model_folder)
    model, config = quantize_model(model, config, group_size, bits)
    # mlx-lm writes the setting under both names.
    config["quantization_config"] = config["quantization"]
    write_model(
        out,
        dict(tree_flatten(model.parameters())),
        config,
        read_json(model_folder / "tokenizer.json"),
        read_json(model_folder / "tokenizer_config.json"),
    )


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
