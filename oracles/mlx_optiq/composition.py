"""A composition, put together from mlx-optiq's own pieces.

    {"kv": {"all": {"bits": 8, "group": 32}} or
           {"layers": [{"layer": 0, "bits": 8, "group": 32}, ...]} or null,
     "convert": "empty" or "after-forward" or {"from-step": 40} or null,
     "attention": "stock" or "tiled-prefill" or "tiled",
     "lora": "cast" or "uncast"}

Converting after a forward is what `optiq serve` does with `--kv-bits` (one kind for all caches) and
`--kv-config` (layer by layer); from empty is what its sensitivity sweep does. Attention is tiled by
`fused_quant_sdpa.install`, which knows no length: for "tiled-prefill" it is taken out again before
each call of one token. "uncast" mounts the adapter as `optiq serve --adapter` does.
"""

import json
import os
import sys
import tempfile


class Conversion:
    """Which caches become quantized ones, and when."""

    def __init__(self, wanted):
        kv = wanted["kv"] or {}
        self.all, self.mixed = kv.get("all"), kv.get("layers")
        start = wanted["convert"]
        self.empty = start == "empty"
        self.start = start["from-step"] if isinstance(start, dict) else 0

    def text(self):
        if not (self.all or self.mixed):
            return None
        if self.empty:
            return "from empty"
        return f"from step {self.start}" if self.start else "after the first forward"

    def begin(self, cache):
        """The caches of an empty sequence, and what is done to them after each call."""
        if not (self.all or self.mixed):
            return cache, lambda _cache: None
        from optiq.runtime.kv import patch_rotating_to_quantized

        patch_rotating_to_quantized()
        if self.empty:
            return self._emptied(cache), lambda _cache: None
        return cache, self._hook()

    def layers(self, count):
        """The (layer, bits, group) that are asked for, of `count` caches."""
        if self.all:
            return [(layer, self.all["bits"], self.all["group"]) for layer in range(count)]
        found = [(entry["layer"], entry["bits"], entry["group"]) for entry in self.mixed or []]
        if any(layer >= count for layer, _, _ in found):
            raise ValueError(f"the composition names a layer that is none of {count} caches")
        return found

    def _emptied(self, cache):
        from optiq.runtime.kv.rotating import empty_quantized_like

        fresh = list(cache)
        for layer, bits, group in self.layers(len(cache)):
            if hasattr(cache[layer], "to_quantized"):
                fresh[layer] = empty_quantized_like(cache[layer], bits=bits, group_size=group)
        return fresh

    def _hook(self):
        if self.all:
            from optiq.runtime.streaming_kv_quant import streaming_maybe_quantize_kv_cache

            convert, bits, group = (streaming_maybe_quantize_kv_cache, self.all["bits"],
                                    self.all["group"])
        else:
            # The hook of --kv-config looks bits and groups up itself; these are not read.
            convert, bits, group = self._kv_config(), 8, 64
        return lambda cache: convert(cache, quantized_kv_start=self.start, kv_group_size=group,
                                     kv_bits=bits)

    def _kv_config(self):
        from optiq.serve import _load_kv_config, install_mixed_kv

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kv_config.json")
            entries = [{"layer_idx": entry["layer"], "bits": entry["bits"],
                        "group_size": entry["group"]} for entry in self.mixed]
            with open(path, "w", encoding="utf-8") as file:
                json.dump(entries, file)
            install_mixed_kv(_load_kv_config(path), quantized_kv_start=self.start)
        return sys.modules["mlx_lm.generate"].maybe_quantize_kv_cache

    def check(self, cache):
        """Every cache that was to be quantized is, as it was asked for, and no other."""
        asked = {layer: (bits, group) for layer, bits, group in self.layers(len(cache))
                 if hasattr(cache[layer], "to_quantized") or hasattr(cache[layer], "bits")}
        found = {layer: (one.bits, one.group_size) for layer, one in enumerate(cache)
                 if hasattr(one, "bits")}
        if found != asked:
            raise ValueError(f"caches {found} are quantized at the end, {asked} were asked for")


class Attention:
    """The route of attention over quantized caches; counts the calls that were tiled."""

    def __init__(self, wanted):
        self.route = wanted["attention"]
        self.tiled = {"prefill": 0, "step": 0}
        self.tiles = 0
        self.one = False

    def __enter__(self):
        from optiq.runtime import fused_quant_sdpa

        self.module = fused_quant_sdpa
        self.original = fused_quant_sdpa._prefill_flashattn_n_tiled
        fused_quant_sdpa._prefill_flashattn_n_tiled = self._counted
        return self

    def __exit__(self, *_):
        self.module._prefill_flashattn_n_tiled = self.original
        self.module.uninstall()

    def before(self, count):
        """Readies the route for a call of `count` tokens."""
        self.one = count == 1
        if self.route == "tiled" or (self.route == "tiled-prefill" and count > 1):
            self.module.install()
        else:
            self.module.uninstall()

    def _counted(self, queries, q_keys, *rest):
        self.tiled["step" if self.one else "prefill"] += 1
        self.tiles = max(self.tiles, -(-q_keys[0].shape[-2] // self.module._N_CHUNK))
        return self.original(queries, q_keys, *rest)

    def text(self, quantized):
        """What happened. A route that was asked for and never taken is refused."""
        if not quantized:
            return "mx.fast.scaled_dot_product_attention"
        if self.route == "stock":
            return "quantized_scaled_dot_product_attention"
        if not (self.tiled["prefill"] or (self.route == "tiled" and self.tiled["step"])):
            raise ValueError("mlx-optiq tiled no call: it tiles half types, 4 and 8 bits, where the "
                             "mask is no array")
        chunk, tiles = self.module._N_CHUNK, self.tiles
        where = "" if self.route == "tiled" else " for L > 1, stock at L = 1"
        return f"tiled({chunk}){where}, {tiles} tile{'s' if tiles > 1 else ''} at most"


def mount(model, folder):
    """Mounts the adapter in a model's folder mlx-optiq's way, all of it."""
    from pathlib import Path

    import mlx.core as mx
    from optiq.adapters.mount import mount_adapter_on_model, set_active_adapter

    path = Path(folder) / "adapters"
    mounted = mount_adapter_on_model(model, "parity", path)
    stored = mx.load(str(path / "adapters.safetensors"))
    if 2 * mounted != len(stored):
        raise ValueError(f"mlx-optiq mounts {mounted} layers of an adapter of {len(stored)} tensors")
    set_active_adapter("parity")
