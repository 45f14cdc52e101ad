"""What a config makes of mlx-lm's model class: the tensors of a synthetic model.

Each tensor gets the kind of values it wants (`harness/src/synthetic/values.rs`), from the module it
belongs to. A tensor of no known kind is refused by name; its kind is added here.
"""

import inspect
import json
import re

GROUP_SIZE, BITS = 32, 4

# MLX has no gather_mm of half types on the CPU, so the bf16 lane keeps stacked experts packed.
EXPERTS_IN_BF16 = {"bits": 8, "group_size": 32}

BY_NAME = {
    "A_log": "a-log",
    "dt_bias": "dt-bias",
    "D": "scalar",
    "layer_scalar": "scalar",
    "per_expert_scale": "scalar",
    "scale": "scalar",
    "e_score_correction_bias": "router-bias",
    "expert_bias": "router-bias",
    "correction_bias": "router-bias",
    "sinks": "sinks",
}

ADDS_ONE = re.compile(r"(\b1(\.0)?\s*\+\s*self\.weight)|(self\.weight\s*\+\s*1)")


def init_kind(path, parameter, module, value):
    """The kind of a parameter: by its own name, then by the module it belongs to, then by rank."""
    import mlx.nn as nn

    if parameter in BY_NAME:
        return BY_NAME[parameter]
    if parameter == "bias" or parameter.endswith("_bias"):
        return "bias"
    if isinstance(module, (nn.Conv1d, nn.Conv2d)) or parameter.startswith("conv"):
        return "conv"
    if isinstance(module, nn.Embedding):
        return "embedding"
    if parameter == "weight" and value.ndim == 1:
        source = inspect.getsource(type(module))
        return "norm-offset" if ADDS_ONE.search(source) else "norm"
    if "Norm" in type(module).__name__:
        return "norm"
    if value.ndim >= 2:
        return "linear"
    raise ValueError(f"{path}.{parameter} {tuple(value.shape)} of {type(module).__name__}: no kind "
                     "of values is known for it; add one to oracles/mlx_lm/inventory.py")


def build(config):
    """The model of a config, unloaded."""
    from mlx_lm.utils import _get_classes

    model_class, args_class = _get_classes(config)
    return model_class(args_class.from_dict(config))


def is_tied(config):
    return any(section.get("tie_word_embeddings") is True
               for section in (config, config.get("text_config") or {}))


def packings(model, own_packings):
    """How `mlx_lm.convert` would pack each module, 4 bits in groups of 32, or as the patterns of
    `own_packings` say: None for not at all."""
    from mlx.utils import tree_flatten
    import mlx.nn as nn

    predicate = getattr(model, "quant_predicate", None)
    found = {}
    leaves = tree_flatten(model.leaf_modules(), is_leaf=lambda module: isinstance(module, nn.Module))
    for path, module in leaves:
        if not hasattr(module, "to_quantized") or module.weight.shape[-1] % GROUP_SIZE:
            continue
        wanted = predicate(path, module) if predicate is not None else True
        for pattern, packing in own_packings.items():
            if re.search(pattern, path):
                wanted = packing
        if wanted:
            own = wanted if isinstance(wanted, dict) else {}
            found[path] = {"bits": own.get("bits", BITS),
                           "group_size": own.get("group_size", GROUP_SIZE)}
            if own.get("mode", "affine") != "affine":
                raise ValueError(f"{path}: packed as {own}, only affine is known here")
    return found


def entries(config, build=build, own_packings=()):
    """Every tensor of the checkpoint, in order of name; `build` makes the model of a config."""
    from mlx.utils import tree_flatten
    from mlx_lm.models.switch_layers import SwitchLinear

    model = build(config)
    modules = dict(model.named_modules())
    packing = packings(model, dict(own_packings))
    keeps = getattr(model, "cast_predicate", lambda _path: True)
    found = []
    for name, value in sorted(tree_flatten(model.parameters())):
        path, _, parameter = name.rpartition(".")
        if is_tied(config) and name.split(".")[-2:] == ["lm_head", "weight"]:
            continue
        entry = {"name": name, "shape": list(value.shape),
                 "init": init_kind(path, parameter, owner(modules, path), value)}
        if not keeps(name):
            entry["keep_f32"] = True
        if parameter == "weight" and path in packing:
            entry["quantize"] = packing[path]
            if isinstance(modules[path], SwitchLinear):
                entry["pack_in_bf16"] = EXPERTS_IN_BF16
        found.append(entry)
    check(build(config), found)
    return found


def owner(modules, path):
    """The module of a parameter; one in a list belongs to the module that holds the list."""
    while path not in modules:
        path, dot, _ = path.rpartition(".")
        if not dot:
            return modules[""]
    return modules[path]


def check(model, found):
    """The checkpoint must survive the class's own `sanitize` and load strictly."""
    import mlx.core as mx

    weights = {entry["name"]: mx.zeros(entry["shape"]) for entry in found}
    if hasattr(model, "sanitize"):
        after = model.sanitize(dict(weights))
        if set(after) != set(weights):
            changed = sorted(set(after) ^ set(weights))
            raise ValueError(f"sanitize renames or drops {changed[:4]}")
        moved = [name for name in weights if after[name].shape != weights[name].shape]
        if moved:
            raise ValueError(f"sanitize reshapes {moved[:4]}")
    model.load_weights(list(weights.items()), strict=True)


def inventory(request, build=build):
    """Answers the request `inventory`: `config` is the file to read.

    Beside it, `packing.json` may map patterns of module paths to what the 4-bit lane packs them with
    (`{"bits": 8, "group_size": 32}`, or false for not at all), as a `quant_predicate` would."""
    from pathlib import Path

    from synthetic import digests

    config = Path(request["config"])
    packing = config.with_name("packing.json")
    own = json.loads(packing.read_text(encoding="utf-8")) if packing.exists() else {}
    found = entries(json.loads(config.read_text(encoding="utf-8")), build, own)
    return {"reply": "inventory", "tensors": found, "digests": digests(found)}
