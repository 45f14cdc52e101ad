"""Elementwise functions at 60 digits, rounded once to float64.

python oracles/numpy/unary.py        (needs mpmath, numpy)
"""

import numpy as np
from mpmath import erf, erfc, exp, expm1, log, log1p, mp, mpf, cos, power, sin, sqrt, tanh

from fixture import write

mp.dps = 60
COMMAND = "python oracles/numpy/unary.py"


def sigmoid(x):
    return 1 / (1 + exp(-x))


SIGNED = [s * v for v in (1e-300, 1e-12, 1e-3, 0.1, 0.5, 0.843, 1.0, 1.7, 2.5, 4.0, 7.3, 11.0, 20.0, 36.0) for s in (-1, 1)]
POSITIVE = [v for v in SIGNED if v > 0] + [1e-30, 0.999, 1.001, 123.456, 65504.0, 3.0e38]
ABOVE_MINUS_ONE = [v for v in SIGNED if v > -1] + [-0.999999, 1e10]
ANGLES = SIGNED + [3.141592653589793, 22.0, 355.0, 1e5, -8.3e8, 1.2345e22]

# 1 + tanh(u) = 2 sigmoid(2u), which 60 digits do not cancel.
OPS = {
    "exp": (exp, SIGNED + [-700.0, 700.0]),
    "log": (log, POSITIVE),
    "log1p": (log1p, ABOVE_MINUS_ONE),
    "expm1": (expm1, SIGNED),
    "sqrt": (sqrt, POSITIVE),
    "rsqrt": (lambda x: 1 / sqrt(x), POSITIVE),
    "sin": (sin, ANGLES),
    "cos": (cos, ANGLES),
    "tanh": (tanh, SIGNED),
    "sigmoid": (sigmoid, SIGNED + [-300.0]),
    "erf": (erf, SIGNED),
    "silu": (lambda x: x * sigmoid(x), SIGNED + [-300.0]),
    "gelu": (lambda x: x * erfc(-x / sqrt(2)) / 2, SIGNED),
    "gelu_tanh": (lambda x: x * sigmoid(2 * sqrt(2 / mp.pi) * (x + mpf("0.044715") * x**3)), SIGNED),
    "gelu_fast": (lambda x: x * sigmoid(mpf("1.702") * x), SIGNED),
    "relu2": (lambda x: max(x, mpf(0)) ** 2, SIGNED),
    "softplus": (lambda x: log1p(exp(x)), SIGNED),
}


def main():
    tensors = {}
    for name, (f, points) in OPS.items():
        x = np.array(sorted(set(points)), dtype=np.float64)
        tensors[f"{name}.x"] = x
        tensors[f"{name}.y"] = np.array([float(f(mpf(float(v)))) for v in x], dtype=np.float64)
    base = np.array([0.5, 1.0001, 2.0, 10.0, 123.456], dtype=np.float64)
    exponent = np.array([[-30.5], [-1.0], [0.0], [0.3333], [2.0], [55.5]], dtype=np.float64)
    tensors["power.a"], tensors["power.b"] = base, exponent
    tensors["power.y"] = np.array(
        [[float(power(mpf(float(a)), mpf(float(b)))) for a in base] for (b,) in exponent]
    )
    write("unary", tensors, COMMAND)


if __name__ == "__main__":
    main()
