"""Tests of the converters. Run by `cargo xtask test`, after setup."""

import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx_lm.utils import load_model
from tokenizers import Tokenizer

import from_glassllm
from folder import METADATA, read_json, write_model, write_safetensors

MLX = Path(__file__).parents[2] / "target/mlx"
TEXT = "Alice was tired of sitting by her sister,\nand of having  nothing to do.\u0301 日"

mx.set_default_device(mx.cpu)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_tensors_come_back_bit_for_bit_in_every_dtype(self):
        values = mx.random.normal((3, 5), key=mx.random.key(1))
        tensors = {str(d): values.astype(d) for d in (mx.float32, mx.float16, mx.bfloat16)}
        tensors["packed"] = mx.array([0, 1, 2**32 - 1], mx.uint32)
        tensors["view"] = values.T
        path = self.folder / "model.safetensors"
        write_safetensors(path, tensors)
        found, metadata = mx.load(str(path), return_metadata=True)
        self.assertEqual(metadata, METADATA)
        self.assertEqual(set(found), set(tensors))
        for name, want in tensors.items():
            self.assertEqual(found[name].dtype, want.dtype)
            self.assertTrue(mx.array_equal(found[name], want), name)

    def test_the_order_of_insertion_does_not_show(self):
        first, second = self.folder / "first", self.folder / "second"
        tensors = {name: mx.full((2,), float(number)) for number, name in enumerate("bca")}
        write_safetensors(first, tensors)
        write_safetensors(second, dict(reversed(tensors.items())))
        self.assertEqual(first.read_bytes(), second.read_bytes())

    def test_a_folder_is_replaced_whole(self):
        out = self.folder / "model"
        out.mkdir()
        (out / "stale").touch()
        write_model(out, {"w": mx.zeros((1,))}, {"b": 1, "a": 2}, {}, {})
        names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
        self.assertEqual({path.name for path in out.iterdir()}, names)
        self.assertEqual(list(read_json(out / "config.json")), ["a", "b"])
        self.assertEqual([path.name for path in self.folder.iterdir()], ["model"])


class Glassllm(unittest.TestCase):
    """Against the package's own NumPy implementation, which shares no code with MLX."""

    @classmethod
    def setUpClass(cls):
        (cls.wheel,) = (MLX / "wheels").glob("glassllm-*.whl")
        cls.unpacked = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.unpacked.cleanup)
        with zipfile.ZipFile(cls.wheel) as package:
            package.extractall(cls.unpacked.name)
        sys.path.insert(0, cls.unpacked.name)
        cls.addClassCleanup(sys.path.remove, cls.unpacked.name)
        import glassllm

        cls.reference, cls.tokenizer = glassllm.load_pretrained(from_glassllm.LANGUAGE)

    def logits(self, model_folder: Path, ids: list):
        model, _ = load_model(model_folder)
        got = np.array(model(mx.array([ids])).astype(mx.float32))[0]
        want = self.reference(np.array([ids]))
        want = want[0] if isinstance(want, tuple) else want
        return got, np.array(want.data).reshape(got.shape)

    def test_float32_logits_agree(self):
        got, want = self.logits(MLX / "models/glassllm-f32", self.tokenizer.encode(TEXT))
        # Both sum a few hundred float32 products; the logits reach 20.
        self.assertTrue(np.abs(got - want).max() <= 1e-4, np.abs(got - want).max())

    def test_more_bits_come_nearer(self):
        ids = self.tokenizer.encode(TEXT)
        errors = []
        for name in ("glassllm-4bit", "glassllm-8bit"):
            got, want = self.logits(MLX / "models" / name, ids)
            errors.append(float(np.sqrt(np.mean((got - want) ** 2))))
        self.assertGreater(errors[1], 0)
        self.assertTrue(errors[1] * 4 <= errors[0], errors)

    def test_tokenizers_agree(self):
        converted = Tokenizer.from_file(str(MLX / "models/glassllm-f32/tokenizer.json"))
        for text in (TEXT, "", " ", "\n\n", "  a", "e\u0301", "▁", "a▁ b"):
            ids = converted.encode(text, add_special_tokens=False).ids
            self.assertEqual(ids, self.tokenizer.encode(text), repr(text))

    def test_a_conversion_gives_the_provisioned_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "again"
            from_glassllm.main(self.wheel, out)
            for path in sorted(out.iterdir()):
                provisioned = MLX / "models/glassllm-f32" / path.name
                self.assertEqual(path.read_bytes(), provisioned.read_bytes(), path.name)


if __name__ == "__main__":
    unittest.main()
