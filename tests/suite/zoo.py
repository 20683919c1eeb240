"""A small suite of tiny networks for tests."""

from pathlib import Path

import numpy as np
from onnx import helper

from tests.models import save, value, weight, wrapped

SUITE = """
name = "zoo"
store = "store"
targets = ["generic-int8"]

[options]
samples = 6

[models.net]
model = "net.onnx"
data = "samples.npy"

[commands.layers]
"""


def make_zoo(folder: Path, text: str = SUITE, *, samples: int = 12) -> Path:
    """The folder's suite.toml, with its model and samples."""
    nodes = [
        helper.make_node("Flatten", ["image"], ["flat"], name="Flatten"),
        helper.make_node("Gemm", ["flat", "w1"], ["hidden"], name="First"),
        helper.make_node("Relu", ["hidden"], ["relu"], name="Relu"),
        helper.make_node("Gemm", ["relu", "w2"], ["logits"], name="Second"),
    ]
    weights = [weight("w1", 192, 16, seed=3), weight("w2", 16, 5, seed=4)]
    net = wrapped(nodes, [value("image", ("N", *SHAPE))], [value("logits", ("N", 5))], weights)
    save(net, folder / "net.onnx")
    shape = (samples, *SHAPE)
    np.save(folder / "samples.npy", np.random.default_rng(1).normal(size=shape).astype(np.float32))
    (folder / "suite.toml").write_text(text, encoding="utf-8")
    return folder / "suite.toml"


SHAPE = (3, 8, 8)
