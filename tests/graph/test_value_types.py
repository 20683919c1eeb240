"""Element types and ranks of single tensors."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.shapes import ValueTypes
from tests.graph.preparation.comparing import constant
from tests.models import conv_net, value, wrapped


def test_plain_models_are_not_inferred(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(model: Model) -> None:
        raise AssertionError

    monkeypatch.setattr("roundoff.graph.shapes.values", fail)
    types = ValueTypes(Model(conv_net(), Path("m.onnx"), 0))
    assert {types.element(name) for name in ("image", "relu1", "w1")} == {TensorProto.FLOAT}


def test_mixed_models_are() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
        helper.make_node("Mul", ["half", "w"], ["y"]),
        helper.make_node("Shape", ["y"], ["s"]),
    ]
    held = [constant("w", [[2.0]], np.float16)]
    proto = wrapped(nodes, [value("x", ("N", 2))], [value("y", None, TensorProto.FLOAT16)], held)
    types = ValueTypes(Model(proto, Path("m.onnx"), 0))
    kinds = {name: types.element(name) for name in ("x", "half", "y", "w", "unheard_of")}
    assert kinds == {"x": 1, "half": 10, "y": 10, "w": 10, "unheard_of": 1}
    assert {name: types.rank(name) for name in ("x", "y", "w", "unheard_of")} == {
        "x": 2,
        "y": 2,
        "w": 2,
        "unheard_of": None,
    }
    with pytest.raises(BadInput, match=r"'s' of m\.onnx is int64; only floats can be quantized"):
        types.element("s")
