"""A model folder rounded to bfloat16 (to nearest, ties to even).

usage: to_bf16.py MODEL OUT
"""

import sys
from pathlib import Path

import mlx.core as mx

from folder import read_json, write_model


def main(model_folder: Path, out: Path):
    mx.set_default_device(mx.cpu)
    tensors = mx.load(str(model_folder / "model.safetensors"))
    config = read_json(model_folder / "config.json")
    write_model(
        out,
        {name: tensor.astype(mx.bfloat16) for name, tensor in tensors.items()},
        config | {"torch_dtype": "bfloat16"},
        read_json(model_folder / "tokenizer.json"),
        read_json(model_folder / "tokenizer_config.json"),
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
