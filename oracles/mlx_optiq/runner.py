"""The mlx-optiq oracle: replays a model under a composition, or denoises a canvas.

Protocol 1 as `oracles/protocol.py` speaks it, with `freeze` as `oracles/mlx_lm/runner.py` has it and
"composition" as `composition.py` reads it, and the request

    {"protocol": 1, "id": 2, "request": "denoise", "model": DIR, "prompt": [ids], "out": FILE,
     "max_tokens": 48, "steps": 8, "seed": 7, "temperature": 0.7, "sampler": "entropy-bound",
     "threshold": 0.9, "min_canvas": 16, "max_canvas": null, "prefill_step": null, "stop": [ids],
     "taps": null}
    {"protocol": 1, "id": 2, "reply": "denoised", "ids": [...], "canvas_steps": [8, 8],
     "composition": {...}}

and `inventory` as `oracles/mlx_lm/runner.py` answers it, for mlx-optiq's own model classes where it has
them.

Denoising, the loop is mlx-optiq's own `stream_diffusion_generate`; its helpers are watched while it
runs. The file holds, for step s of canvas c, `canvas.<c>.step.<s>.` with `tokens` (the canvas the model
sees), `logits` (raw, in the model's own dtype), `conditioning` (the soft embeddings it is given, from
the second step on), and, but for the last step, `uncertainty` (entropies, or confidences of the sampled
tokens) and `committed` (the positions that keep their token). With "taps": {"step": n}, n counted from 1
over all canvases, it also holds the named intermediates of that step as `tap.0.<name>`.
"""

import os
import sys

HERE = os.path.dirname(__file__)
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "mlx_lm")]

from protocol import describe_cache, greeting, save, serve  # noqa: E402

PACKAGES = ("mlx", "mlx-lm", "mlx-optiq", "numpy", "transformers", "tokenizers")


def optiq():
    """The denoising loop and the loader, without what their packages import besides.

    `optiq.vlm` and some packages below it import image processors, and with them Pillow and
    torchvision, which text needs nowhere. Bare packages in their place keep the modules importable;
    the code that runs is mlx-optiq's, unchanged.
    """
    import importlib
    import types

    import optiq as package

    root = os.path.dirname(package.__file__)
    models = "optiq.vlm._mlxvlm.models"
    for name in ("optiq.vlm", "optiq.vlm.diffusion_gemma", f"{models}.diffusion_gemma",
                 f"{models}.gemma4", f"{models}.qwen3_vl"):
        if name not in sys.modules:
            bare = types.ModuleType(name)
            bare.__path__ = [os.path.join(root, *name.split(".")[1:])]
            sys.modules[name] = bare
    return (importlib.import_module("optiq.vlm._mlxvlm.generate.diffusion"),
            importlib.import_module("optiq.vlm.diffusion_gemma.loader"))


def hello(_request):
    optiq()  # an import that fails must fail here, not at the first question
    return greeting("mlx-optiq", PACKAGES)


class Text:
    """In the place of a tokenizer: ids end where they are told to, and no text is made of them."""

    last_segment = ""

    def __init__(self, stop):
        self.stop = set(stop)
        self.detokenizer = self
        self.stopping_criteria = self

    def __call__(self, token):
        return token in self.stop

    def add_eos_token_ids(self, ids):
        self.stop.update([ids] if isinstance(ids, int) else ids)

    def reset(self):
        pass

    def finalize(self):
        pass

    def add_token(self, _token, skip_special_token_ids=None):
        pass


class Watch:
    """Records what the loop hands to its helpers and gets back, canvas by canvas, step by step."""

    def __init__(self, loop, taps=None, tapped_step=None):
        self.loop = loop
        self.taps = taps
        self.tapped_step = tapped_step
        self.tensors = {}
        self.canvas_steps = []
        self.lengths = []
        self.total = 0
        self.caches = []
        self.undo = []

    def __enter__(self):
        self._wrap("_make_diffusion_decoder_logits_fns", self._logits_fns)
        self._wrap("_diffusion_entropy_and_soft_embeddings", self._entropy)
        self._wrap("_diffusion_entropy_transfer_mask", self._committed)
        self._wrap("_diffusion_token_probability", self._confidence)
        self._wrap("_diffusion_confidence_transfer_mask", self._committed)
        return self

    def __exit__(self, *_):
        for name, original in reversed(self.undo):
            setattr(self.loop, name, original)

    def _wrap(self, name, watched):
        original = getattr(self.loop, name)
        self.undo.append((name, original))
        setattr(self.loop, name, watched(original))

    def _keep(self, name, value):
        name = f"canvas.{len(self.canvas_steps)}.step.{self.canvas_steps[-1]}.{name}"
        if name in self.tensors:
            raise ValueError(f"{name} was given twice")
        self.tensors[name] = value[0]

    def _logits_fns(self, original):
        def make(model, kv_cache, *args, **kwargs):
            self.caches = kv_cache
            self.canvas_steps.append(0)
            without, given = original(model, kv_cache, *args, **kwargs)
            return self._step(without), self._step(given)

        return make

    def _step(self, original):
        def step(canvas, conditioning=None):
            self.total += 1
            self.canvas_steps[-1] += 1
            if self.canvas_steps[-1] == 1:
                self.lengths.append(canvas.shape[1])
            watch = self.taps if self.total == self.tapped_step else None
            if watch:
                watch.start()
            logits = original(canvas) if conditioning is None else original(canvas, conditioning)
            if watch:
                taken = watch.stop()
                self.tensors.update({f"tap.0.{name}": value for name, value in taken.items()})
            self._keep("tokens", canvas)
            self._keep("logits", logits)
            if conditioning is not None:
                self._keep("conditioning", conditioning)
            return logits

        return step

    def _entropy(self, original):
        def entropy(*args):
            found, soft = original(*args)
            self._keep("uncertainty", found)
            return found, soft

        return entropy

    def _confidence(self, original):
        def confidence(*args):
            found = original(*args)
            self._keep("uncertainty", found)
            return found

        return confidence

    def _committed(self, original):
        def committed(*args, **kwargs):
            found = original(*args, **kwargs)
            self._keep("committed", found)
            return found

        return committed


