"""Importing and running a Caffe classifier of 25 MB: roundoff and onnxruntime against OpenCV's dnn module.

Both read the same two files (a residual net with BatchNorm and Scale layers of their own, random numbers) and
compute the same pictures, in turns. The target is a ratio of at most 1 over the few dozen samples that people
calibrate and compare with; leaves with 1 when it is missed. A single picture is shown besides: there onnxruntime's
preparation of the session decides, which costs more than OpenCV's and pays from some five pictures on.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np

from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextEntry, TextMessage
from roundoff.graph.caffe.net import blob_message
from roundoff.graph.caffe.wire import encode

IMAGES = 32
ROUNDS = 3
TARGET = 1.0
SIZE = 224
TOLERANCE = 1e-3
# Blocks, channels and first stride of each stage.
STAGES = ((3, 32, 1), (4, 64, 2), (6, 128, 2), (3, 256, 2))
WIDER = 4
CLASSES = 1000

Work: TypeAlias = Callable[[Path, Path, list[Array]], Array]


class Writer:
    """Writes a residual net as the two files of Caffe."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(1)
        self._text = f'input: "data" input_shape {{ dim: 1 dim: 3 dim: {SIZE} dim: {SIZE} }}\n'
        self._layers: list[TextEntry] = []

    def write(self, folder: Path) -> tuple[Path, Path]:
        blob, channels = self._unit("conv1", "data", 3, 64, kernel=7, stride=2), 64
        blob = self._add("pool1", "Pooling", [blob], "pooling_param { pool: MAX kernel_size: 3 stride: 2 }")
        for stage, (blocks, width, stride) in enumerate(STAGES):
            for block in range(blocks):
                name, step = f"stage{stage}_{block}", stride if block == 0 else 1
                blob = self._block(name, blob, channels, width, stride=step)
                channels = width * WIDER
        blob = self._add("pool", "Pooling", [blob], "pooling_param { pool: AVE global_pooling: true }")
        fc = f"inner_product_param {{ num_output: {CLASSES} }}"
        weights = self._normal(CLASSES, channels, fan_in=channels), np.zeros(CLASSES, np.float32)
        blob = self._add("fc", "InnerProduct", [blob], fc, weights)
        self._add("prob", "Softmax", [blob])
        prototxt, caffemodel = folder / "net.prototxt", folder / "net.caffemodel"
        prototxt.write_text(self._text)
        caffemodel.write_bytes(b"".join(encode(TextMessage(tuple(self._layers)), "NetParameter")))
        return prototxt, caffemodel

    def _block(self, name: str, blob: str, channels: int, width: int, *, stride: int) -> str:
        short = blob
        if channels != width * WIDER:
            short = self._unit(f"{name}_short", blob, channels, width * WIDER, stride=stride, relu=False)
        inner = self._unit(f"{name}_a", blob, channels, width, stride=stride)
        inner = self._unit(f"{name}_b", inner, width, width, kernel=3)
        inner = self._unit(f"{name}_c", inner, width, width * WIDER, relu=False)
        joined = self._add(f"{name}_sum", "Eltwise", [inner, short])
        return self._add(f"{name}_relu", "ReLU", [joined], top=joined)

    def _unit(  # noqa: PLR0913 - a convolution has many
        self, name: str, blob: str, channels: int, out: int, *, kernel: int = 1, stride: int = 1, relu: bool = True
    ) -> str:
        params = f"num_output: {out} kernel_size: {kernel} stride: {stride} pad: {kernel // 2} bias_term: false"
        weights = self._normal(out, channels, kernel, kernel, fan_in=channels * kernel**2)
        blob = self._add(name, "Convolution", [blob], f"convolution_param {{ {params} }}", (weights,))
        norm = np.zeros(out, np.float32), np.ones(out, np.float32), np.ones(1, np.float32)
        self._add(f"{name}_bn", "BatchNorm", [blob], blobs=norm, top=blob)
        scale = np.full(out, 0.5, np.float32), np.zeros(out, np.float32)
        self._add(f"{name}_scale", "Scale", [blob], "scale_param { bias_term: true }", scale, top=blob)
        return self._add(f"{name}_relu", "ReLU", [blob], top=blob) if relu else blob

    def _add(
        self,
        name: str,
        kind: str,
        bottoms: list[str],
        params: str = "",
        blobs: tuple[Array, ...] = (),
        top: str = "",
    ) -> str:
        wires = " ".join(f'bottom: "{bottom}"' for bottom in bottoms)
        self._text += f'layer {{ name: "{name}" type: "{kind}" {wires} top: "{top or name}" {params} }}\n'
        stored = tuple(TextEntry("blobs", blob_message(blob)) for blob in blobs)
        self._layers.append(
            TextEntry("layer", TextMessage((TextEntry("name", name), TextEntry("type", kind), *stored)))
        )
        return top or name

    def _normal(self, *shape: int, fan_in: int) -> Array:
        return np.asarray(self._rng.standard_normal(shape) * (2 / fan_in) ** 0.5, np.float32)


def ours(prototxt: Path, caffemodel: Path, images: list[Array]) -> Array:
    """Import, open a session as any program would, run."""
    import onnxruntime

    from roundoff.graph.caffe.convert import import_caffe

    model = import_caffe(prototxt, caffemodel).model
    session = onnxruntime.InferenceSession(model.proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(["prob"], {"data": image})[0] for image in images])


def opencv(prototxt: Path, caffemodel: Path, images: list[Array]) -> Array:
    """The same by OpenCV."""
    import cv2

    net = cv2.dnn.readNetFromCaffe(str(prototxt), str(caffemodel))
    results = []
    for image in images:
        net.setInput(image, "data")
        results.append(net.forward("prob").copy())
    return np.concatenate(results)


def timed(work: Work, files: tuple[Path, Path], images: list[Array]) -> tuple[float, Array]:
    start = time.perf_counter()
    result = work(*files, images)
    return time.perf_counter() - start, result


def main() -> int:
    rng = np.random.default_rng(0)
    images = [rng.standard_normal((1, 3, SIZE, SIZE)).astype(np.float32) for _ in range(IMAGES)]
    with tempfile.TemporaryDirectory() as folder:
        files = Writer().write(Path(folder))
        print(f"{files[1].stat().st_size / 1e6:.0f} MB of numbers, {IMAGES} pictures")
        for work in (ours, opencv):  # imports and caches
            timed(work, files, images[:1])
        ratios: dict[int, list[float]] = {1: [], IMAGES: []}
        for _ in range(ROUNDS):
            for count, found in ratios.items():
                (mine, result), (other, wanted) = (timed(work, files, images[:count]) for work in (ours, opencv))
                assert np.abs(result - wanted).max() / np.abs(wanted).max() < TOLERANCE
                found.append(mine / other)
                print(
                    f"{count:3} pictures: roundoff {mine:5.2f} s   OpenCV {other:5.2f} s   ratio {found[-1]:.2f}"
                )
    ratio = statistics.median(ratios[IMAGES])  # other programs disturb single rounds
    print(f"ratio {ratio:.2f}, target at most {TARGET}: {'met' if ratio <= TARGET else 'missed'}")
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
