"""Outputs of two models side by side: figures against numpy, shapes that differ, spread of samples."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.quantize.agreement import judge_outputs
from roundoff.run.bench import spread
from tests.models import value, wrapped


class _Samples:
    label = "memory"

    def __init__(self, *arrays: Array) -> None:
        self._arrays = arrays
        self.names = tuple(f"s{index}" for index in range(len(arrays)))

    def feed(self, index: int) -> Mapping[str, Array]:
        return {"x": self._arrays[index]}


def _scaled(factors: list[float]) -> Model:
    constant = numpy_helper.from_array(np.array(factors, dtype=np.float32), "c")
    node = helper.make_node("Mul", ["x", "c"], ["y"], name="mul")
    proto = wrapped([node], [value("x", [1, len(factors)])], [value("y", [1, len(factors)])], [constant])
    return Model(proto, Path("scaled.onnx"), 0)


def test_figures_are_those_of_all_samples_together() -> None:
    rows = np.array([[1.0, 2.0, 3.0], [5.0, 1.0, 0.5], [1.0, 1.1, 1.0]], dtype=np.float32)
    samples = _Samples(*(row[None] for row in rows))
    [got] = judge_outputs(_scaled([1, 1, 1]), _scaled([1, 0.5, 1]), samples, indices=range(3)).agreement
    other = rows * [1, 0.5, 1]
    error = rows - other
    assert got.output == "y"
    assert got.samples == 3
    assert got.score.values["mse"] == pytest.approx(np.mean(error**2))
    assert got.score.values["sqnr_db"] == pytest.approx(
        10 * np.log10(np.sum(rows**2) / np.sum(error**2)), rel=1e-6
    )
    assert got.same_top1 == pytest.approx(2 / 3)


def test_only_the_samples_asked_for_are_run() -> None:
    samples = _Samples(np.ones((1, 2), dtype=np.float32), np.full((1, 9), np.nan, dtype=np.float32))
    [got] = judge_outputs(_scaled([1, 2]), _scaled([1, 2]), samples, indices=[0]).agreement
    assert got.samples == 1
    assert got.score.values["sqnr_db"] == np.inf
    assert got.same_top1 == 1.0


def test_shapes_that_differ_have_no_score() -> None:
    node = helper.make_node("Flatten", ["x"], ["y"], name="flat", axis=0)
    flat = Model(wrapped([node], [value("x", [1, 2])], [value("y", None)]), Path("flat.onnx"), 0)
    other = helper.make_node("Transpose", ["x"], ["y"], name="turn")
    turned = Model(wrapped([other], [value("x", [1, 2])], [value("y", None)]), Path("turned.onnx"), 0)
    samples = _Samples(np.ones((1, 2), dtype=np.float32))
    [got] = judge_outputs(flat, turned, samples, indices=[0]).agreement
    assert got.score.values == {}
    assert "[1, 2] and [2, 1]" in got.score.detail


@pytest.mark.parametrize(("total", "most", "expected"), [(3, 5, (0, 1, 2)), (9, 3, (0, 4, 8)), (1, 1, (0,))])
def test_samples_are_spread_evenly(total: int, most: int, expected: tuple[int, ...]) -> None:
    assert spread(total, most) == expected