def denoise(request):
    """Runs mlx-optiq's loop on one prompt; keeps every step."""
    import mlx.core as mx

    loop, loader = optiq()
    model, _config = loader.load_diffusion_gemma(request["model"])
    prompt = request["prompt"]
    text = Text(request["stop"])
    wanted = request.get("taps")
    taps = None
    if wanted is not None:
        from taps import Taps

        taps = Taps(model, sys.modules["optiq.vlm._mlxvlm.models.diffusion_gemma.language"])
    mx.random.seed(request["seed"])
    ids = []
    with Watch(loop, taps, wanted and wanted["step"]) as watch:
        results = loop.stream_diffusion_generate(
            model, text, text, mx.array(prompt, dtype=mx.int32)[None], None, None,
            max_tokens=request["max_tokens"], skip_special_token_ids=set(),
            temperature=request["temperature"], max_denoising_steps=request["steps"],
            diffusion_min_canvas_length=request["min_canvas"],
            diffusion_max_canvas_length=request["max_canvas"],
            diffusion_sampler=request["sampler"], diffusion_threshold=request["threshold"],
            prefill_step_size=request["prefill_step"])
        for result in results:
            # Only a result that ends neither a block nor the stream brings a token.
            if not result.diffusion_block_complete and result.finish_reason is None:
                ids.append(result.token)
    mx.eval(list(watch.tensors.values()))
    save(request["out"], watch.tensors)
    return {"reply": "denoised", "ids": ids, "canvas_steps": watch.canvas_steps,
            "composition": composition(request, watch, model)}


def freeze(request):
    """Replays a model as mlx-lm's oracle does, under a composition of mlx-optiq's."""
    from composition import Attention, Conversion, mount
    from mlx_lm.models.cache import make_prompt_cache
    from mlx_lm.utils import load_model
    from pathlib import Path
    from replay import replay

    wanted = request.get("composition")
    if wanted is None:
        raise ValueError("a replay by mlx-optiq needs a composition")
    folder = request["model"]
    model, _config = load_model(Path(folder), lazy=False)
    uncast = wanted["lora"] == "uncast"
    if (request.get("adapter") is not None) != uncast or request.get("adapter") == "fused":
        raise ValueError("mlx-optiq mounts adapters without a cast, and fuses none")
    if uncast:
        mount(model, folder)
    model.eval()
    conversion = Conversion(wanted)
    cache, after = conversion.begin(make_prompt_cache(model))
    with Attention(wanted) as attention:
        tensors, ids, steps = replay(request, model, cache, attention.before, after)
        conversion.check(cache)
        route = attention.text(any(hasattr(layer, "bits") for layer in cache))
    save(request["out"], tensors)
    described = {
        "cache": [describe_cache(layer) for layer in cache],
        "prefill-step": request["prefill_step"],
        "batch": 1,
        "attention": route,
        "kernels": [],
    }
    if conversion.text() is not None:
        described["conversion"] = conversion.text()
    if uncast:
        described["adapter"] = "mounted without a cast"
    return {"reply": "frozen", "prompt": ids, "steps": steps, "composition": described}


def composition(request, watch, model):
    """How it was computed."""
    generation = model.config.generation_config or {}
    bound = (generation.get("sampler_config") or {}).get("entropy_bound", 0.1)
    sampler = {"entropy-bound": f"entropy-bound({float(bound)})",
               "confidence-threshold": f"confidence-threshold({request['threshold']})"}
    return {
        "cache": [describe_cache(layer) for layer in watch.caches],
        "prefill-step": request["prefill_step"] or len(request["prompt"]),
        "batch": 1,
        "attention": "mx.fast.scaled_dot_product_attention",
        "kernels": [],
        "denoising": {
            "sampler": sampler[request["sampler"]],
            "temperature": f"{request['temperature']}",
            "canvases": watch.lengths,
            "steps": watch.canvas_steps,
        },
    }


def build(config):
    """The model of a config, unloaded."""
    import importlib

    if config.get("model_type") != "diffusion_gemma":
        from inventory import build as build_text

        return build_text(config)
    optiq()
    package = "optiq.vlm._mlxvlm.models.diffusion_gemma"
    configs = importlib.import_module(f"{package}.config")
    models = importlib.import_module(f"{package}.diffusion_gemma")
    return models.Model(configs.ModelConfig.from_dict(config))


def inventory(request):
    """The tensors that a config's model class wants, and the digests of their synthetic values."""
    from inventory import inventory as answer_inventory

    return answer_inventory(request, build)


REQUESTS = {"hello": hello, "freeze": freeze, "denoise": denoise, "inventory": inventory}

if __name__ == "__main__":
    serve(REQUESTS)
