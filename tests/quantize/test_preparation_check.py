"""Comparing a prepared model with the original."""

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.graph.preparation.steps import prepare
from roundoff.quantize.agreement import check_preparation
from tests.graph.preparation.comparing import constant, in_memory, normalization
from tests.models import conv_net, single_node, value, weight, with_sequence, wrapped

SHAPE = (1, 3, 8, 8)


class _Samples:
    label = "samples"

    def __init__(self, *arrays: Array, name: str = "image") -> None:
        self._arrays, self._name = arrays, name
        self.names = tuple(str(index) for index in range(len(arrays)))

    def feed(self, index: int) -> Mapping[str, Array]:
        return {self._name: self._arrays[index]}


_IMAGES = _Samples(*np.random.default_rng(0).standard_normal((3, *SHAPE)).astype(np.float32))


def test_equal_models_agree_without_difference() -> None:
    model = in_memory(conv_net())
    check = check_preparation(model, prepare(model).model, _IMAGES, count=9)
    assert check.agrees
    assert check.samples == 3
    assert [(each.output, each.max_abs_error, each.sqnr_db) for each in check.outputs] == [("logits", 0.0, np.inf)]
    assert tuple(map(str, check.notes)) == (
        "the prepared model's outputs equal the original's to the last bit (3 samples)",
    )


def test_folding_differs_by_rounding_only() -> None:
    bn, statistics = normalization("c", "n", 6)
    nodes = [helper.make_node("Conv", ["image", "w"], ["c"], name="conv"), bn]
    model = in_memory(
        wrapped(nodes, [value("image", SHAPE)], [value("n")], [weight("w", 6, 3, 3, 3), *statistics])
    )
    check = check_preparation(model, prepare(model).model, _IMAGES)
    (output,) = check.outputs
    assert check.agrees
    assert 0 < output.max_abs_error < 1e-5
    assert 110 < output.sqnr_db < 160
    assert output.magnitude > 1
    (note,) = check.notes
    assert str(note).startswith("the prepared model's outputs equal the original's: largest difference ")
    assert str(note).endswith("dB, 1 sample; up to 0.0001 of the largest value counts as rounding")


def _scaled(factor: float, dtype: Any = np.float32) -> Model:
    node = helper.make_node("Mul", ["image", "k"], ["y"], name="n")
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    held = [constant("k", factor, dtype)]
    return in_memory(wrapped([node], [value("image", SHAPE, kind)], [value("y", SHAPE, kind)], held))


@pytest.mark.parametrize(
    ("dtype", "factor", "agrees"),
    [
        (np.float32, 1 + 9e-5, True),
        (np.float32, 1 + 2e-4, False),
        (np.float16, 1 + 1e-2, True),
        (np.float16, 1.05, False),
        (np.float64, 1 + 1e-10, True),
        (np.float64, 1 + 1e-5, False),
    ],
)
def test_what_counts_as_rounding_depends_on_the_type(dtype: Any, factor: float, agrees: bool) -> None:
    samples = _Samples(np.full(SHAPE, 3, dtype))
    check = check_preparation(_scaled(1, dtype), _scaled(factor, dtype), samples)
    assert check.agrees == agrees
    if not agrees:
        assert str(check.notes[0]).startswith(
            "output 'y' of the prepared model differs from the original's: largest"
        )


def test_values_that_are_not_finite_must_be_in_the_same_places() -> None:
    node = helper.make_node("Reciprocal", ["image"], ["y"], name="n")
    model = in_memory(single_node(node, [value("image", (2,))]))
    zero = _Samples(np.array([0, 2], np.float32))
    assert check_preparation(model, model, zero).agrees
    other = in_memory(single_node(helper.make_node("Neg", ["image"], ["y"], name="n"), [value("image", (2,))]))
    check = check_preparation(model, other, zero)
    assert not check.agrees
    assert "values that are not finite are at other places" in str(check.notes[0])


def test_other_shapes_and_what_holds_no_numbers() -> None:
    samples = _Samples(np.zeros((2, 3), np.float32), name="x")
    straight, turned = (
        in_memory(single_node(helper.make_node("Transpose", ["x"], ["y"], perm=perm), [value("x", (2, 3))]))
        for perm in ([0, 1], [1, 0])
    )
    assert "its shape is [3, 2] instead of [2, 3]" in str(check_preparation(straight, turned, samples).notes[0])
    proto = with_sequence()
    proto.graph.output.append(value("text", (2, 3), TensorProto.STRING))
    text = in_memory(deepcopy(proto))
    check = check_preparation(text, text, samples)
    assert check.agrees
    # Zero and minus zero are the same number, and not the same text.
    proto.graph.node.insert(2, helper.make_node("Neg", ["joined"], ["negated"], name="neg"))
    proto.graph.node[3].input[0] = "negated"
    check = check_preparation(text, in_memory(proto), samples)
    assert [each.problem for each in check.outputs] == ["", "it holds text, not numbers"]


def test_what_does_not_run_is_reported_not_raised() -> None:
    node = helper.make_node("Reshape", ["image", "s"], ["y"], name="n")
    held = [numpy_helper.from_array(np.array([7]), "s")]
    broken = in_memory(single_node(node, [value("image", SHAPE)], held))
    check = check_preparation(broken, broken, _IMAGES)
    assert not check.agrees
    assert str(check.notes[0]).startswith("the prepared model could not be compared with the original: ")
    wrong = _Samples(np.zeros((1, 2), np.float32))
    model = in_memory(conv_net())
    assert "must be float32 [1, 3, 8, 8]" in check_preparation(model, model, wrong).problem


def test_an_empty_output_agrees() -> None:
    node = helper.make_node("Slice", ["image", "zero", "zero"], ["y"], name="n")
    model = in_memory(single_node(node, [value("image", (4,))], [constant("zero", [0], np.int64)]))
    assert check_preparation(model, model, _Samples(np.ones(4, np.float32))).agrees


def test_the_label_of_a_model_does_not_matter() -> None:
    first, second = _scaled(1), Model(_scaled(1).proto, Path("elsewhere.onnx"), 0)
    assert check_preparation(first, second, _IMAGES).agrees
