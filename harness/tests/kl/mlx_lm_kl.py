"""KL of two models at every position of a list of ids, by mlx-lm and NumPy in float64.

usage: mlx_lm_kl.py TEACHER STUDENT IDS.json WINDOW
Prints {"kl": [...], "agree": [...], "nll": [...]} of positions 0 .. len(ids) - 2, each window seen alone.
"""

import json
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model


def log_probabilities(model, ids):
    logits = model(mx.array([ids]), cache=make_prompt_cache(model))[0].astype(mx.float32)
    x = np.array(logits).astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return np.array(logits), x - np.log(np.exp(x).sum(axis=1, keepdims=True))


teacher, student = (load_model(Path(folder))[0] for folder in sys.argv[1:3])
ids = json.loads(Path(sys.argv[3]).read_text())
window = int(sys.argv[4])
found = {"kl": [], "agree": [], "nll": []}
for start in range(0, len(ids) - 1, window):
    part = ids[start : min(start + window, len(ids) - 1)]
    targets = np.array(ids[start + 1 : start + 1 + len(part)])
    (a, p), (b, q) = log_probabilities(teacher, part), log_probabilities(student, part)
    found["kl"] += (np.exp(p) * (p - q)).sum(axis=1).tolist()
    best_a, best_b = (x == x.max(axis=1, keepdims=True) for x in (a, b))
    found["agree"] += (best_a & best_b).any(axis=1).tolist()
    found["nll"] += (-p[np.arange(len(part)), targets]).tolist()
print(json.dumps(found))
