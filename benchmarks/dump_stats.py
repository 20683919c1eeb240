"""Cost of `roundoff dump --stats-only` over a plain onnxruntime pass with the same tensors as outputs.

Both run the same MobileNet (width 1.0, 224 x 224, random weights) over the same samples, in turns; the target is a
ratio of at most 2. Leaves with 1 when it is missed.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.graph.load import Model, load_model
from roundoff.graph.nodes import make_model
from roundoff.graph.subgraph import tap
from roundoff.measure.statistics import summarize_tensors
from roundoff.run.capture import LiveSource
from roundoff.run.session import open_session, share_threads

SAMPLES = 100
ROUNDS = 5
TARGET = 2.0
SIZE = 224
# Channels out and stride of each depthwise-separable block of MobileNet v1.
BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))


class RandomImages:
    label = "random images"
    names = tuple(map(str, range(SAMPLES)))

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._images = [rng.standard_normal((1, 3, SIZE, SIZE)).astype(np.float32) for _ in range(4)]

    def feed(self, index: int) -> Mapping[str, Array]:
        return {"image": self._images[index % len(self._images)]}


class MobileNet:
    """Convolution, batch norm and Relu as separate nodes, the way training frameworks export them."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(1)
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def build(self) -> Any:
        x, channels = self._unit("image", 3, 32, kernel=3, stride=2), 32
        for out, stride in BLOCKS:
            x = self._unit(x, channels, channels, kernel=3, stride=stride, group=channels)
            x, channels = self._unit(x, channels, out, kernel=1), out
        self._nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"]))
        self._nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
        weight = self._weight("classifier", (1000, channels), fan_in=channels)
        self._nodes.append(helper.make_node("Gemm", ["flat", weight], ["logits"], transB=1))
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIZE, SIZE])
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 1000])
        return make_model(helper.make_graph(self._nodes, "mobilenet", [image], [logits], self._weights))

    def _unit(self, x: str, inputs: int, outputs: int, *, kernel: int, stride: int = 1, group: int = 1) -> str:
        name = f"unit{len(self._nodes) // 3}"
        weight = self._weight(
            f"{name}.weight", (outputs, inputs // group, kernel, kernel), fan_in=inputs // group * kernel**2
        )
        attributes = {"group": group, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        self._nodes.append(helper.make_node("Conv", [x, weight], [f"{name}.conv"], **attributes))
        norm = [
            self._constant(f"{name}.{part}", outputs, value)
            for part, value in zip("sbmv", (1, 0, 0, 1), strict=True)
        ]
        self._nodes.append(helper.make_node("BatchNormalization", [f"{name}.conv", *norm], [f"{name}.norm"]))
        self._nodes.append(helper.make_node("Relu", [f"{name}.norm"], [f"{name}.relu"]))
        return f"{name}.relu"

    def _weight(self, name: str, shape: tuple[int, ...], *, fan_in: int) -> str:
        values = self._rng.standard_normal(shape) * (2 / fan_in) ** 0.5
        self._weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def _constant(self, name: str, channels: int, value: float) -> str:
        self._weights.append(numpy_helper.from_array(np.full(channels, value, np.float32), name))
        return name


def plain_pass(model: Model, samples: RandomImages) -> None:
    """What the tensors cost when nothing looks at them."""
    names = [name for node in model.proto.graph.node for name in node.output]
    session = open_session(model, outputs=tap(model, names))
    for index in range(SAMPLES):
        session.run(samples.feed(index))


def stats_pass(model: Model, samples: RandomImages) -> None:
    """What `--stats-only` does."""
    running, summing = share_threads()
    summarize_tensors(LiveSource(model, samples, threads=running), threads=summing)


def timed(work: Callable[[Model, RandomImages], None], model: Model, samples: RandomImages) -> float:
    start = time.perf_counter()
    work(model, samples)
    return time.perf_counter() - start


def main() -> int:
    samples = RandomImages()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mobilenet.onnx"
        onnx.save(MobileNet().build(), path)
        model = load_model(path)
        estimate = LiveSource(model, samples).estimate
        ratios = []
        for _ in range(ROUNDS):
            plain, stats = timed(plain_pass, model, samples), timed(stats_pass, model, samples)
            ratios.append(stats / plain)
            print(f"plain {plain:6.2f} s   with statistics {stats:6.2f} s   ratio {stats / plain:.2f}", flush=True)
    ratio = statistics.median(ratios)  # other programs disturb single rounds
    print(f"{estimate.tensors} tensors, {estimate.sample_bytes / 1e6:.0f} MB per sample, {SAMPLES} samples")
    print(f"ratio {ratio:.2f}, target at most {TARGET}: {'met' if ratio <= TARGET else 'missed'}")
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
