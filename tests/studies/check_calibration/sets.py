"""Calibration sets made in code, clean and with planted faults, and a network they fit."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.graph.load import Model, model_from_proto
from roundoff.quantize.targets.files import load_target
from roundoff.samples.sample_set import ArraySamples
from roundoff.studies.check_calibration.ranges import CalibrationCheckSettings
from roundoff.studies.check_calibration.result import CalibrationCheck
from roundoff.studies.check_calibration.study import check_calibration
from tests.models import conv_net, value, weight, wrapped


def images(count: int, seed: int = 0) -> Array:
    """Smooth pictures of blobs with some noise, from 0 to 1, float32 [count, 3, 8, 8]."""
    random = np.random.default_rng(seed)
    grid = np.arange(8) / 7
    found = np.empty((count, 3, 8, 8))
    for place in range(count):
        y, x, size = random.uniform(0, 1), random.uniform(0, 1), random.uniform(0.15, 0.5)
        blob = np.exp(-(np.square(grid[:, None] - y) + np.square(grid - x)) / size**2)
        color = random.uniform(0.2, 1, (3, 1, 1))
        found[place] = color * blob + random.uniform(0, 0.15, (3, 8, 8))
    return np.clip(found, 0, 1).astype(np.float32)


def plain_net() -> Model:
    """Convolutions without batch normalization."""
    return model_from_proto(conv_net("N"), path=Path("net.onnx"))


def photographs(count: int, seed: int = 0) -> Array:
    """Pictures with the tones of photographs, pixels from 0 to 255, float64 [count, 3, 8, 8]."""
    random = np.random.default_rng(seed)
    light = random.normal(0, 35, (count, 1, 1, 1)) + random.normal(0, 12, (count, 3, 1, 1))
    coarse = random.normal(0, 45, (count, 1, 4, 4)).repeat(2, axis=2).repeat(2, axis=3)
    pixels = (
        np.array([124, 116, 103]).reshape(1, 3, 1, 1) + light + coarse + random.normal(0, 20, (count, 3, 8, 8))
    )
    return np.asarray(np.clip(np.round(pixels), 0, 255))


def normalized_net(prepare: Callable[[Array], Array] | None = None, seed: int = 0) -> Model:
    """A convolution and the batch normalization that was trained on what pictures were made into.

    By default these are pictures from 0 to 1, less 0.3, over 0.25; otherwise photographs, prepared as is said.
    """
    kernel = np.random.default_rng(seed).standard_normal((6, 3, 3, 3)).astype(np.float32)
    trained = (images(256, seed=99) - 0.3) / 0.25 if prepare is None else prepare(photographs(256, seed=99))
    seen = _convolved(trained, kernel)
    mean, variance = seen.mean(axis=(0, 2, 3)), seen.var(axis=(0, 2, 3))
    nodes = [
        helper.make_node("Conv", ["image", "k"], ["conv"], name="Conv1", pads=[1] * 4),
        helper.make_node("BatchNormalization", ["conv", "g", "b", "m", "v"], ["normal"], name="Norm1"),
        helper.make_node("Relu", ["normal"], ["relu"], name="Relu1"),
        helper.make_node("GlobalAveragePool", ["relu"], ["pooled"], name="Pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], name="Flatten"),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["logits"], name="Classifier"),
    ]
    given = {"k": kernel, "g": np.ones(6), "b": np.zeros(6), "m": mean, "v": variance}
    weights = [numpy_helper.from_array(each.astype(np.float32), name) for name, each in given.items()]
    weights += [weight("w3", 6, 10), weight("b3", 10)]
    proto = wrapped(nodes, [value("image", ("N", 3, 8, 8))], [value("logits", ("N", 10))], weights)
    return model_from_proto(proto, path=Path("normalized.onnx"))


def _convolved(values: Array, kernel: Array) -> Array:
    padded = np.pad(values, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.asarray(np.einsum("ncyxij,ocij->noyx", windows, kernel))


def check(
    values: Array,
    *,
    model: Model | None = None,
    others: Array | None = None,
    labels: Array | None = None,
    method: str = "",
) -> CalibrationCheck:
    """Check a set of pictures."""
    settings = CalibrationCheckSettings(load_target("generic-int8"), method=method)
    held_out = None if others is None else ArraySamples({"image": others}, label="others")
    samples = ArraySamples({"image": values}, label="set")
    return check_calibration(model or plain_net(), samples, settings, held_out=held_out, labels=labels)


def kinds(found: CalibrationCheck) -> set[str]:
    """What is wrong, in a word each."""
    return {finding.kind for finding in found.faults}
