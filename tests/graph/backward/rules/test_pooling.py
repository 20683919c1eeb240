"""Pooling with overlapping, dilated, padded and cut-off windows."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.graph.backward.builder import backward_graph
from tests.contracts.backward_rule import check_rule, distinct, in_memory, node_model, open_raw


@st.composite
def poolings(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes and attributes of a pooling; no window lies in the padding alone."""
    rank = draw(st.sampled_from([1, 2, 2, 2, 3]))
    kernel = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    pads = [draw(st.integers(0, (size - 1) // 2 if size > 1 else 0)) for size in (*kernel, *kernel)]
    return {
        "shape": (
            1,
            2,
            *draw(st.lists(st.integers(4, 6) if rank < 3 else st.integers(3, 4), min_size=rank, max_size=rank)),
        ),
        "kernel_shape": kernel,
        "strides": draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank)),
        "pads": pads,
    }


@given(pooling=poolings(), opset=st.sampled_from([7, 8, 10, 11, 12, 16, 22]), data=st.data())
@settings(max_examples=40, deadline=None)
def test_max_pool(pooling: dict[str, Any], opset: int, data: st.DataObject) -> None:
    shape = pooling.pop("shape")
    if opset >= 10:
        pooling["ceil_mode"] = data.draw(st.integers(0, 1))
        pooling["dilations"] = data.draw(
            st.lists(st.integers(1, 2), min_size=len(shape) - 2, max_size=len(shape) - 2)
        )
        reaches = [(k - 1) * d + 1 for k, d in zip(pooling["kernel_shape"], pooling["dilations"], strict=True)]
        assume(all(reach <= size for reach, size in zip(reaches, shape[2:], strict=True)))
    check_rule("MaxPool", distinct(shape), opset=opset, **pooling)


@given(pooling=poolings(), opset=st.sampled_from([7, 10, 11, 19, 22]), data=st.data())
@settings(max_examples=40, deadline=None)
def test_average_pool(pooling: dict[str, Any], opset: int, data: st.DataObject) -> None:
    shape = pooling.pop("shape")
    pooling["count_include_pad"] = data.draw(st.integers(0, 1))
    if opset >= 10:
        pooling["ceil_mode"] = data.draw(st.integers(0, 1))
    if opset >= 19:
        pooling["dilations"] = data.draw(
            st.lists(st.integers(1, 2), min_size=len(shape) - 2, max_size=len(shape) - 2)
        )
        reaches = [(k - 1) * d + 1 for k, d in zip(pooling["kernel_shape"], pooling["dilations"], strict=True)]
        assume(all(reach <= size for reach, size in zip(reaches, shape[2:], strict=True)))
    check_rule("AveragePool", distinct(shape), opset=opset, **pooling)


@pytest.mark.parametrize("automatic", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
def test_automatic_padding(op_type: str, automatic: str) -> None:
    for stride in (1, 2):
        check_rule(op_type, distinct((1, 2, 5, 6)), kernel_shape=[2, 3], strides=[stride] * 2, auto_pad=automatic)


@pytest.mark.parametrize("op_type", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 3, 3, 4), (1, 2, 2, 3, 2)], ids=str)
def test_pooling_whole_images(op_type: str, shape: tuple[int, ...]) -> None:
    for opset in (7, 17):
        check_rule(op_type, distinct(shape), opset=opset)


def gradient_of_equal_pixels(opset: int, **attributes: Any) -> Array:
    zeros = np.zeros((1, 1, 4, 4))
    held = {"kernel_shape": [2, 2], **attributes}
    proto = node_model("MaxPool", [zeros], dtype=np.dtype(np.float32), opset=opset, outputs=1, attributes=held)
    backward = backward_graph(in_memory(proto), ["x0"])
    size = math.prod(open_raw(proto).get_outputs()[0].shape or [1])
    seed = np.ones((1, 1, *(int(size**0.5),) * 2), np.float32)
    feed = {"x0": zeros.astype(np.float32), backward.seeds["y0"]: seed}
    found: Array = open_raw(backward.model.proto).run([backward.gradients["x0"]], feed)[0]
    return found


@pytest.mark.parametrize("opset", [7, 13, 17])
@pytest.mark.parametrize("stride", [1, 2])
def test_equal_pixels_get_the_whole_gradient_between_them(opset: int, stride: int) -> None:
    found = gradient_of_equal_pixels(opset, strides=[stride] * 2)
    assert found.sum() == pytest.approx(9 if stride == 1 else 4)
    assert found.min() >= 0


def test_a_network_that_has_the_places_of_maxima_already() -> None:
    x = distinct((1, 1, 4, 4))
    proto = node_model(
        "MaxPool", [x], dtype=np.dtype(np.float32), opset=17, outputs=2, attributes={"kernel_shape": [2, 2]}
    )
    proto.graph.output[1].type.tensor_type.elem_type = 7
    backward = backward_graph(in_memory(proto), ["x0"])
    assert list(backward.seeds) == ["y0"]
    feed = {"x0": x.astype(np.float32), backward.seeds["y0"]: np.ones((1, 1, 3, 3), np.float32)}
    gradient, places = open_raw(backward.model.proto).run([backward.gradients["x0"], "y1"], feed)
    assert gradient.sum() == 9
    assert np.flatnonzero(gradient).tolist() == sorted(set(places.ravel().tolist()))
