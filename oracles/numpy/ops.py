"""Ops of more than one element in NumPy, each written from its definition and summed in extended precision.

python oracles/numpy/ops.py        (needs numpy, on a machine whose long double is wider than double)
"""

import math

import numpy as np

from fixture import write

COMMAND = "python oracles/numpy/ops.py"
L = np.longdouble
assert np.finfo(L).nmant > 52, "long double is double here"
RNG = np.random.default_rng(20240229)
T = {}


def normal(*shape, scale=1.0, offset=0.0):
    return (RNG.standard_normal(shape) * scale + offset).astype(np.float32).astype(np.float64)


def put(name, **tensors):
    for key, value in tensors.items():
        array = np.asarray(value)
        T[f"{name}.{key}"] = array.astype(np.float64) if array.dtype == L else array


def exact_sum(x, axis):
    return np.apply_along_axis(math.fsum, axis, x)


def special():
    edge = np.array([-np.inf, -7.0, -2.5, -1.0, -0.0, 0.0, 0.1, 1.0, 2.0, 7.0, 1e20, np.inf, np.nan])
    a, b = edge[:, None], edge[None, :]
    with np.errstate(all="ignore"):
        put("floor_divide", a=a, b=b, y=np.floor_divide(a, b))
        put("remainder", a=a, b=b, y=np.remainder(a, b))
        put("fmod", y=np.fmod(a, b))
        put("power_special", y=np.power(a, b))
        put("div", y=a / b)


def reductions():
    x = normal(3, 257, 5, offset=1e6, scale=10.0)
    mean = exact_sum(x, 1) / 257
    squares = ((x.astype(L) - np.mean(x.astype(L), axis=1, keepdims=True)) ** 2).sum(axis=1)
    put("reduce", x=x, sum=exact_sum(x, 1), mean=mean, var=squares / L(257), var1=squares / L(256))
    put("reduce", max=x.max(axis=(0, 2)), min=x.min(axis=(0, 2)), argmax=x.argmax(axis=1), argmin=x.argmin(axis=1))
    nan = normal(6, 40)
    nan[1:][RNG.random((5, 40)) < 0.1] = np.nan
    nan[0, :3] = nan[0, 3] = 9.0
    nan[1, 0] = nan[2, -1] = np.nan
    put("nan", x=nan, max=nan.max(axis=1), min=nan.min(axis=1), argmax=nan.argmax(axis=1), argmin=nan.argmin(axis=1))
    put("nan", sort=np.sort(nan, axis=1), argsort=np.argsort(nan, axis=1, kind="stable"))
    put("nan", cummax=np.maximum.accumulate(nan, axis=1))
    x = normal(4, 33, 3)
    put("cumsum", x=x, y=np.cumsum(x.astype(L), axis=1), reverse=np.cumsum(x[:, ::-1].astype(L), axis=1)[:, ::-1])


def rows():
    x = normal(4, 2049, scale=8.0)
    e = np.exp(x.astype(L) - x.max(axis=1, keepdims=True))
    put("softmax", x=x, y=e / e.sum(axis=1, keepdims=True), logsumexp=np.log(e.sum(axis=1)) + x.max(axis=1))
    targets = np.array([0, 2048, 77, 1000])
    s = L("0.1")
    lse = np.log(e.sum(axis=1)) + x.max(axis=1)
    score = x.astype(L)[np.arange(4), targets]
    put("cross_entropy", targets=targets, plain=lse - score)
    # The smoothing as float64 holds it.
    s = L(0.1)
    put("cross_entropy", smoothed=lse - (1 - s) * score - s * x.astype(L).mean(axis=1))


def norms():
    x = normal(5, 96, offset=3.0)
    w, b = normal(96), normal(96)
    xl = x.astype(L)
    rms = xl / np.sqrt((xl**2).mean(axis=1, keepdims=True) + L(1e-6))
    put("norm", x=x, w=w, b=b, rms=rms * w, rms1=rms * (1 + w.astype(L)))
    mean, var = xl.mean(axis=1, keepdims=True), xl.var(axis=1, keepdims=True)
    put("norm", layer=(xl - mean) / np.sqrt(var + L(1e-5)) * w + b)


