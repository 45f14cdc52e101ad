"""The mlx-lm oracle: answers freeze requests with greedy ids and raw logits.

Protocol 1 as `oracles/protocol.py` speaks it, with the requests

    {"protocol": 1, "id": 2, "request": "freeze", "model": DIR, "prompt": {"ids": [...]},
     "steps": 32, "forced": false, "prefill_step": 2048, "out": FILE, "taps": null,
     "adapter": null}
    {"protocol": 1, "id": 2, "reply": "frozen", "prompt": [...], "steps": [...],
     "composition": {...}}

    {"protocol": 1, "id": 3, "request": "inventory", "config": FILE}
    {"protocol": 1, "id": 3, "reply": "inventory", "tensors": [...], "digests": {...}}

`prompt` may be {"text": "..."} instead. Steps are greedy, or, where "forced", the last ids of the
prompt one at a time; the answer's "prompt" then ends before them. With "taps": {"step": k} (0 is the prefill) the file also
holds the named intermediates of that step as `tap.<call>.<name>`, the calls of a split prefill
counted from 0. "adapter" is "mounted" or "fused" where the LoRA adapter in the model's folder
`adapters` is to be. Tensors are written in the model's own dtype.
"""

import itertools
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


def prompt_ids(prompt, folder):
    if "ids" in prompt:
        return list(prompt["ids"])
    from mlx_lm.utils import load_tokenizer
    from pathlib import Path

    tokenizer = load_tokenizer(Path(folder))
    return list(tokenizer.encode(prompt["text"]))


def freeze(request):
    """Prefill as mlx-lm's generate_step splits it, then single steps; keeps every logit row."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache
    from taps import Taps

    folder = request["model"]
    model = load_model(folder, request.get("adapter"))
    ids = prompt_ids(request["prompt"], folder)
    count = request["steps"]
    forced = []
    if request["forced"]:
        if len(ids) <= count:
            raise ValueError(f"{len(ids)} prompt tokens, wanted more than the {count} forced steps")
        ids, forced = ids[:len(ids) - count], ids[len(ids) - count:]
    cache = make_prompt_cache(model)
    wanted = request.get("taps")
    taps = Taps(model) if wanted is not None else None
    tensors = {}
    tapped = itertools.count()

    def forward(tokens, step):
        watch = taps if taps and wanted["step"] == step else None
        if watch:
            watch.start()
        logits = model(mx.array(tokens)[None], cache=cache)
        mx.eval(logits, [layer.state for layer in cache])
        if watch:
            call = next(tapped)
            named = {**watch.stop(), "logits": logits}
            tensors.update({f"tap.{call}.{name}": value for name, value in named.items()})
        return logits[0]

    rows, done = [], 0
    while len(ids) - done > 1:
        chunk = ids[done:done + min(request["prefill_step"], len(ids) - done - 1)]
        rows.append(forward(chunk, 0))
        done += len(chunk)
    rows.append(forward(ids[done:], 0))
    tensors["prefill.logits"] = mx.concatenate(rows, axis=0)

    steps, decoded = [], []
    last = rows[-1][-1]
    for step in range(1, count + 1):
        # The sampler of generate_step sees log-probabilities in the model's dtype.
        greedy = mx.argmax(last - mx.logsumexp(last, keepdims=True)).item()
        steps.append(forced[step - 1] if forced else greedy)
        last = forward([steps[-1]], step)[-1]
        decoded.append(last)
    if decoded:
        tensors["decode.logits"] = mx.stack(decoded)

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


REQUESTS = {"hello": hello, "freeze": freeze, "inventory": inventory}


if __name__ == "__main__":
    serve(REQUESTS)
