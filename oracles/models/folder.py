"""Writes a model folder: config.json, model.safetensors, tokenizer.json, tokenizer_config.json.

The same input gives the same bytes on every machine: tensors in name order, JSON with sorted keys.
(`mx.save_safetensors` orders tensors by a hash that differs between C++ libraries.) A folder is
written beside its place and renamed, so that a folder that exists is whole.
"""

import json
import os
import shutil
import struct
from pathlib import Path

import mlx.core as mx
import numpy as np

# MLX's dtypes under the names that safetensors gives them.
DTYPES = {
    mx.float32: "F32",
    mx.float16: "F16",
    mx.bfloat16: "BF16",
    mx.uint32: "U32",
}

# What mlx-lm writes, and looks for.
METADATA = {"format": "mlx"}

ALIGNMENT = 8


def write_model(out: Path, tensors: dict, config: dict, tokenizer: dict, tokenizer_config: dict):
    """Writes the folder `out`, replacing one that exists."""
    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    write_safetensors(part / "model.safetensors", tensors)
    write_json(part / "config.json", config)
    write_json(part / "tokenizer.json", tokenizer, sort_keys=False)
    write_json(part / "tokenizer_config.json", tokenizer_config)
    shutil.rmtree(out, ignore_errors=True)
    part.rename(out)


def write_json(path: Path, value: dict, sort_keys: bool = True):
    text = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=sort_keys)
    path.write_text(text + "\n", encoding="utf-8")


def write_safetensors(path: Path, tensors: dict):
    """Writes `tensors` (name to mx.array) in name order."""
    header, offset = {"__metadata__": METADATA}, 0
    for name, tensor in sorted(tensors.items()):
        end = offset + tensor.nbytes
        header[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in sorted(tensors.items()):
            file.write(raw_bytes(tensor))
        file.flush()
        os.fsync(file.fileno())


def raw_bytes(tensor: mx.array) -> bytes:
    """The row-major little-endian bytes; NumPy has no bfloat16, so the bits are viewed as integers."""
    bits = {2: mx.uint16, 4: mx.uint32}[tensor.itemsize]
    return np.array(tensor.view(bits)).tobytes()


def read_json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))
