"""Writes fixtures: a safetensors file whose metadata holds the command that made it."""

import json
import struct
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent.parent / "tests" / "fixtures"
NAMES = {
    "float64": "F64",
    "float32": "F32",
    "uint32": "U32",
    "uint8": "U8",
    "int64": "I64",
    "bool": "BOOL",
}


def write(name, tensors, command):
    """Writes `tensors` (name to array) to `tests/fixtures/<name>.safetensors`."""
    header, blobs, at = {"__metadata__": {"command": command}}, [], 0
    for key, value in tensors.items():
        array = np.asarray(value)
        shape = list(array.shape)
        blob = np.ascontiguousarray(array).tobytes()
        header[key] = {
            "dtype": NAMES[array.dtype.name],
            "shape": shape,
            "data_offsets": [at, at + len(blob)],
        }
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    print(path.name, len(tensors), "tensors", path.stat().st_size, "bytes")
