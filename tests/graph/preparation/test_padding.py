"""Pad in front of Conv."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.graph.preparation.comparing import constant, operations, prepared_alike
from tests.models import value, weight, wrapped

IMAGE = (1, 3, 6, 5)


def _padded(pads: list[int], *more: Any, conv: dict[str, Any] | None = None, **attributes: Any) -> Any:
    """Pad and Conv; further constants are further inputs of the Pad."""
    held = [constant("pads", pads, np.int64), *more]
    nodes = [
        helper.make_node("Pad", ["x", *(each.name for each in held)], ["p"], name="pad", **attributes),
        helper.make_node("Conv", ["p", "w"], ["y"], name="conv", **(conv or {})),
    ]
    return wrapped(
        nodes, [value("x", IMAGE)], [value("y")], [weight("w", 2, 3, 3, 3), *held], opset=18, ir_version=8
    )


@pytest.mark.parametrize(
    ("conv", "total"),
    [
        ({}, [0, 1, 3, 2]),
        ({"pads": [1, 0, 1, 2], "strides": [2, 2]}, [1, 1, 4, 4]),
        ({"auto_pad": "VALID", "dilations": [2, 1]}, [0, 1, 3, 2]),
    ],
)
def test_zeros_are_merged(conv: dict[str, Any], total: list[int]) -> None:
    proto = _padded([0, 0, 0, 1, 0, 0, 3, 2], constant("zero", 0), conv=conv)
    prepared = prepared_alike(proto, {"x": IMAGE}, rtol=0)
    assert operations(prepared.model) == ["Conv"]
    attributes = {
        each.name: helper.get_attribute_value(each) for each in prepared.model.proto.graph.node[0].attribute
    }
    assert attributes["pads"] == total
    assert "auto_pad" not in attributes
    assert prepared.origins == {"pad": "conv", "conv": "conv"}


def test_axes_can_be_named() -> None:
    proto = _padded([1, 2, 3, 4], constant("zero", 0), constant("axes", [-1, 2], np.int64))
    prepared = prepared_alike(proto, {"x": IMAGE}, rtol=0)
    assert list(prepared.model.proto.graph.node[0].attribute[0].ints) == [2, 1, 4, 3]


def test_old_models_have_attributes() -> None:
    nodes = [
        helper.make_node("Pad", ["x"], ["p"], name="pad", pads=[0, 0, 1, 1, 0, 0, 1, 1]),
        helper.make_node("Conv", ["p", "w"], ["y"], name="conv"),
    ]
    proto = wrapped(nodes, [value("x", IMAGE)], [value("y")], [weight("w", 2, 3, 3, 3)], opset=9)
    assert operations(prepared_alike(proto, {"x": IMAGE}, rtol=0).model) == ["Conv"]
    nodes[0].attribute.append(helper.make_attribute("value", 0.5))
    proto = wrapped(nodes, [value("x", IMAGE)], [value("y")], [weight("w", 2, 3, 3, 3)], opset=9)
    assert operations(prepared_alike(proto, {"x": IMAGE}, rtol=0).model) == ["Pad", "Conv"]


@pytest.mark.parametrize(
    "proto",
    [
        _padded([0, 0, 1, 1, 0, 0, 1, 1], constant("one", 1)),
        _padded([0, 0, 1, 1, 0, 0, 1, 1], mode="reflect"),
        _padded([0, 0, -1, 0, 0, 0, 0, 0]),
        _padded([0, 0, 1, 1, 0, 0, 1, 1], conv={"auto_pad": "SAME_UPPER"}),
        _padded([1, 0, 1, 1, 0, 0, 1, 1]),
    ],
    ids=["ones", "reflected", "cropped", "automatic", "batch"],
)
def test_anything_else_stays(proto: Any) -> None:
    prepared = prepared_alike(proto, {"x": IMAGE}, rtol=0)
    assert operations(prepared.model) == ["Pad", "Conv"]
    assert prepared.notes == ()


def test_padding_that_others_read_stays() -> None:
    proto = _padded([0, 0, 1, 1, 0, 0, 1, 1])
    proto.graph.output.append(value("p"))
    assert operations(prepared_alike(proto, {"x": IMAGE}, rtol=0).model) == ["Pad", "Conv"]
