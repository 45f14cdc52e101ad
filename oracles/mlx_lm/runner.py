"""The mlx-lm oracle: answers freeze requests with greedy ids and raw logits.

Protocol 1 as `oracles/protocol.py` speaks it, with the requests

    {"protocol": 1, "id": 2, "request": "freeze", "model": DIR, "prompt": {"ids": [...]},
     "steps": 32, "forced": false, "prefill_step": 2048, "out": FILE, "taps": null,
     "adapter": null}
    {"protocol": 1, "id": 2, "reply": "frozen", "prompt": [...], "steps": [...],
     "composition": {...}}

    {"protocol": 1, "id": 3, "request": "inventory", "config": FILE}
    {"protocol": 1, "id": 3, "reply": "inventory", "tensors": [...], "digests": {...}}

and `deviation` as `deviations.py` has it.

`prompt` may be {"text": "..."} instead. Steps are greedy, or, where "forced", the last ids of the
prompt one at a time; the answer's "prompt" then ends before them. With "taps": {"step": k} (0 is the prefill) the file also
holds the named intermediates of that step as `tap.<call>.<name>`, the calls of a split prefill
counted from 0. "adapter" is "mounted" or "fused" where the LoRA adapter in the model's folder
`adapters` is to be. Tensors are written in the model's own dtype.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

from protocol import describe_cache, greeting, save, serve  # noqa: E402

PACKAGES = ("mlx", "mlx-lm", "numpy", "transformers", "tokenizers")


def hello(_request):
    import mlx_lm.generate  # noqa: F401  (an import that fails must fail here, not at the first freeze)

    return greeting("mlx-lm", PACKAGES)


def load_model(folder, adapter=None):
    from pathlib import Path

    from mlx_lm.utils import load_adapters, load_model as load

    model, _config = load(Path(folder), lazy=False)
    if adapter is not None:
        model = load_adapters(model, os.path.join(folder, "adapters"))
    model.eval()
    return fused(model) if adapter == "fused" else model


def fused(model):
    """The model with its LoRA layers fused, as `mlx_lm.fuse` does."""
    from mlx.utils import tree_unflatten

    layers = [(name, module.fuse(dequantize=False)) for name, module in model.named_modules()
              if hasattr(module, "fuse")]
    model.update_modules(tree_unflatten(layers))
    return model


def freeze(request):
    """Prefill as mlx-lm's generate_step splits it, then single steps; keeps every logit row."""
    from mlx_lm.models.cache import make_prompt_cache
    from replay import replay

    if request.get("composition") is not None:
        raise ValueError("mlx-lm is asked for plain caches only, not for a composition")
    model = load_model(request["model"], request.get("adapter"))
    cache = make_prompt_cache(model)
    tensors, ids, steps = replay(request, model, cache)
    save(request["out"], tensors)
    composition = {
        "cache": [describe_cache(layer) for layer in cache],
        "prefill-step": request["prefill_step"],
        "batch": 1,
        "attention": "mx.fast.scaled_dot_product_attention",
        "kernels": [],
    }
    return {"reply": "frozen", "prompt": ids, "steps": steps, "composition": composition}


def inventory(request):
    """The tensors that a config's model class wants, and the digests of their synthetic values."""
    from inventory import inventory as answer_inventory

    return answer_inventory(request)


def deviation(request):
    """Where mlx-lm is wrong, as `deviations.py` has it."""
    from deviations import deviation as deviate

    return deviate(request)


REQUESTS = {"hello": hello, "freeze": freeze, "deviation": deviation, "inventory": inventory}


if __name__ == "__main__":
    serve(REQUESTS)
