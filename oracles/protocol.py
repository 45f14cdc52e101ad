"""What every oracle shares: JSON lines, protocol 1, and who answers them.

One JSON object a line. Requests come on stdin, answers go to stdout, logs to stderr:

    {"protocol": 1, "id": 1, "request": "hello"}
    {"protocol": 1, "id": 1, "reply": "hello", "oracle": NAME, "packages": {...},
     "backend": "cpu", "device": "..."}

    {"protocol": 1, "id": 3, "reply": "error", "kind": "...", "message": "..."}
"""

import json
import os
import sys
import traceback

PROTOCOL = 1


def private_stdout():
    """Keeps the real stdout for answers; whatever a library prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return answers


def versions(packages):
    """The installed ones of `packages`, and Python's own version."""
    import importlib.metadata as metadata

    found = {}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    found["python"] = ".".join(map(str, sys.version_info[:3]))
    return found


def greeting(name, packages):
    """The answer to `hello` of the oracle called `name`."""
    import mlx.core as mx

    bridge()
    device = mx.default_device()
    backend = "cpu" if device.type == mx.cpu else ("metal" if mx.metal.is_available() else "cuda")
    return {"reply": "hello", "oracle": name, "packages": versions(packages), "backend": backend,
            "device": str(device)}


def bridge():
    """Lets mlx-lm 0.32.2 call `mx.gather_qmm` of MLX 0.32.2.

    `QuantizedSwitchLinear` passes `global_scale`, which this MLX does not take: every quantized
    mixture of experts ends in a TypeError. The argument is None but for nvfp4, and None means what its
    absence means; so None is dropped, here in the oracle's process, and anything else is refused.
    Where MLX takes the argument nothing is done.
    """
    import functools

    import mlx.core as mx

    original = mx.gather_qmm
    if "global_scale" in (original.__doc__ or "") or hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def gather_qmm(*args, global_scale=None, **kwargs):
        if global_scale is not None:
            raise ValueError(f"mlx {mx.__version__} has no gather_qmm with a global_scale")
        return original(*args, **kwargs)

    mx.gather_qmm = gather_qmm


def describe_cache(layer):
    """The name of a layer's cache in a composition."""
    kind = type(layer).__name__
    if kind == "KVCache":
        return "plain"
    if kind == "RotatingKVCache":
        keep = f", keep {layer.keep}" if layer.keep else ""
        return f"rotating({layer.max_size}{keep})"
    if kind == "ChunkedKVCache":
        return f"chunked({layer.chunk_size})"
    if kind == "QuantizedKVCache":
        return f"quantized({layer.bits} bits, group {layer.group_size})"
    if kind == "RotatingQuantizedKVCache":
        keep = f", keep {layer.keep}" if layer.keep else ""
        return (f"rotating({layer.max_size}{keep}), quantized({layer.bits} bits, "
                f"group {layer.group_size})")
    if kind == "ArraysCache":
        return f"arrays({len(layer.cache)})"
    if kind == "CacheList":
        return f"list({', '.join(describe_cache(part) for part in layer.caches)})"
    raise ValueError(f"cache class {kind} has no name in a composition yet")


def save(file, tensors):
    """Writes a safetensors file, whole or not at all."""
    import mlx.core as mx

    scratch = file + ".part.safetensors"
    mx.save_safetensors(scratch, tensors)
    os.replace(scratch, file)


def answer(line, requests):
    """The answer to one line; every failure becomes one too."""
    request = {}
    try:
        request = json.loads(line)
        if request.get("protocol") != PROTOCOL:
            raise ValueError(f"protocol {request.get('protocol')}, this runner speaks {PROTOCOL}")
        handler = requests.get(request.get("request"))
        if handler is None:
            raise ValueError(f"unknown request {request.get('request')!r}")
        reply = handler(request)
    except Exception as error:  # noqa: BLE001  (every failure becomes an answer)
        traceback.print_exc(file=sys.stderr)
        reply = {"reply": "error", "kind": type(error).__name__, "message": str(error)}
    return {"protocol": PROTOCOL, "id": request.get("id", 0), **reply}


def serve(requests):
    """Answers until stdin ends; `requests` maps a request's name to its handler."""
    answers = private_stdout()
    for line in sys.stdin:
        if line.strip():
            answers.write(json.dumps(answer(line, requests)) + "\n")
            answers.flush()
