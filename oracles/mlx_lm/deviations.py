"""Where mlx-lm is wrong: what it answers, beside the right value, along a path its fault does not touch.

    {"protocol": 1, "id": 2, "request": "deviation", "deviation": NAME, "model": DIR,
     "draft": DIR or null, "prompt": [ids], "steps": 6, "prefill_step": 24, "out": FILE}
    {"protocol": 1, "id": 2, "reply": "deviated", "happened": "...", "composition": {...}}

The file holds `reference`, mlx-lm's answer, and `right`: logits, the ids of a generation, or what an op
gives, whose operands are there too as `operand.<n>`. The last `steps` ids of the prompt are single steps;
a generation goes on for `steps` tokens behind all of it.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))

from protocol import describe_cache, save  # noqa: E402

KEPT_WINDOW = 16
DRAFT_TOKENS = 3


def load(folder):
    from pathlib import Path

    from mlx_lm.utils import load_model

    model, _config = load_model(Path(folder), lazy=False)
    model.eval()
    return model


def prefilled(model, cache, ids, step):
    """All logits of a prompt, split as `generate_step` splits it."""
    import mlx.core as mx

    rows, done = [], 0
    while done < len(ids):
        left = len(ids) - done
        count = min(step, left - 1) if left > 1 else 1
        rows.append(model(mx.array(ids[done:done + count])[None], cache=cache)[0])
        mx.eval(rows[-1], [layer.state for layer in cache])
        done += count
    return mx.concatenate(rows)


def stepped(model, cache, ids):
    """The logits of single steps."""
    return prefilled(model, cache, ids, 1)


def split(request):
    count = request["steps"]
    return request["prompt"][:-count], request["prompt"][-count:]


def again(request, trim):
    """The last steps, then trimmed away, then the same steps again: right is the first time."""
    from mlx_lm.models.cache import make_prompt_cache

    model = load(request["model"])
    cache = make_prompt_cache(model)
    prompt, steps = split(request)
    prefilled(model, cache, prompt, request["prefill_step"])
    right = stepped(model, cache, steps)
    happened = trim(cache, len(steps))
    return stepped(model, cache, steps), right, happened, cache


def trim_after_wrap(request):
    """RotatingKVCache.trim of a ring that has turned says it trimmed (mlx-lm#1512)."""
    def trim(cache, count):
        told = [layer.trim(count) for layer in cache]
        return f"trim({count}) of every cache returned {told}"

    return again(request, trim)


def mixed_trim(request):
    """trim_prompt_cache does nothing where one cache cannot be trimmed, and says so by a 0 alone."""
    def trim(cache, count):
        from mlx_lm.models.cache import trim_prompt_cache

        return f"trim_prompt_cache({count}) returned {trim_prompt_cache(cache, count)}"

    return again(request, trim)


def kept_prefix(request):
    """RotatingKVCache.make_mask lets a call of several tokens see nothing of the prefix it keeps."""
    import mlx.core as mx
    from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache

    class Seen(RotatingKVCache):
        """The kept prefix in sight, and of the others as many as single steps see."""

        def make_mask(self, N, window_size=None, return_array=False):
            if N == 1:
                return super().make_mask(N, window_size, return_array)
            offset = min(self.max_size - 1, self.offset)
            columns = mx.arange(offset + N)[None]
            rows = mx.arange(offset, offset + N)[:, None]
            near = rows < columns + (self.max_size - self.keep)
            return (rows >= columns) & (near | (columns < self.keep))

    model = load(request["model"])
    cache = make_prompt_cache(model, max_kv_size=KEPT_WINDOW)
    reference = prefilled(model, cache, request["prompt"], request["prefill_step"])
    seen = [Seen(max_size=layer.max_size, keep=layer.keep) for layer in cache]
    right = prefilled(model, seen, request["prompt"], request["prefill_step"])
    return reference, right, f"the mask hides {cache[0].keep} kept positions", cache


def speculative(request):
    """Speculative decoding over a ring that turns: rejected tokens stay (mlx-lm#1423)."""
    import mlx.core as mx
    from mlx_lm.generate import generate_step, speculative_generate_step
    from mlx_lm.models.cache import make_prompt_cache

    model, draft = load(request["model"]), load(request["draft"])
    prompt, count = mx.array(request["prompt"]), request["steps"]
    cache = make_prompt_cache(model)
    told = [token for token, _, _ in speculative_generate_step(
        prompt, model, draft, num_draft_tokens=DRAFT_TOKENS, max_tokens=count,
        prompt_cache=cache + make_prompt_cache(draft))]
    greedy = [token for token, _ in generate_step(prompt, model, max_tokens=count)]
    same = next((at for at, (a, b) in enumerate(zip(told, greedy)) if a != b), len(greedy))
    happened = f"the first {same} of {count} tokens are those of greedy decoding"
    return mx.array(told, mx.uint32), mx.array(greedy, mx.uint32), happened, cache


def padded_batch(request):
    """gemma2's scores have five axes, its mask four: with as many rows as kv heads, rows are mixed."""
    import mlx.core as mx
    from mlx_lm.models.cache import BatchKVCache, make_prompt_cache

    model = load(request["model"])
    prompt, steps = split(request)
    rows = [prompt, prompt[len(prompt) // 2:]]
    if model.args.num_key_value_heads != len(rows):
        raise ValueError(f"{model.args.num_key_value_heads} kv heads, wanted {len(rows)}")
    # The last id of both prompts is the first single step.
    rows, steps = [row[:-1] for row in rows], prompt[-1:] + steps
    width = max(map(len, rows))
    padding = [width - len(row) for row in rows]
    cache = [BatchKVCache(padding) for _ in model.layers]
    model(mx.array([[0] * pad + row for pad, row in zip(padding, rows)]), cache=cache)
    found = [model(mx.array([[step]] * len(rows)), cache=cache)[1] for step in steps]
    alone = make_prompt_cache(model)
    model(mx.array([rows[1]]), cache=alone)
    right = [model(mx.array([[step]]), cache=alone)[0] for step in steps]
    return (mx.concatenate(found), mx.concatenate(right),
            f"the second of {len(rows)} rows, {padding[1]} of {width} positions padding", alone)


def scaled_in_place(request):
    """quantized_scaled_dot_product_attention scales the caller's queries (mlx-lm#1558)."""
    import mlx.core as mx
    from mlx_lm.models.base import quantized_scaled_dot_product_attention
    from mlx_lm.models.cache import make_prompt_cache

    model = load(request["model"])
    cache = make_prompt_cache(model)
    prefilled(model, cache, request["prompt"], request["prefill_step"])
    keys, values = cache[0].keys_and_values()
    # Keys that ask for themselves: the values of a real layer, in arrays of the caller's own.
    queries, operand = mx.contiguous(keys), mx.array(keys)
    packed = [mx.quantize(x, group_size=32, bits=8) for x in (keys, values)]
    operands = [operand, *packed[0], *packed[1]]
    mx.eval(queries, operands)

    def attend():
        out = quantized_scaled_dot_product_attention(queries, *packed, scale=0.25, mask="causal",
                                                     group_size=32, bits=8)
        mx.eval(out)
        return out

    right = attend()
    second = attend()
    happened = "the second call with the same arrays answers otherwise"
    return second, right, happened, cache, operands


DEVIATIONS = {"trim-after-wrap": trim_after_wrap, "mixed-trim": mixed_trim,
              "kept-prefix": kept_prefix, "speculative": speculative, "padded-batch": padded_batch,
              "scaled-in-place": scaled_in_place}


def deviation(request):
    """Answers the request; refuses where reference and right value are the same."""
    import mlx.core as mx

    answer = DEVIATIONS[request["deviation"]](request)
    reference, right, happened, cache, *operands = answer
    mx.eval(reference, right)
    if reference.shape == right.shape and mx.array_equal(reference, right).item():
        raise ValueError(f"mlx-lm does not deviate here ({happened})")
    named = {f"operand.{at}": x for at, x in enumerate(operands[0] if operands else [])}
    save(request["out"], {"reference": reference, "right": right, **named})
    composition = {
        "cache": [describe_cache(layer) for layer in cache],
        "prefill-step": request["prefill_step"],
        "batch": 1,
        "attention": "mx.fast.scaled_dot_product_attention",
        "kernels": [],
    }
    return {"reply": "deviated", "happened": happened, "composition": composition}
