"""Resizing by factors and to sizes, in the modes and versions that onnxruntime has."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from roundoff.graph.backward.builder import backward_graph
from tests.contracts.backward_rule import check_rule, distinct, in_memory, node_model

MODES = st.sampled_from(["nearest", "linear", "cubic"])
PLACES = st.sampled_from(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
FACTORS = st.sampled_from([(2.0, 2.0), (3.0, 1.0), (0.5, 0.6), (1.5, 2.7), (1.0, 0.8)])


def f32(*values: float) -> Any:
    return np.array(values, np.float32)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


@given(
    mode=MODES,
    places=PLACES,
    height=st.integers(2, 9),
    width=st.integers(2, 9),
    opset=st.sampled_from([11, 13, 18, 19]),
)
@settings(max_examples=30, deadline=None)
def test_to_a_size(mode: str, places: str, height: int, width: int, opset: int) -> None:
    none = f32() if opset < 13 else None
    sizes = ints(1, 2, height, width)
    held = {"mode": mode, "coordinate_transformation_mode": places}
    check_rule("Resize", distinct((1, 2, 4, 5)), none, none, sizes, opset=opset, **held)


@given(mode=MODES, places=PLACES, factors=FACTORS, opset=st.sampled_from([11, 13, 18, 19]))
@settings(max_examples=30, deadline=None)
def test_by_factors(mode: str, places: str, factors: tuple[float, float], opset: int) -> None:
    none = f32() if opset < 13 else None
    held = {"mode": mode, "coordinate_transformation_mode": places}
    check_rule("Resize", distinct((1, 2, 4, 5)), none, f32(1, 1, *factors), opset=opset, **held)


@given(mode=st.sampled_from(["nearest", "linear"]), factors=FACTORS, opset=st.sampled_from([7, 9, 10]))
@settings(max_examples=12, deadline=None)
def test_before_versions_agreed(mode: str, factors: tuple[float, float], opset: int) -> None:
    assume(opset == 10 or min(factors) >= 1)
    x = distinct((1, 2, 4, 5))
    if opset == 7:
        check_rule("Upsample", x, opset=7, mode=mode, scales=[1.0, 1.0, *factors])
    else:
        check_rule("Upsample" if opset == 9 else "Resize", x, f32(1, 1, *factors), opset=opset, mode=mode)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_the_nearest_pixel_by_any_rounding(rounding: str) -> None:
    check_rule("Resize", distinct((1, 1, 4, 5)), None, None, ints(1, 1, 7, 3), nearest_mode=rounding)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 2, 3, 2, 4)], ids=str)
def test_one_and_three_axes(mode: str, shape: tuple[int, ...]) -> None:
    sizes = [*shape[:2], *(2 * size - 1 for size in shape[2:])]
    check_rule("Resize", distinct(shape), None, None, ints(*sizes), mode=mode)


def test_chosen_axes() -> None:
    check_rule("Resize", distinct((1, 2, 4, 5)), None, None, ints(6, 3), opset=18, mode="linear", axes=[2, 3])
    check_rule("Resize", distinct((1, 2, 4, 5)), None, f32(1.5, 2), opset=18, mode="linear", axes=[2, 3])


def test_smoothed_when_made_smaller() -> None:
    check_rule(
        "Resize", distinct((1, 1, 6, 6)), None, None, ints(1, 1, 3, 4), opset=18, mode="linear", antialias=1
    )


@pytest.mark.parametrize(
    ("inputs", "held", "reason"),
    [
        (
            [f32(0, 0, 0, 0, 1, 1, 1, 1), None, ints(1, 1, 2, 2)],
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
            "region",
        ),
        ([None, None, ints(1, 1, 2, 2)], {"keep_aspect_ratio_policy": "not_larger"}, "aspect ratio"),
        ([None, f32(2, 2, 2, 2)], {}, "all axes"),
    ],
    ids=["region", "aspect", "all"],
)
def test_what_has_no_rule(inputs: list[Any], held: dict[str, Any], reason: str) -> None:
    whole = [np.zeros((1, 1, 4, 4)), *inputs]
    proto = node_model("Resize", whole, dtype=np.dtype(np.float32), opset=18, outputs=1, attributes=held)
    assert reason in backward_graph(in_memory(proto), ["x0"]).without_rule["x0"]
