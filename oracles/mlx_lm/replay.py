"""Replaying a model: prompts split as mlx-lm's `generate_step` splits them, then single steps.

The loop is shared by the oracles that answer `freeze`; what they do between the calls is theirs.
"""

import itertools


def prompt_ids(prompt, folder):
    """The ids of a prompt, which is {"ids": [...]} or {"text": "..."}."""
    if "ids" in prompt:
        return list(prompt["ids"])
    from mlx_lm.utils import load_tokenizer
    from pathlib import Path

    tokenizer = load_tokenizer(Path(folder))
    return list(tokenizer.encode(prompt["text"]))


def split(request):
    """The ids of the prompt, and those of the steps where they are forced."""
    ids = prompt_ids(request["prompt"], request["model"])
    if not request["forced"]:
        return ids, []
    count = request["steps"]
    if len(ids) <= count:
        raise ValueError(f"{len(ids)} prompt tokens, wanted more than the {count} forced steps")
    return ids[:len(ids) - count], ids[len(ids) - count:]


def replay(request, model, cache, before=lambda _count: None, after=lambda _cache: None):
    """Runs the prompt and the steps of a freeze request: tensors, prompt ids, step ids.

    `before` is told how many tokens the next call takes; `after` may put other caches in the list,
    as `generate_step` does with its `quantize_cache_fn`.
    """
    import mlx.core as mx
    from taps import Taps

    ids, forced = split(request)
    wanted = request.get("taps")
    taps = Taps(model) if wanted is not None else None
    tensors = {}
    tapped = itertools.count()

    def forward(tokens, step):
        before(len(tokens))
        watch = taps if taps and wanted["step"] == step else None
        if watch:
            watch.start()
        logits = model(mx.array(tokens)[None], cache=cache)
        after(cache)
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
    for step in range(1, request["steps"] + 1):
        # The sampler of generate_step sees log-probabilities in the model's dtype.
        greedy = mx.argmax(last - mx.logsumexp(last, keepdims=True)).item()
        steps.append(forced[step - 1] if forced else greedy)
        last = forward([steps[-1]], step)[-1]
        decoded.append(last)
    if decoded:
        tensors["decode.logits"] = mx.stack(decoded)
    return tensors, ids, steps
