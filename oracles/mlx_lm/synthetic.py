"""The generator of synthetic weights, as `harness/src/synthetic` has it, in Python.

A second writing of the same rules, so that two must be wrong alike to go unseen: every tensor has a
stream named after it, the SplitMix64 draw at an element's row-major index decides that element, and
values are integers of few bits times a power of two. `digests` gives the digest of a whole
`model.safetensors` for each lane; the harness refuses to use weights with another one.

    python synthetic.py goldens/synthetic/llama    # prints the digests of its lanes
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
SEED = 0x6D6C782D70617269
LANES = ("f32", "bf16", "4bit")
WORD = 0xFFFFFFFFFFFFFFFF

# centre, narrowing shift; the exponent comes from the fan-in for the first three
RANGES = {
    "linear": (0, 0), "conv": (0, 0), "embedding": (0, 0), "a-log": (0, 0), "sinks": (0, 0),
    "norm": (1, 2), "scalar": (1, 2), "norm-offset": (0, 2),
    "bias": (0, 3), "router-bias": (0, 3), "dt-bias": (-1, 1),
}


def mix(z):
    """The finaliser of SplitMix64, on numpy's wrapping 64-bit integers."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & WORD
    return value


def draws(name, count):
    state = mix(np.array([SEED ^ fnv1a(name)], dtype=np.uint64))
    index = np.arange(1, count + 1, dtype=np.uint64)
    return mix(state + index * GOLDEN)


def exponent(init, shape):
    """Log2 of the amplitude: minus the smallest e >= 0 with 4**(e + 1) >= fan-in."""
    if init in ("linear", "embedding"):
        fan_in = shape[-1]
    elif init == "conv":
        fan_in = int(np.prod(shape[1:]))
    else:
        return 0
    e = 0
    while 4 ** (e + 1) < fan_in:
        e += 1
    return -e


def to_bf16(values):
    """The upper halves of exact f32 values: cut toward zero, nothing is rounded."""
    return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def plain(name, init, shape):
    """The f32 values of a tensor; every integer below has at most 24 bits, so they are exact."""
    centre, narrow = RANGES[init]
    count = int(np.prod(shape))
    signed = (draws(name, count) >> np.uint64(40)).astype(np.int32) - np.int32(1 << 23)
    integer = np.int32(centre << 23) + (signed >> np.int32(narrow))
    return np.ldexp(integer.astype(np.float32), exponent(init, shape) - 23).reshape(shape)


def few_bits(name, shape, sign, power):
    integer = 12 + (draws(name, int(np.prod(shape))) >> np.uint64(61)).astype(np.int32)
    values = np.ldexp((sign * integer).astype(np.float32), power)
    return "BF16", to_bf16(values).reshape(shape)


def packed(path, shape, power, bits, group):
    """Words, scales and biases of a packed matrix, as stored."""
    *outer, columns = shape
    words = [*outer, columns * bits // 32]
    drawn = (draws(f"{path}.weight", int(np.prod(words))) >> np.uint64(32)).astype(np.uint32)
    groups = [*outer, columns // group]
    return {
        f"{path}.weight": ("U32", drawn.reshape(words)),
        f"{path}.scales": few_bits(f"{path}.scales", groups, 1, power - 4 - (bits - 1)),
        f"{path}.biases": few_bits(f"{path}.biases", groups, -1, power - 4),
    }


def tensors(inventory, lane):
    """Name to (dtype, array) in the order of the inventory."""
    found = {}
    for entry in inventory:
        name, init, shape = entry["name"], entry["init"], entry["shape"]
        packing = entry.get({"4bit": "quantize", "bf16": "pack_in_bf16"}.get(lane))
        if packing:
            found.update(packed(name.removesuffix(".weight"), shape, exponent(init, shape),
                                packing["bits"], packing["group_size"]))
        elif lane == "f32" or entry.get("keep_f32", False):
            found[name] = ("F32", plain(name, init, shape))
        else:
            found[name] = ("BF16", to_bf16(plain(name, init, shape)))
    return found


def safetensors(found):
    """The bytes of the file: the header in order, the data widest dtype first."""
    order = sorted(found, key=lambda name: -found[name][1].itemsize)
    offsets, end = {}, 0
    for name in order:
        begin, end = end, end + found[name][1].nbytes
        offsets[name] = [begin, end]
    header = json.dumps(
        {name: {"data_offsets": offsets[name], "dtype": dtype, "shape": list(array.shape)}
         for name, (dtype, array) in found.items()}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    data = b"".join(found[name][1].tobytes() for name in order)
    return len(header).to_bytes(8, "little") + header + data


def digests(inventory):
    """`sha256:<hex>` of the weight file of each lane."""
    return {lane: "sha256:" + hashlib.sha256(safetensors(tensors(inventory, lane))).hexdigest()
            for lane in LANES}


def main():
    for folder in sys.argv[1:]:
        inventory = json.loads((Path(folder) / "tensors.json").read_text())["tensors"]
        print(json.dumps({"folder": folder, "digests": digests(inventory)}))


if __name__ == "__main__":
    main()
