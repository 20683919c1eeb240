"""Normalizations with fixed statistics and with their own."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.graph.backward.builder import backward_graph
from tests.contracts.backward_rule import check_rule, distinct, in_memory, node_model

SHAPES = st.sampled_from([(2, 4), (2, 4, 3), (1, 4, 3, 2), (2, 4, 2, 2, 2)])


@given(shape=SHAPES, opset=st.sampled_from([7, 9, 14, 15, 22]), epsilon=st.sampled_from([1e-5, 0.1]))
@settings(max_examples=12, deadline=None)
def test_batch_normalization(shape: tuple[int, ...], opset: int, epsilon: float) -> None:
    scale, bias, mean = (distinct((4,), seed=seed) for seed in (1, 2, 3))
    variance = distinct((4,), low=0.5, high=2, seed=4)
    check_rule("BatchNormalization", distinct(shape), scale, bias, mean, variance, opset=opset, epsilon=epsilon)


@given(shape=SHAPES.filter(lambda shape: len(shape) > 2), opset=st.sampled_from([7, 18, 22]))
@settings(max_examples=8, deadline=None)
def test_instance_normalization(shape: tuple[int, ...], opset: int) -> None:
    scale, bias = (distinct((4,), seed=seed) for seed in (1, 2))
    check_rule("InstanceNormalization", distinct(shape), scale, bias, opset=opset, epsilon=1e-3)


@given(shape=SHAPES, axis=st.integers(-2, -1), opset=st.sampled_from([17, 18, 22]), bias=st.booleans())
@settings(max_examples=12, deadline=None)
def test_layer_normalization(shape: tuple[int, ...], axis: int, opset: int, bias: bool) -> None:
    parameters = [distinct(shape[axis:], seed=seed) for seed in ((1, 2) if bias else (1,))]
    check_rule("LayerNormalization", distinct(shape), *parameters, opset=opset, axis=axis, epsilon=1e-3)


@given(
    shape=SHAPES.filter(lambda shape: len(shape) > 2),
    groups=st.sampled_from([1, 2, 4]),
    opset=st.sampled_from([18, 21]),
)
@settings(max_examples=8, deadline=None)
def test_group_normalization(shape: tuple[int, ...], groups: int, opset: int) -> None:
    scaled = groups if opset < 21 else 4
    parameters = [distinct((scaled,), seed=seed) for seed in (1, 2)]
    held = {"num_groups": groups, "epsilon": 1e-3}
    # Even of float64 the later version computes the statistics in float32.
    check_rule("GroupNormalization", distinct(shape), *parameters, opset=opset, precise=False, **held)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_lp_normalization(p: int, axis: int) -> None:
    check_rule("LpNormalization", distinct((3, 4, 2)), opset=13, p=p, axis=axis)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn(size: int) -> None:
    check_rule("LRN", distinct((1, 5, 2, 3)), opset=13, size=size, alpha=0.7, beta=0.6, bias=1.3)


TRAINING: list[tuple[int, dict[str, Any], int]] = [(14, {"training_mode": 1}, 3), (7, {"spatial": 0}, 1)]


@pytest.mark.parametrize(("opset", "attributes", "outputs"), TRAINING)
def test_batch_normalization_in_training_has_no_rule(opset: int, attributes: dict[str, Any], outputs: int) -> None:
    inputs = [np.zeros((2, 4)), *[np.zeros(4)] * 4]
    proto = node_model(
        "BatchNormalization",
        inputs,
        dtype=np.dtype(np.float32),
        opset=opset,
        outputs=outputs,
        attributes=attributes,
    )
    backward = backward_graph(in_memory(proto), ["x0"], seeds=["y0"])
    assert "BatchNormalization 'node'" in backward.without_rule["x0"]


def test_a_second_output_that_is_used_has_no_rule() -> None:
    inputs = [np.zeros((2, 4)), np.zeros(4)]
    proto = node_model(
        "LayerNormalization", inputs, dtype=np.dtype(np.float32), opset=17, outputs=2, attributes={}
    )
    backward = backward_graph(in_memory(proto), ["x0"])
    assert "its output 'y1' has no rule" in backward.without_rule["x0"]
    assert "x0" in backward_graph(in_memory(proto), ["x0"], seeds=["y0"]).gradients
