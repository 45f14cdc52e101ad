"""Named intermediates of one forward, without changing the model.

Every module's call is recorded under its path in the model and then given the engine's name for it
(`engine/src/taps.rs`): `layers.0.self_attn.q_proj` becomes `layers.0.self_attn.q`. Rope, called for
queries and then for keys, gives `q_rope` and `k_rope` (the other way round in `KEYS_FIRST`);
attention and the recurrence of a gated delta net go through functions, not modules, so those are
recorded under the module that calls them (`FUNCTIONS`). `embed` is what the first layer sees. An
embedding that is the output projection too is recorded as `lm_head`; `logits` is what the model
returns, scaled and capped. Of a module that returns several values the first counts.
"""

import functools
import re
import sys

SPOKEN = [
    (r"^decoder\.", ""),
    (r"^embed_tokens$", "embed"),
    (r"^(layers\.\d+)$", r"\1.out"),
    (r"_proj$", ""),
    (r"\.rope$", ".q_rope"),
    (r"\.rope#2$", ".k_rope"),
]

# Names that the parts outside the layers, and the layers, have in some models only.
ALIASES = [
    (r"^h\.(?=\d)", "layers."),
    (r"^(wte|embed_in)$", "embed_tokens"),
    (r"^(ln_f|final_layer_?norm)$", "norm"),
    (r"^embed_out$", "lm_head"),
]

# Modules of mlx-lm that rope keys before queries.
KEYS_FIRST = ("mlx_lm.models.gemma4_text",)

# Functions that layers call: names of their first arguments, and of what they return.
FUNCTIONS = {
    "scaled_dot_product_attention": ((), ("sdpa",)),
    "gated_delta_update": (("q", "k", "v"), ("delta", "memory")),
    "compute_g": ((), ("g",)),
    "swiglu": ((), ("act",)),
}


def spoken(name):
    """The engine's name for a module path."""
    for pattern, replacement in SPOKEN:
        name = re.sub(pattern, replacement, name)
    return name


def relative(path):
    """A module's path within the text model, under the names that most models use."""
    for prefix in ("language_model.", "model.", "transformer.", "gpt_neox."):
        path = path.removeprefix(prefix)
    for pattern, replacement in ALIASES:
        path = re.sub(pattern, replacement, path)
    return path


def keys_last(tensors):
    """Names rope's two calls in a layer as if keys came second."""
    turned = {}
    for name, tensor in tensors.items():
        if name.endswith(".rope") and f"{name}#2" in tensors:
            name = f"{name}#2"
        elif name.endswith(".rope#2"):
            name = name.removesuffix("#2")
        turned[name] = tensor
    return turned


class Taps:
    """Records intermediates between `start` and `stop`."""

    def __init__(self, model, namespace=None):
        self.paths = {}
        for name, module in model.named_modules():
            if name:
                self.paths.setdefault(id(module), []).append(relative(name))
        self.classes = {type(module) for _, module in model.named_modules()}
        spaces = {cls.__module__ for cls in self.classes}
        self.keys_first = any(space in KEYS_FIRST for space in spaces)
        # The modules whose global functions the layers call.
        self.namespaces = [namespace] if namespace else [
            sys.modules[space] for space in sorted(spaces | {"mlx_lm.models.gated_delta"})
            if space.startswith("mlx_lm.models.") and space in sys.modules]
        self.undo = []
        self.stack = []
        self.tensors = {}

    def start(self):
        for cls in self.classes:
            if "__call__" in cls.__dict__:
                self._patch(cls, "__call__", self._module_call(cls.__call__))
            if "as_linear" in cls.__dict__:
                self._patch(cls, "as_linear", self._head_call(cls.as_linear))
        for space in self.namespaces:
            for name, (arguments, results) in FUNCTIONS.items():
                function = getattr(space, name, None)
                if function is not None:
                    self._patch(space, name, self._function_call(function, arguments, results))

    def stop(self):
        """Restores the model and returns the intermediates by name, evaluated."""
        import mlx.core as mx

        for owner, name, original in reversed(self.undo):
            setattr(owner, name, original)
        self.undo = []
        tensors, self.tensors = self.tensors, {}
        if self.keys_first:
            tensors = keys_last(tensors)
        mx.eval(list(tensors.values()))
        return {spoken(name): tensor for name, tensor in tensors.items()}

    def _path(self, module):
        """The module's path; of one that several layers share, that below the caller's."""
        paths = self.paths.get(id(module), [None])
        caller = f"{self.stack[-1]}." if self.stack else ""
        return next((path for path in paths if path and path.startswith(caller)), paths[0])

    def _patch(self, owner, name, replacement):
        self.undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, replacement)

    def _record(self, name, value):
        import mlx.core as mx

        if isinstance(value, tuple) and value:
            value = value[0]
        if not isinstance(value, mx.array):
            return
        unique, count = name, 1
        while unique in self.tensors:
            count += 1
            unique = f"{name}#{count}"
        self.tensors[unique] = value

    def _embedded(self, tokens):
        """What the first layer sees stands for the embedding: scaled, and with positions."""
        import mlx.core as mx

        known = [name for name in self.tensors if name.split("#")[0] == "embed_tokens"]
        if known and isinstance(tokens, mx.array):
            # A copy, as a model may add to the array itself.
            self.tensors[known[-1]] = mx.array(tokens)

    def _module_call(self, original):
        @functools.wraps(original)
        def call(module, *args, **kwargs):
            path = self._path(module)
            if path is None:
                return original(module, *args, **kwargs)
            if path == "layers.0" and args:
                self._embedded(args[0])
            self.stack.append(path)
            try:
                value = original(module, *args, **kwargs)
            finally:
                self.stack.pop()
            self._record(path, value)
            return value

        return call

    def _head_call(self, original):
        @functools.wraps(original)
        def call(module, *args, **kwargs):
            value = original(module, *args, **kwargs)
            self._record("lm_head", value)
            return value

        return call

    def _function_call(self, original, arguments, results):
        @functools.wraps(original)
        def call(*args, **kwargs):
            at = self.stack[-1] if self.stack else "model"
            for name, value in zip(arguments, args):
                self._record(f"{at}.{name}", value)
            value = original(*args, **kwargs)
            values = value if isinstance(value, tuple) else (value,)
            for name, part in zip(results, values):
                self._record(f"{at}.{name}", part)
            return value

        return call
