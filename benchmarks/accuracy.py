"""Accuracy of our int8 models beside those of onnxruntime's quantize_static, from the same calibration samples.

The demo's digits always; MobileNetV1-0.25 on ImageNet pictures when the shared folder lies beside the repository.
Leaves with 1 when ours is below theirs by more than one picture in two hundred, which is chance.
"""

import csv
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from roundoff import demo
from roundoff.core.tensors import Array
from roundoff.graph.load import Model, load_model
from roundoff.graph.save import fill
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.targets.files import load_target
from roundoff.run.session import open_session

SHARED = Path(__file__).resolve().parents[2] / "shared"
CHANCE = 0.005


@dataclass(frozen=True)
class Task:
    """A network, what it is calibrated on and what it is judged on."""

    name: str
    path: Path
    calibration: Array
    images: Array
    labels: Array

    @property
    def input(self) -> str:
        return str(load_model(self.path).proto.graph.input[0].name)


class Arrays:
    """Samples in memory."""

    label = "calibration images"

    def __init__(self, name: str, images: Array) -> None:
        self._name, self._images = name, images
        self.names = tuple(map(str, range(len(images))))

    def feed(self, index: int) -> Mapping[str, Array]:
        return {self._name: self._images[index : index + 1]}


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """The same for onnxruntime."""

    def __init__(self, samples: Arrays) -> None:
        self._feeds = (samples.feed(index) for index in range(len(samples.names)))

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self._feeds, None)


def digits() -> Task:
    images, labels = demo.load_split("test")
    return Task("digits", demo.model_path(), demo.load_split("calibration")[0][:64], images, labels)


def mobilenet() -> Task | None:
    path = SHARED / "models/mobilenet_v1_0.25_224/mobilenet_v1_0.25_224.onnx"
    if not path.exists():
        return None
    from PIL import Image

    folder = SHARED / "data/imagenet256"
    parts: dict[str, list[tuple[Array, int]]] = {"calib": [], "eval": []}
    with (folder / "labels.csv").open() as file:
        for row in csv.DictReader(file):
            with Image.open(folder / row["file"]) as picture:
                pixels = np.asarray(picture.convert("RGB").crop((16, 16, 240, 240)), dtype=np.float32)
            parts[row["role"]].append((pixels.transpose(2, 0, 1) / 127.5 - 1, int(row["label"])))
    calibration = np.stack([image for image, _ in parts["calib"]])
    images = np.stack([image for image, _ in parts["eval"]])
    return Task("mobilenet_v1_0.25", path, calibration, images, np.array([label for _, label in parts["eval"]]))


def accuracy(task: Task, model: Model) -> float:
    session = open_session(model)
    right = [
        session.run({task.input: task.images[index : index + 1]})[0].reshape(-1).argmax() == label
        for index, label in enumerate(task.labels)
    ]
    return float(np.mean(right))


def ours(task: Task, target: str, method: str) -> Model:
    settings = QuantizeSettings(load_target(target), methods=(method,))
    result = quantize_model(load_model(task.path), Arrays(task.input, task.calibration), settings)
    return fill(result.fake_quant_model())


def theirs(task: Task, *, per_channel: bool, method: Any) -> Model:
    with tempfile.TemporaryDirectory() as folder:
        prepared, path = Path(folder, "prepared.onnx"), Path(folder, "theirs.onnx")
        quant_pre_process(str(task.path), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(path),
            Reader(Arrays(task.input, task.calibration)),
            quant_format=QuantFormat.QDQ,
            per_channel=per_channel,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=method,
        )
        return load_model(path)


def main() -> int:
    ort.set_default_logger_severity(3)
    missed = 0
    for task in filter(None, (digits(), mobilenet())):
        print(f"{task.name}: {len(task.labels)} images, float {accuracy(task, load_model(task.path)):.2%}")
        for target, per_channel in (("generic-int8-per-tensor", False), ("generic-int8", True)):
            for method, name in (("minmax", CalibrationMethod.MinMax), ("entropy", CalibrationMethod.Entropy)):
                left = accuracy(task, ours(task, target, method))
                right = accuracy(task, theirs(task, per_channel=per_channel, method=name))
                fine = left >= right - CHANCE
                missed += not fine
                grain = "per channel" if per_channel else "per tensor"
                print(f"  {grain}, {method}: ours {left:.2%}, theirs {right:.2%}{'' if fine else '  MISSED'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
