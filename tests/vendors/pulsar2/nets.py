"""Small networks, calibration data and configurations for builds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from tests.models import loaded, save, value, weight, wrapped

IMAGE = (1, 3, 8, 8)
CALIBRATION = {"tensor_name": "DEFAULT", "calibration_dataset": "calib", "calibration_format": "Numpy"}


def mixed() -> Any:
    """Convolutions, a merge, a Concat, moves of data, a product of two activations, and a classifier.

    image -> conv1 bn1 relu1 -> conv2 -> add1 -> concat1 -> conv3 -> reshape1 -> transpose1 -> scores softmax1
    -> context -> flatten -> classifier
    """
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["c1"], name="conv1", pads=[1] * 4),
        helper.make_node("BatchNormalization", ["c1", "g", "b", "m", "v"], ["n1"], name="bn1"),
        helper.make_node("Relu", ["n1"], ["a1"], name="relu1"),
        helper.make_node("Conv", ["a1", "w2"], ["c2"], name="conv2", pads=[1] * 4),
        helper.make_node("Add", ["a1", "c2"], ["s1"], name="add1"),
        helper.make_node("Concat", ["s1", "a1"], ["j1"], name="concat1", axis=1),
        helper.make_node("Conv", ["j1", "w3"], ["c3"], name="conv3", pads=[1] * 4),
        helper.make_node("Reshape", ["c3", "shape"], ["r1"], name="reshape1"),
        helper.make_node("Transpose", ["r1"], ["t1"], name="transpose1", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t1", "r1"], ["p1"], name="scores"),
        helper.make_node("Softmax", ["p1"], ["q1"], name="softmax1", axis=-1),
        helper.make_node("MatMul", ["q1", "t1"], ["x1"], name="context"),
        helper.make_node("Flatten", ["x1"], ["f1"], name="flatten"),
        helper.make_node("Gemm", ["f1", "w4", "b4"], ["logits"], name="classifier"),
    ]
    ones = [("g", 1.2), ("b", 0.1), ("m", 0.05), ("v", 0.9)]
    weights = [
        weight("w1", 4, 3, 3, 3, seed=1),
        weight("w2", 4, 4, 3, 3, seed=2),
        weight("w3", 4, 8, 3, 3, seed=3),
        weight("w4", 256, 10, seed=4),
        weight("b4", 10, seed=5),
        numpy_helper.from_array(np.array([1, 4, 64]), "shape"),
        *(numpy_helper.from_array(np.full(4, number, np.float32), name) for name, number in ones),
    ]
    return wrapped(nodes, [value("image", IMAGE)], [value("logits", (1, 10))], weights)


def mixed_model(folder: Path) -> Model:
    """The network, read from a file."""
    return loaded(mixed(), folder)


def attentive(blocks: int = 2) -> Any:
    """Attentions one behind the other, each of q, k and v, a scale, a Softmax and two products of activations."""
    nodes, weights, before = [], [numpy_helper.from_array(np.float32(0.3), "scale")], "tokens"
    for block in range(blocks):
        for place, role in enumerate("qkv"):
            weights.append(weight(f"w{role}{block}", 8, 8, seed=3 * block + place))
            made = [before, f"w{role}{block}"], [f"{role}{block}"]
            nodes.append(helper.make_node("MatMul", *made, name=f"{role}_{block}"))
        nodes += [
            helper.make_node("Transpose", [f"k{block}"], [f"t{block}"], name=f"turn_{block}", perm=[0, 2, 1]),
            helper.make_node("MatMul", [f"q{block}", f"t{block}"], [f"s{block}"], name=f"scores_{block}"),
            helper.make_node("Mul", [f"s{block}", "scale"], [f"m{block}"], name=f"scale_{block}"),
            helper.make_node("Softmax", [f"m{block}"], [f"p{block}"], name=f"softmax_{block}", axis=-1),
            helper.make_node("MatMul", [f"p{block}", f"v{block}"], [f"y{block}"], name=f"context_{block}"),
        ]
        before = f"y{block}"
    return wrapped(nodes, [value("tokens", (1, 4, 8))], [value(before, (1, 4, 8))], weights)


def imbalanced(spread: float = 300.0) -> Any:
    """Eight channels are scaled apart by a factor of `spread` and back: 8 bits between lose most of them."""
    factors = np.geomspace(1, spread, 8).astype(np.float32).reshape(8, 1, 1, 1)
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["x"], name="mix", pads=[1] * 4),
        helper.make_node("Conv", ["x", "apart"], ["y"], name="apart", group=8),
        helper.make_node("Conv", ["y", "back"], ["z"], name="together", group=8),
        helper.make_node("Relu", ["z"], ["features"], name="relu"),
    ]
    weights = [
        weight("w", 8, 3, 3, 3, seed=7),
        numpy_helper.from_array(1 / factors, "apart"),
        numpy_helper.from_array(factors, "back"),
    ]
    return wrapped(nodes, [value("image", IMAGE)], [value("features", (1, 8, 8, 8))], weights)


def write_samples(folder: Path, count: int = 6, *, shape: tuple[int, ...] = IMAGE) -> list[Array]:
    """Calibration samples as .npy files."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = [np.random.default_rng(seed).normal(0.2, 1, shape).astype(np.float32) for seed in range(count)]
    for number, array in enumerate(arrays):
        np.save(folder / f"{number:02}.npy", array)
    return arrays


def write_config(path: Path, **quant: Any) -> Path:
    """A configuration for the samples in ``calib``."""
    path.write_text(json.dumps({"quant": {"input_configs": [CALIBRATION], **quant}}), encoding="utf-8")
    return path


def write_all(folder: Path, net: Any, **quant: Any) -> None:
    """``net.onnx``, ``calib`` and ``config.json`` in a folder."""
    save(net, folder / "net.onnx")
    write_samples(folder / "calib")
    write_config(folder / "config.json", **quant)
