"""Logits of mlx-lm as a dump: usage mlx_lm_dump.py MODEL IDS.json OUT.safetensors."""

import json
import sys
from pathlib import Path

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model

model = load_model(Path(sys.argv[1]))[0]
ids = mx.array(json.loads(Path(sys.argv[2]).read_text()))
logits = model(ids[None], cache=make_prompt_cache(model))[0]
mx.save_safetensors(sys.argv[3], {"logits": logits, "ids": ids})
