"""Nodes computed on their own."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from roundoff.graph.load import Model
from roundoff.graph.preparation.steps import CannotEvaluate, evaluate
from tests.models import value, wrapped


def _model(nodes: list[Any]) -> Model:
    return Model(wrapped(nodes, [value("x")], [value("y")]), Path("m.onnx"), 0)


def test_results_of_a_few_nodes() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Add", ["n", "x2"], ["y"])]
    feeds = {"x": np.array([1.0, 2.0], np.float32), "x2": np.array(5.0, np.float32)}
    y, n = evaluate(nodes, feeds, ["y", "n"], model=_model(nodes))
    np.testing.assert_array_equal(y, [4, 3])
    np.testing.assert_array_equal(n, [-1, -2])
    assert evaluate(nodes, feeds, [], model=_model(nodes)) == []


@pytest.mark.parametrize(
    ("node", "x", "reason"),
    [
        (helper.make_node("Neg", ["x"], ["y"]), np.ones(2, ml_dtypes.bfloat16), "the type bfloat16 cannot be fed"),
        (helper.make_node("Reshape", ["x", "x"], ["y"]), np.array([7]), "onnxruntime cannot compute them"),
        (helper.make_node("SplitToSequence", ["x"], ["y"]), np.ones(2, np.float32), "results are not tensors"),
    ],
)
def test_what_cannot_be_computed(node: Any, x: Any, reason: str) -> None:
    with pytest.raises(CannotEvaluate, match=reason):
        evaluate([node], {"x": x}, ["y"], model=_model([node]))
