"""Convolutions of one to three axes: every gradient of every combination of attributes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from roundoff.graph.backward.builder import backward_graph
from tests.contracts.backward_rule import check_rule, distinct, in_memory, node_model

OPSETS = st.sampled_from([7, 10, 11, 13, 22])


@st.composite
def geometries(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes and attributes of windows along one, two or (small) three axes."""
    rank = draw(st.sampled_from([1, 2, 2, 2, 3]))
    largest = 3 if rank < 3 else 2

    def numbers(low: int, high: int, count: int = rank) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    return {
        "kernel": numbers(1, largest),
        "strides": numbers(1, largest),
        "dilations": numbers(1, 2),
        "sizes": numbers(3, 6) if rank < 3 else numbers(2, 3),
        "pads": numbers(0, 2, 2 * rank),
        "group": draw(st.sampled_from([1, 1, 2, 4])),
        "channels": draw(st.sampled_from([(1, 1), (2, 1), (1, 2)])),
        "batch": draw(st.integers(1, 2)),
        "bias": draw(st.booleans()),
    }


def fits(geometry: dict[str, Any], pads: list[int]) -> bool:
    rank = len(geometry["kernel"])
    reaches = [(k - 1) * d + 1 for k, d in zip(geometry["kernel"], geometry["dilations"], strict=True)]
    padded = [size + pads[axis] + pads[axis + rank] for axis, size in enumerate(geometry["sizes"])]
    return all(size >= reach for size, reach in zip(padded, reaches, strict=True))


def attributes_of(geometry: dict[str, Any], automatic: str) -> dict[str, Any]:
    kept = {name: geometry[name] for name in ("strides", "dilations", "group")}
    return kept | ({"pads": geometry["pads"]} if automatic == "NOTSET" else {"auto_pad": automatic})


def conv_inputs(geometry: dict[str, Any], *, transposed: bool) -> list[Any]:
    group, (first, second) = geometry["group"], geometry["channels"]
    x = distinct((geometry["batch"], group * first, *geometry["sizes"]))
    shape = (group * first, second) if transposed else (group * second, first)
    weight = distinct((*shape, *geometry["kernel"]), seed=1)
    return [x, weight, *([distinct((group * second,), seed=2)] if geometry["bias"] else [])]


# Pointwise, with a padding that is only there to make room for one more window.
CORNER = {"kernel": [1, 1], "strides": [1, 2], "dilations": [1, 1], "sizes": [3, 3], "pads": [0, 0, 0, 2]}


@example({**CORNER, "group": 1, "channels": (1, 1), "batch": 1, "bias": False}, 7)
@given(geometry=geometries(), opset=OPSETS)
@settings(max_examples=45, deadline=None)
def test_conv(geometry: dict[str, Any], opset: int) -> None:
    assume(fits(geometry, geometry["pads"]))
    check_rule("Conv", *conv_inputs(geometry, transposed=False), opset=opset, **attributes_of(geometry, "NOTSET"))


@given(geometry=geometries(), automatic=st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]))
@settings(max_examples=15, deadline=None)
def test_conv_with_automatic_padding(geometry: dict[str, Any], automatic: str) -> None:
    if automatic == "VALID":
        assume(fits(geometry, [0] * 6))
    else:
        # The runtime refuses any other.
        geometry["dilations"] = [1] * len(geometry["kernel"])
    check_rule("Conv", *conv_inputs(geometry, transposed=False), **attributes_of(geometry, automatic))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [1, 3])
def test_conv_on_images_as_networks_have_them(stride: int, kernel: int) -> None:
    for group, inputs in ((1, 4), (4, 1)):
        x, weight = distinct((1, 4, 6, 6)), distinct((4, inputs, kernel, kernel), seed=1)
        check_rule(
            "Conv", x, weight, distinct((4,), seed=2), group=group, strides=[stride] * 2, pads=[kernel // 2] * 4
        )


@given(geometry=geometries(), extra=st.booleans(), opset=OPSETS)
@settings(max_examples=30, deadline=None)
def test_conv_transpose(geometry: dict[str, Any], extra: bool, opset: int) -> None:
    rank = len(geometry["kernel"])
    rows = zip(geometry["sizes"], geometry["kernel"], geometry["strides"], geometry["dilations"], strict=True)
    whole = [(n - 1) * s + (k - 1) * d + 1 for n, k, s, d in rows]
    pads = geometry["pads"]
    assume(all(size > pads[axis] + pads[axis + rank] for axis, size in enumerate(whole)))
    more = {"output_padding": [stride - 1 for stride in geometry["strides"]]}
    inputs = conv_inputs(geometry, transposed=True)
    check_rule(
        "ConvTranspose", *inputs, opset=opset, **attributes_of(geometry, "NOTSET"), **(more if extra else {})
    )


@pytest.mark.parametrize("automatic", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("size", [7, 8, 9])
def test_conv_transpose_to_a_given_size(automatic: str, size: int) -> None:
    x, weight = distinct((1, 2, 4, 4)), distinct((2, 1, 3, 3), seed=1)
    check_rule("ConvTranspose", x, weight, strides=[2, 2], output_shape=[size, size], auto_pad=automatic)


@pytest.mark.parametrize("automatic", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_conv_transpose_with_automatic_padding(automatic: str) -> None:
    x, weight = distinct((1, 2, 4, 4)), distinct((2, 1, 3, 3), seed=1)
    check_rule("ConvTranspose", x, weight, strides=[2, 2], auto_pad=automatic)


def test_negative_padding_has_no_rule() -> None:
    inputs = [np.zeros((1, 1, 6, 6)), np.zeros((1, 1, 3, 3))]
    proto = node_model(
        "Conv", inputs, dtype=np.dtype(np.float32), opset=13, outputs=1, attributes={"pads": [-1, 0, 0, 0]}
    )
    backward = backward_graph(in_memory(proto), ["x0"], shapes={"y0": (1, 1, 3, 4)})
    assert "negative" in backward.without_rule["x0"]
