"""A network of the shape of MobileNetV2 with random weights, for benchmarks that need no meaning, only sizes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.graph.nodes import make_model

# Expansion, channels out, repeats and first stride of each stage (Sandler et al. 2018, table 2).
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
CLASSES = 1000


class RandomImages:
    """Samples of random pixels; only a few of them differ, so that they take no memory to speak of."""

    label = "random images"

    def __init__(self, count: int, size: int) -> None:
        rng = np.random.default_rng(0)
        self.names = tuple(f"image{index}" for index in range(count))
        self._images = [rng.standard_normal((1, 3, size, size)).astype(np.float32) for _ in range(4)]

    def feed(self, index: int) -> Mapping[str, Array]:
        return {"image": self._images[index % len(self._images)]}


def save_mobilenet_v2(path: Path, size: int) -> Path:
    onnx.save(mobilenet_v2(size), path)
    return path


def mobilenet_v2(size: int) -> Any:
    """The network for square pictures of this size, batch norms folded as exporters do."""
    return _Builder().build(size)


class _Builder:
    def __init__(self) -> None:
        self._rng = np.random.default_rng(1)
        self._nodes: list[Any] = []
        self._weights = [
            numpy_helper.from_array(np.float32(0), "relu6_low"),
            numpy_helper.from_array(np.float32(6), "relu6_high"),
        ]

    def build(self, size: int) -> Any:
        x, channels = self._relu6(self._conv("image", 3, 32, kernel=3, stride=2)), 32
        for expansion, out, repeats, first_stride in STAGES:
            for repeat in range(repeats):
                stride = 1 if repeat else first_stride
                x = self._bottleneck(x, channels, out, expansion=expansion, stride=stride)
                channels = out
        x = self._relu6(self._conv(x, channels, 1280, kernel=1))
        self._nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"], name="pool"))
        self._nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"], name="flatten"))
        inputs = ["flat", *self._parameters("classifier", (CLASSES, 1280), fan_in=1280)]
        self._nodes.append(helper.make_node("Gemm", inputs, ["logits"], name="classifier", transB=1))
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, size, size])
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, CLASSES])
        return make_model(helper.make_graph(self._nodes, "mobilenet_v2", [image], [logits], self._weights))

    def _bottleneck(self, x: str, inputs: int, outputs: int, *, expansion: int, stride: int) -> str:
        wide = inputs * expansion
        y = self._relu6(self._conv(x, inputs, wide, kernel=1)) if expansion > 1 else x
        y = self._relu6(self._conv(y, wide, wide, kernel=3, stride=stride, group=wide))
        y = self._conv(y, wide, outputs, kernel=1)
        if stride > 1 or inputs != outputs:
            return y
        name = f"add{len(self._nodes)}"
        self._nodes.append(helper.make_node("Add", [x, y], [name], name=name))
        return name

    def _conv(
        self,
        x: str,
        inputs: int,
        outputs: int,
        *,
        kernel: int,
        stride: int = 1,
        group: int = 1,
    ) -> str:
        name, fan_in = f"conv{len(self._nodes)}", inputs // group * kernel**2
        parameters = self._parameters(name, (outputs, inputs // group, kernel, kernel), fan_in=fan_in)
        attributes = {"group": group, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        self._nodes.append(helper.make_node("Conv", [x, *parameters], [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def _relu6(self, x: str) -> str:
        name = x.removesuffix("_out")
        clipped = [x, "relu6_low", "relu6_high"]
        self._nodes.append(helper.make_node("Clip", clipped, [f"{name}_relu6"], name=f"{name}_clip"))
        return f"{name}_relu6"

    def _parameters(self, name: str, shape: tuple[int, ...], *, fan_in: int) -> list[str]:
        weight = self._rng.standard_normal(shape) * (2 / fan_in) ** 0.5
        bias = self._rng.standard_normal(shape[0]) * 0.1
        for part, values in (("weight", weight), ("bias", bias)):
            self._weights.append(numpy_helper.from_array(values.astype(np.float32), f"{name}_{part}"))
        return [f"{name}_weight", f"{name}_bias"]
