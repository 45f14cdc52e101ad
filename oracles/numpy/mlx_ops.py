"""What MLX 0.32.2 answers in float32 on its CPU, for layouts and conventions that only the reference defines.

python oracles/numpy/mlx_ops.py        (needs mlx 0.32.2, mlx-lm 0.32.2, numpy)
"""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models.base import create_causal_mask, quantized_scaled_dot_product_attention
from mlx_lm.models.rope_utils import initialize_rope

from fixture import write

COMMAND = "python oracles/numpy/mlx_ops.py"
mx.set_default_device(mx.cpu)
RNG = np.random.default_rng(4096)
T = {}


def normal(*shape, scale=1.0):
    return mx.array((RNG.standard_normal(shape) * scale).astype(np.float32))


def put(name, **tensors):
    for key, value in tensors.items():
        T[f"{name}.{key}"] = np.array(value)


def quantization():
    w = normal(3, 128)
    w[1, :64] = mx.linspace(-1, 1, 64)
    w[2, :32] = 0.0
    w[2, 32:64] = 3.25
    put("quantize", w=w)
    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            words, scales, biases = mx.quantize(w, group_size=group, bits=bits)
            back = mx.dequantize(words, scales, biases, group_size=group, bits=bits)
            put(f"affine.{bits}.{group}", words=words, scales=scales, biases=biases, y=back)
    # Group maxima at, just above and just below powers of two times the largest element.
    w[0, 0], w[0, 32], w[0, 64], w[0, 96] = 6.0, 6.1, 896.0, 7.0
    put("float_quantize", w=w)
    for mode in ("mxfp4", "mxfp8", "nvfp4"):
        words, scales = mx.quantize(w, mode=mode)
        put(mode, words=words, scales=scales, y=mx.dequantize(words, scales, mode=mode, dtype=mx.float32))
    arguments = {"mode": "nvfp4", "global_scale": mx.max(mx.abs(w))}
    words, scales = mx.quantize(w, **arguments)
    put("nvfp4_global", words=words, scales=scales, y=mx.dequantize(words, scales, dtype=mx.float32, **arguments))


def products():
    w = normal(4, 64, 96)
    words, scales, biases = mx.quantize(w, group_size=32, bits=5)
    put("qmm", words=words, scales=scales, biases=biases)
    x, narrow = normal(4, 3, 96), normal(4, 3, 64)
    arguments = {"group_size": 32, "bits": 5}
    put("qmm", x=x, y=mx.quantized_matmul(x, words, scales, biases, transpose=True, **arguments))
    put("qmm", narrow=narrow, straight=mx.quantized_matmul(narrow, words, scales, biases, transpose=False, **arguments))
    lhs, rhs = mx.array([[0], [3]], mx.uint32), mx.array([2, 2, 1], mx.uint32)
    put("qmm", lhs=np.array(lhs).astype(np.int64), rhs=np.array(rhs).astype(np.int64))
    put("qmm", gathered=mx.gather_qmm(x, words, scales, biases, lhs, rhs, transpose=True, **arguments))
    put("qmm", dense=w, gather_mm=mx.gather_mm(narrow, w, lhs, rhs))


def fp8():
    codes = np.arange(256, dtype=np.uint8)
    put("from_fp8", y=mx.from_fp8(mx.array(codes), mx.float32))
    x = np.concatenate([RNG.standard_normal(500) * s for s in (1e-3, 1.0, 200.0)]).astype(np.float32)
    put("to_fp8", x=x, codes=mx.to_fp8(mx.array(x)))


def norms():
    x = normal(2, 5, 12)
    put("group_norm", x=x)
    for name, compatible in (("strided", False), ("contiguous", True)):
        put("group_norm", **{name: nn.GroupNorm(3, 12, affine=False, pytorch_compatible=compatible)(x)})


def attention():
    q, k, v = normal(2, 4, 5, 32), normal(2, 2, 9, 32), normal(2, 2, 9, 32)
    put("sdpa", q=q, k=k, v=v)
    fast = mx.fast.scaled_dot_product_attention
    put("sdpa", causal=fast(q, k, v, scale=0.2, mask="causal"))
    put("sdpa", window=fast(q, k, v, scale=0.2, mask=create_causal_mask(5, 4, window_size=3)))
    dead = mx.array(np.arange(45).reshape(5, 9) >= 9)
    put("sdpa", dead_bool=fast(q, k, v, scale=0.2, mask=dead))
    put("sdpa", dead_additive=fast(q, k, v, scale=0.2, mask=mx.where(dead, 0.0, -mx.inf)))
    put("sdpa", dead_causal=fast(q, k[:, :, :3], v[:, :, :3], scale=0.2, mask="causal"))
    sinks = normal(4)
    put("sdpa", sinks=sinks, sink=fast(q, k, v, scale=0.2, mask="causal", sinks=sinks))
    packed = [mx.quantize(t, group_size=32, bits=4) for t in (k, v)]
    for name, parts in zip("kv", packed):
        put(f"sdpa.{name}4", words=parts[0], scales=parts[1], biases=parts[2])
    # The reference scales its argument in place.
    copy = q + 0
    put("sdpa", quantized=quantized_scaled_dot_product_attention(copy, *packed, 0.2, "causal", 32, 4))


ROPES = {
    "default": {},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 16, "beta_slow": 2, "mscale": 0.8, "mscale_all_dim": 0.3},
    "longrope": {"rope_type": "longrope", "original_max_position_embeddings": 64, "short_factor": [1.0] * 16, "long_factor": [1.0 + 0.25 * i for i in range(16)]},
    "proportional": {"rope_type": "proportional", "factor": 2.0, "partial_rotary_factor": 0.5},
}


def rotary():
    x = normal(2, 2, 7, 40)
    put("rope", x=x)
    for name, config in ROPES.items():
        for offset in (0, 300):
            rope = initialize_rope(32, 10000.0, False, config or None, 256)
            put(f"rope.{name}", **{str(offset): rope(x, offset=offset)})
    put("rope", traditional=mx.fast.rope(x, 32, traditional=True, base=10000.0, scale=1.0, offset=mx.array([3, 50])))


def losses():
    x, t = normal(6, 50, scale=4.0), mx.array([0, 49, 7, 7, 12, 3])
    put("cross_entropy", x=x, targets=np.array(t).astype(np.int64))
    put("cross_entropy", smoothed=nn.losses.cross_entropy(x, t, label_smoothing=0.2))
    x, w = normal(2, 11, 6), normal(4, 3, 3)
    put("conv1d", x=x, w=w, y=mx.conv1d(x, w, stride=2, padding=2, dilation=2, groups=2))
    put("topk", x=normal(4, 30))
    put("topk", y=np.sort(np.array(mx.topk(mx.array(T["topk.x"]), 5)), axis=-1))


def main():
    for part in (quantization, products, fp8, norms, attention, rotary, losses):
        part()
    write("mlx_ops", T, COMMAND)


if __name__ == "__main__":
    main()
