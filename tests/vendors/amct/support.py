"""Small models, data and known answers for AMCT's functions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import roundoff.vendors.amct.onnx as amct
from roundoff.core.tensors import Array
from tests.models import save, value, weight, wrapped

VECTORS = Path(__file__).resolve().parents[4] / "shared" / "vectors" / "amct"
SHAPE = (2, 4, 8, 8)

vectors = pytest.mark.skipif(not VECTORS.is_dir(), reason="no known answers beside this checkout")


def _normalization(channels: int) -> list[Any]:
    rng = np.random.default_rng(7)
    parts = {
        "bn.scale": rng.uniform(0.5, 2, channels),
        "bn.bias": rng.normal(0, 0.2, channels),
        "bn.mean": rng.normal(0, 0.2, channels),
        "bn.var": rng.uniform(0.5, 2, channels),
    }
    return [numpy_helper.from_array(each.astype(np.float32), name) for name, each in parts.items()]


def mixed_net() -> Any:
    """Every kind of layer: Conv and batch normalization, grouped, transposed, pooling, MatMul with Add, Gemm."""
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["c1"], name="conv1", pads=[1] * 4),
        helper.make_node(
            "BatchNormalization", ["c1", "bn.scale", "bn.bias", "bn.mean", "bn.var"], ["n1"], name="bn1"
        ),
        helper.make_node("Relu", ["n1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], name="grouped", pads=[1] * 4, group=2),
        helper.make_node("ConvTranspose", ["c2", "w3", "b3"], ["t3"], name="up", strides=[2, 2]),
        helper.make_node("AveragePool", ["t3"], ["p4"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p4"], ["g5"], name="global"),
        helper.make_node("Flatten", ["g5"], ["flat"], name="flatten"),
        helper.make_node("MatMul", ["flat", "w6"], ["m6"], name="product"),
        helper.make_node("Add", ["m6", "b6"], ["a6"], name="plus"),
        helper.make_node("Gemm", ["a6", "w7", "b7"], ["logits"], name="classifier", transB=1),
    ]
    weights = [
        weight("w1", 6, 4, 3, 3, seed=1), weight("w2", 6, 3, 3, 3, seed=2), weight("b2", 6, seed=3),
        weight("w3", 6, 5, 2, 2, seed=4), weight("b3", 5, seed=5), weight("w6", 5, 7, seed=6),
        weight("b6", 7, seed=7), weight("w7", 3, 7, seed=8), weight("b7", 3, seed=9), *_normalization(6),
    ]  # fmt: skip
    return wrapped(nodes, [value("image", SHAPE)], [value("logits", (2, 3))], weights)


def batches(count: int, *, seed: int = 0, shape: Sequence[int] = SHAPE) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(0.3, 1, shape).astype(np.float32) for _ in range(count)]


def run_onnx(path: Path | str, feed: Array, options: Any = None, name: str = "image") -> Array:
    return np.asarray(ort.InferenceSession(str(path), options).run(None, {name: feed})[0])


class Work:
    """A folder with a model and the files of its quantization."""

    def __init__(self, folder: Path, net: Any = None, definition: str = "", batch_num: int = 2) -> None:
        self.folder = folder
        self.model = str(save(mixed_net() if net is None else net, folder / "net.onnx"))
        self.config, self.record, self.modified = (
            str(folder / name) for name in ("c.json", "record.txt", "modified.onnx")
        )
        defined = None
        if definition:
            (folder / "x.cfg").write_text(definition, encoding="utf-8")
            defined = str(folder / "x.cfg")
        amct.create_quant_config(self.config, self.model, batch_num=batch_num, config_defination=defined)

    def quantize(self) -> None:
        amct.quantize_model(self.config, self.model, self.modified, self.record)

    def run(self, feeds: list[Any], path: str = "") -> list[Any]:
        session = ort.InferenceSession(path or self.modified, amct.AMCT_SO)
        return [session.run(None, {"image": feed})[0] for feed in feeds]

    def save(self, prefix: str = "out/net", **options: Any) -> Path:
        amct.save_model(self.modified, self.record, f"{self.folder}/{prefix}", **options)
        return self.folder / f"{prefix}_fake_quant_model.onnx"