def moves():
    x = normal(4, 6, 3)
    index = np.array([[3, -1, 0], [2, 2, -6]])
    put("take", x=x, index=index, y=np.take(x, index, axis=1))
    along = RNG.integers(-6, 6, (4, 2, 3))
    put("take_along", index=along, y=np.take_along_axis(x, along, axis=1))
    picks, updates = np.array([5, 0, 5, -1, 2]), normal(4, 5, 3)
    out = x.copy()
    for i, pick in enumerate(picks):
        out[:, pick] += updates[:, i]
    put("scatter", index=picks, updates=updates, y=out)
    put("slice", y=x[1:4:2, ::-2, 0:2])
    update = x.copy()
    update[1:4:2, ::-2, 0:2] = -1.5
    put("slice", update=update)


def products():
    a, b = normal(2, 1, 5, 513), normal(3, 513, 4)
    put("matmul", a=a, b=b, y=a.astype(L) @ b.astype(L), condition=np.abs(a) @ np.abs(b))
    c = normal(5, 4)
    put("addmm", c=c, y=L(0.5) * (a.astype(L) @ b.astype(L)) - 2 * c.astype(L))


def convolution():
    x, w = normal(2, 17, 6), normal(4, 3, 3)
    stride, padding, dilation, groups = 2, 2, 2, 2
    padded = np.pad(x, ((0, 0), (padding, padding), (0, 0))).astype(L)
    positions = (padded.shape[1] - dilation * 2 - 1) // stride + 1
    y = np.zeros((2, positions, 4), dtype=L)
    for p in range(positions):
        for o in range(4):
            g = o // 2
            part = padded[:, p * stride : p * stride + 2 * dilation + 1 : dilation, 3 * g : 3 * g + 3]
            y[:, p, o] = (part * w[o]).sum(axis=(1, 2))
    put("conv1d", x=x, w=w, y=y)


def attention():
    B, H, K, Q, S, D, V = 2, 6, 2, 5, 9, 16, 8
    q, k, v = normal(B, H, Q, D), normal(B, K, S, D), normal(B, K, S, V)
    sinks = normal(H)
    added = normal(B, 1, Q, S)
    shown = RNG.random((B, H, Q, S)) < 0.6
    shown[..., 0] = True
    put("sdpa", q=q, k=k, v=v, sinks=sinks, added=added, shown=shown)
    kl, vl = (np.repeat(t.astype(L), H // K, axis=1) for t in (k, v))
    scores = np.einsum("bhqd,bhsd->bhqs", q.astype(L), kl) * L(0.25)
    row, column = np.arange(Q)[:, None] + S - Q, np.arange(S)[None]
    causal = column <= row

    def answer(scores, sinks=None):
        top = scores.max(axis=-1, keepdims=True)
        if sinks is not None:
            top = np.maximum(top, sinks[None, :, None, None])
        e = np.exp(scores - top)
        total = e.sum(axis=-1, keepdims=True)
        if sinks is not None:
            total = total + np.exp(sinks.astype(L)[None, :, None, None] - top)
        return (e / total) @ vl

    def hide(mask):
        return np.where(mask, scores, -np.inf)

    put(
        "sdpa",
        none=answer(scores),
        causal=answer(hide(causal)),
        top_left=answer(hide(column <= np.arange(Q)[:, None])),
        window=answer(hide(causal & (row - column < 3))),
        bool=answer(hide(shown)),
        additive=answer(scores + added),
        sink=answer(hide(causal), sinks),
    )


def rotary():
    x = normal(2, 3, 4, 20)
    offsets, dims, base, scale = np.array([1000, -3]), 16, 500000.0, 0.25
    i = np.arange(dims // 2)
    inverse = L(base) ** (-(2 * i).astype(L) / dims)
    position = (offsets[:, None] + np.arange(4)).astype(L) * L(scale)
    angle = (position[..., None] * inverse)[:, None]
    cos, sin = np.cos(angle), np.sin(angle)
    for name, (first, second) in {"halves": (i, i + 8), "pairs": (2 * i, 2 * i + 1)}.items():
        y = x.astype(L)
        a, b = x[..., first], x[..., second]
        y[..., first], y[..., second] = a * cos - b * sin, a * sin + b * cos
        put("rope", **{name: y})
    put("rope", x=x, offsets=offsets)


def main():
    for part in (special, reductions, rows, norms, moves, products, convolution, attention, rotary):
        part()
    write("ops", T, COMMAND)


if __name__ == "__main__":
    main()
