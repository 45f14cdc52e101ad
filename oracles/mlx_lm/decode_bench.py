"""mlx-lm's side of `cargo xtask bench decode` and `bench caches`: loads a folder, then plays a turn for each line.

    {"ids": [...], "tokens": 128, "options": {"kv_bits": 8, "quantized_kv_start": 0}}
    {"prefill": seconds, "decode": seconds, "ids": [...]}

A turn is `generate_step` with its greedy sampler and the options, if any, from the prompt's ids to the
last new one; prefill ends with the first.
"""

import json
import sys
import time
from pathlib import Path


def main():
    import mlx.core as mx
    from mlx_lm.generate import generate_step
    from mlx_lm.utils import load_model

    model, _config = load_model(Path(sys.argv[1]), lazy=False)
    model.eval()
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        prompt = mx.array(request["ids"])
        first, ids = None, []
        options = request.get("options", {})
        start = time.perf_counter()
        for token, _logprobs in generate_step(
            prompt, model, max_tokens=request["tokens"], **options
        ):
            if first is None:
                first = time.perf_counter()
            ids.append(token)
        end = time.perf_counter()
        print(json.dumps({"prefill": first - start, "decode": end - first, "ids": ids}), flush=True)


if __name__ == "__main__":
    main()
