"""A model folder in another dtype, and quantised as mlx-lm quantises one.

usage: derive.py MODEL OUT DTYPE [BITS GROUP_SIZE]

DTYPE is a name of mlx.core: float32, bfloat16, float16.
"""

import os
import sys
from pathlib import Path

# Nothing here is fetched.
os.environ["HF_HUB_OFFLINE"] = "1"

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map
from mlx_lm.utils import load_model, quantize_model

from folder import read_json, write_model


def main(model_folder: Path, out: Path, dtype: str, packing: tuple[int, int] | None):
    mx.set_default_device(mx.cpu)
    model, config = load_model(model_folder)
    wanted = getattr(mx, dtype)
    cast = lambda a: a.astype(wanted) if mx.issubdtype(a.dtype, mx.floating) else a
    model.update(tree_map(cast, model.parameters()))
    config["torch_dtype"] = dtype
    if packing:
        bits, group_size = packing
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
    if len(sys.argv) not in (4, 6):
        sys.exit(__doc__)
    packing = (int(sys.argv[4]), int(sys.argv[5])) if len(sys.argv) == 6 else None
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], packing)
