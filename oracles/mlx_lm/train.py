"""mlx-lm's trainer on given batches, for `engine/tests/train`.

    train.py REQUEST.json

    {"model": DIR, "adapter": DIR, "batches": [{"ids": [[..]], "lengths": [[first, last], ..]}],
     "iters": 20, "optimizer": {"learning_rate": 1e-3, "weight_decay": 0.01},
     "accumulate": 1, "checkpoint": false, "compile": false, "clip": 0.5, "out": DIR}

The adapter's config says which layers become LoRA layers, its tensors where they start. Batches go round.
Losses go to stdout as a JSON list; `gradients.safetensors` in DIR are those of the first batch, before any
update, `clipped.safetensors` the same, clipped as one list in the order of their names, and
`adapters.safetensors` is what the trainer saved at its end.

`train` of `mlx_lm/tuner/trainer.py` compiles its step, and `mx.compile` spells constants in 7 digits: the
scale of attention, 0.17677669..., becomes 0.1767767, and every number behind it differs. So the request says
whether compiling is on.
"""

import itertools
import json
import os
import sys
from pathlib import Path


class Losses:
    """What the trainer reports, one step at a time."""

    def __init__(self):
        self.values = []

    def on_train_loss_report(self, info):
        self.values.append(info["train_loss"])

    def on_val_loss_report(self, _info):
        raise AssertionError("there is no validation set")


def main():
    request = json.loads(Path(sys.argv[1]).read_text())
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    import mlx.core as mx
    import mlx.nn as nn
    import mlx.optimizers as optim
    from mlx.utils import tree_flatten
    from mlx_lm.tuner import trainer
    from mlx_lm.utils import load_adapters, load_model

    if not request["compile"]:
        mx.disable_compile()
    model, _config = load_model(Path(request["model"]), lazy=False)
    model.freeze()
    model = load_adapters(model, request["adapter"])
    model.train()

    batches = [(mx.array(batch["ids"], mx.int32), mx.array(batch["lengths"], mx.int32))
               for batch in request["batches"]]
    out = Path(request["out"])
    _, gradients = nn.value_and_grad(model, trainer.default_loss)(model, *batches[0])
    mx.save_safetensors(str(out / "gradients.safetensors"), dict(tree_flatten(gradients)))

    flat = dict(sorted(tree_flatten(gradients)))
    clipped, _norm = optim.clip_grad_norm(flat, request["clip"])
    mx.save_safetensors(str(out / "clipped.safetensors"), clipped)

    options = dict(request["optimizer"])
    optimizer = optim.AdamW(options.pop("learning_rate"), **options)
    args = trainer.TrainingArgs(
        iters=request["iters"], steps_per_report=1, steps_per_save=10**9,
        grad_accumulation_steps=request["accumulate"], grad_checkpoint=request["checkpoint"],
        adapter_file=str(out / "adapters.safetensors"),
    )
    losses = Losses()
    trainer.train(model, optimizer, None, args=args, training_callback=losses,
                  iterate_batches=lambda **_: itertools.cycle(batches))
    answers.write(json.dumps(losses.values))
    answers.flush()


if __name__ == "__main__":
    main()
