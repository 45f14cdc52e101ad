"""Named intermediates of one forward, without changing the model.

Every module's call is recorded under its path in the model and then given the engine's name for it
(`engine/src/taps.rs`): `layers.0.self_attn.q_proj` becomes `layers.0.self_attn.q`. Rope, called for
queries and then for keys, gives `q_rope` and `k_rope`; attention goes through a function, not a
module, so that function is recorded as `self_attn.sdpa`.
"""

import functools
import re
import sys

SPOKEN = [
    (r"^embed_tokens$", "embed"),
    (r"^lm_head$", "logits"),
    (r"^(layers\.\d+)$", r"\1.out"),
    (r"_proj$", ""),
    (r"\.rope$", ".q_rope"),
    (r"\.rope#2$", ".k_rope"),
]


def spoken(name):
    """The engine's name for a module path."""
    for pattern, replacement in SPOKEN:
        name = re.sub(pattern, replacement, name)
    return name


class Taps:
    """Records intermediates between `start` and `stop`."""

    def __init__(self, model, namespace=None):
        self.paths = {id(module): name.removeprefix("model.") for name, module in
                      model.named_modules() if name}
        self.classes = {type(module) for _, module in model.named_modules()}
        # The module whose global `scaled_dot_product_attention` the layers call.
        self.namespace = namespace or sys.modules[type(model).__module__]
        self.undo = []
        self.stack = []
        self.tensors = {}

    def start(self):
        for cls in self.classes:
            if "__call__" in cls.__dict__:
                self._patch(cls, "__call__", self._module_call(cls.__call__))
        sdpa = getattr(self.namespace, "scaled_dot_product_attention", None)
        if sdpa is not None:
            self._patch(self.namespace, "scaled_dot_product_attention", self._sdpa_call(sdpa))

    def stop(self):
        """Restores the model and returns the intermediates by name, evaluated."""
        import mlx.core as mx

        for owner, name, original in reversed(self.undo):
            setattr(owner, name, original)
        self.undo = []
        tensors, self.tensors = self.tensors, {}
        mx.eval(list(tensors.values()))
        return {spoken(name): tensor for name, tensor in tensors.items()}

    def _patch(self, owner, name, replacement):
        self.undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, replacement)

    def _record(self, name, value):
        import mlx.core as mx

        if not isinstance(value, mx.array):
            return
        unique, count = name, 1
        while unique in self.tensors:
            count += 1
            unique = f"{name}#{count}"
        self.tensors[unique] = value

    def _module_call(self, original):
        @functools.wraps(original)
        def call(module, *args, **kwargs):
            path = self.paths.get(id(module))
            if path is None:
                return original(module, *args, **kwargs)
            self.stack.append(path)
            try:
                value = original(module, *args, **kwargs)
            finally:
                self.stack.pop()
            self._record(path, value)
            return value

        return call

    def _sdpa_call(self, original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            value = original(*args, **kwargs)
            self._record(f"{self.stack[-1] if self.stack else 'model'}.sdpa", value)
            return value

        return call
