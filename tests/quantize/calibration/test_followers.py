import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from roundoff.quantize.calibration.calibration import DerivedTensor, find_derived
from tests.models import loaded, value, wrapped

NUMBERS = {"zero": 0.0, "one": 1.0, "two": 2.0, "six": 6.0, "infinite": math.inf}


def found(
    tmp_path: Path, *nodes: tuple[str, list[str], str], opset: int = 17, **axes: int | None
) -> dict[str, DerivedTensor]:
    """What follows in a model of these nodes."""
    made = [helper.make_node(op_type, inputs, [output]) for op_type, inputs, output in nodes]
    weights = [numpy_helper.from_array(np.float32(number), name) for name, number in NUMBERS.items()]
    shape = numpy_helper.from_array(np.array([-1]), "shape")
    inputs = [value("x", (3,)), value("limit", ())]
    model = wrapped(made, inputs, [value(nodes[-1][2])], [*weights, shape], opset=opset)
    return find_derived(loaded(model, tmp_path), axes)


@pytest.mark.parametrize(
    ("node", "limits"),
    [
        (("Relu", ["x"]), (0, math.inf)),
        (("Clip", ["x", "zero", "six"]), (0, 6)),
        (("Clip", ["x", "", "six"]), (-math.inf, 6)),
        (("Clip", ["x", "one"]), (1, math.inf)),
        (("Clip", ["x"]), (-math.inf, math.inf)),
        (("Reshape", ["x", "shape"]), (-math.inf, math.inf)),
        (("Identity", ["x"]), (-math.inf, math.inf)),
    ],
    ids=str,
)
def test_limits(node: tuple[str, list[str]], limits: tuple[float, float], tmp_path: Path) -> None:
    assert found(tmp_path, (*node, "y"), x=None, y=None) == {"y": DerivedTensor("x", *limits)}


@pytest.mark.parametrize(
    "node",
    [
        ("Neg", ["x"]),
        ("Transpose", ["x"]),
        ("Clip", ["x", "zero", "limit"]),
        ("Clip", ["x", "six", "one"]),
        ("Clip", ["x", "infinite"]),
        ("Max", ["x", "zero"]),
    ],
    ids=str,
)
def test_what_cannot_be_told(node: tuple[str, list[str]], tmp_path: Path) -> None:
    assert found(tmp_path, (*node, "y"), x=None, y=None) == {}


def test_limits_in_attributes(tmp_path: Path) -> None:
    clip = helper.make_node("Clip", ["x"], ["y"], min=-1.0, max=2.0)
    model = loaded(wrapped([clip], [value("x", (3,))], [value("y")], opset=10), tmp_path)
    assert find_derived(model, {"x": None, "y": None}) == {"y": DerivedTensor("x", -1, 2)}


CHAIN: tuple[tuple[str, list[str], str], ...] = (
    ("Clip", ["x", "one", "six"], "a"),
    ("Reshape", ["a", "shape"], "b"),
    ("Clip", ["b", "zero", "two"], "c"),
)


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ({"x": None, "a": None, "c": None}, {"a": DerivedTensor("x", 1, 6), "c": DerivedTensor("x", 1, 2)}),
        ({"a": None, "c": None}, {"c": DerivedTensor("a", 0, 2)}),
        ({"x": None, "a": 0, "c": None}, {"c": DerivedTensor("x", 1, 2)}),
        ({"x": 0, "c": None}, {}),
        ({"x": None, "c": 0}, {}),
        ({"c": None}, {}),
    ],
    ids=str,
)
def test_one_after_the_other(axes: Any, expected: dict[str, DerivedTensor], tmp_path: Path) -> None:
    assert found(tmp_path, *CHAIN, **axes) == expected
