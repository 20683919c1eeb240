"""Batch normalization and per-channel constants, folded into the layer in front of them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from roundoff.graph.load import Model
from roundoff.graph.preparation.steps import prepare
from tests.graph.preparation.comparing import constant, in_memory, normalization, operations, prepared_alike
from tests.models import value, weight, wrapped

IMAGE = (2, 4, 5, 5)


def _initializers(model: Model) -> dict[str, Any]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.proto.graph.initializer}


@settings(max_examples=40, deadline=None)
@given(
    op_type=st.sampled_from(["Conv", "ConvTranspose"]),
    groups=st.sampled_from([1, 2, 4]),
    bias=st.booleans(),
    axes=st.integers(1, 3),
    outside=st.sampled_from([1, 2, 3]),
    opset=st.sampled_from([7, 9, 13, 15, 22]),
)
def test_convolutions(op_type: str, groups: int, bias: bool, axes: int, outside: int, opset: int) -> None:
    channels = groups * outside
    shape = (channels, 4 // groups) if op_type == "Conv" else (4, outside)
    inputs = ["x", "w", "b"] if bias else ["x", "w"]
    bn, statistics = normalization("c", "n", channels, epsilon=1e-3)
    nodes = [
        helper.make_node(op_type, inputs, ["c"], name="conv", group=groups),
        bn,
        helper.make_node("Relu", ["n"], ["y"], name="relu"),
    ]
    weights = [weight("w", *shape, *[2] * axes), *statistics]
    if bias:
        weights.append(weight("b", channels, seed=1))
    shape_x = (2, 4, *[4] * axes)
    proto = wrapped(nodes, [value("x", shape_x)], [value("y")], weights, opset=opset, ir_version=10)
    prepared = prepared_alike(proto, {"x": shape_x})
    assert operations(prepared.model) == [op_type, "Relu"]
    assert prepared.model.proto.graph.node[0].output[0] == "n", "the unit keeps the name of its last tensor"
    assert prepared.origins == {"conv": "conv", "n": "conv", "relu": "relu"}
    assert "BatchNormalization folded into the layer in front: 'n'" in tuple(map(str, prepared.notes))
    assert set(_initializers(prepared.model)) == {"w", "b" if bias else "conv_bias"}


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("bias", [None, (), (1,), (3,), (1, 3)])
def test_fully_connected(transposed: int, bias: tuple[int, ...] | None) -> None:
    bn, statistics = normalization("g", "n", 3)
    inputs = ["x", "w"] if bias is None else ["x", "w", "b"]
    gemm = helper.make_node("Gemm", inputs, ["g"], name="fc", transB=transposed, alpha=0.5, beta=2.0)
    weights = [weight("w", *((3, 4) if transposed else (4, 3))), *statistics]
    if bias is not None:
        weights.append(weight("b", *bias))
    proto = wrapped([gemm, bn], [value("x", (2, 4))], [value("n")], weights)
    prepared = prepared_alike(proto, {"x": (2, 4)})
    assert operations(prepared.model) == ["Gemm"]


def test_a_bias_for_each_sample_is_not_folded() -> None:
    bn, statistics = normalization("g", "n", 2)
    gemm = helper.make_node("Gemm", ["x", "w", "b"], ["g"], name="fc")
    weights = [weight("w", 4, 2), weight("b", 2, 1), *statistics]
    prepared = prepared_alike(wrapped([gemm, bn], [value("x", (2, 4))], [value("n")], weights), {"x": (2, 4)})
    assert operations(prepared.model) == ["Gemm", "BatchNormalization"]
    assert "BatchNormalization stays, because the bias of the layer in front differs between samples: 'n'" in map(
        str, prepared.notes
    )


def test_normalization_in_pieces() -> None:
    """Conv, then Sub, Div, Mul and Add of constants, in the shapes exporters write."""
    rng = np.random.default_rng(0)
    pieces = {
        "mean": ("Sub", ["c", "mean"], (1, 6, 1, 1)),
        "deviation": ("Div", ["mean_", "deviation"], (6, 1, 1)),
        "scale": ("Mul", ["scale", "deviation_"], (1, 6, 1, 1)),
        "shift": ("Add", ["scale_", "shift"], (6, 1, 1)),
        "flip": ("Sub", ["flip", "shift_"], (6, 1, 1)),
    }
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv")]
    nodes += [helper.make_node(op, names, [f"{key}_"], name=key) for key, (op, names, _) in pieces.items()]
    weights = [weight("w", 6, 4, 3, 3)]
    weights += [constant(key, rng.uniform(0.5, 2, shape)) for key, (_, _, shape) in pieces.items()]
    prepared = prepared_alike(wrapped(nodes, [value("x", IMAGE)], [value("flip_")], weights), {"x": IMAGE})
    assert operations(prepared.model) == ["Conv"]
    assert set(prepared.origins.values()) == {"conv"}


@pytest.mark.parametrize(
    ("op_type", "names", "shape"),
    [
        ("Add", ["c", "k"], ()),  # a piece of an activation function
        ("Add", ["c", "k"], (1,)),
        ("Mul", ["c", "k"], (3,)),  # along the width
        ("Mul", ["c", "k"], (1, 1, 1, 3)),
        ("Div", ["k", "c"], (6, 1, 1)),
        ("Add", ["c", "k"], (2, 6, 1, 1)),
        ("Add", ["c", "k"], (1, 1, 6, 1, 1)),
        ("Mul", ["c", "c"], (1,)),
    ],
)
def test_other_arithmetic_stays(op_type: str, names: list[str], shape: tuple[int, ...]) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node(op_type, names, ["y"], name="part"),
    ]
    weights = [weight("w", 6, 4, 3, 3), constant("k", np.full(shape, 1.5))]
    prepared = prepared_alike(wrapped(nodes, [value("x", IMAGE)], [value("y")], weights), {"x": IMAGE})
    assert operations(prepared.model) == ["Conv", op_type]
    assert prepared.notes == ()


def test_a_shared_weight_is_cloned() -> None:
    nodes, weights = [], [weight("w", 6, 4, 3, 3), weight("b", 6, seed=2)]
    for name in ("left", "right"):
        bn, statistics = normalization(f"{name}_c", name, 6)
        nodes += [helper.make_node("Conv", ["x", "w", "b"], [f"{name}_c"], name=f"{name}_conv"), bn]
        weights += statistics
    nodes.append(helper.make_node("Conv", ["x", "w", "b"], ["plain"], name="plain"))
    outputs = [value(name) for name in ("left", "right", "plain")]
    prepared = prepared_alike(wrapped(nodes, [value("x", IMAGE)], outputs, weights), {"x": IMAGE})
    assert operations(prepared.model) == ["Conv"] * 3
    assert len({node.input[1] for node in prepared.model.proto.graph.node}) == 3


def test_a_weight_that_leaves_the_network_is_not_changed() -> None:
    bn, statistics = normalization("c", "n", 6)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv"), bn]
    outputs = [value("n"), value("w", (6, 4, 3, 3))]
    proto = wrapped(nodes, [value("x", IMAGE)], outputs, [weight("w", 6, 4, 3, 3), *statistics])
    assert operations(prepared_alike(proto, {"x": IMAGE}).model) == ["Conv"]


_CONV = helper.make_node("Conv", ["x", "w"], ["c"], name="conv")


@pytest.mark.parametrize(
    ("extra", "outputs", "reason"),
    [
        ([helper.make_node("Relu", ["c"], ["r"], name="relu")], ["n", "r"], "other nodes read the result"),
        ([], ["n", "c"], "other nodes read the result"),
    ],
)
def test_a_result_that_is_used_elsewhere_is_kept(extra: list[Any], outputs: list[str], reason: str) -> None:
    bn, statistics = normalization("c", "n", 6)
    nodes = [_CONV, *extra, bn]
    proto = wrapped(
        nodes, [value("x", IMAGE)], [value(n) for n in outputs], [weight("w", 6, 4, 3, 3), *statistics]
    )
    prepared = prepared_alike(proto, {"x": IMAGE})
    assert "BatchNormalization" in operations(prepared.model)
    assert prepared.origins["n"] == "n"
    assert any(f"BatchNormalization stays, because {reason}" in str(note) for note in prepared.notes)


def test_weights_and_statistics_that_are_computed() -> None:
    bn, statistics = normalization("c", "n", 6)
    fed = [value("x", IMAGE), value("w", (6, 4, 3, 3))]
    proto = wrapped([_CONV, bn], fed, [value("n")], statistics)
    prepared = prepared_alike(proto, {"x": IMAGE, "w": (6, 4, 3, 3)})
    assert tuple(map(str, prepared.notes)) == (
        "BatchNormalization stays, because the weight of the layer in front is computed: 'n'",
    )
    fed = [value("x", IMAGE), value("n_mean", (6,))]
    held = [weight("w", 6, 4, 3, 3), *(each for each in statistics if each.name != "n_mean")]
    prepared = prepared_alike(wrapped([_CONV, bn], fed, [value("n")], held), {"x": IMAGE, "n_mean": (6,)})
    assert tuple(map(str, prepared.notes)) == (
        "BatchNormalization stays, because its parameters are computed: 'n'",
    )
    inputs = ["x", "w", "b"]
    node = helper.make_node("Conv", inputs, ["c"], name="conv")
    fed = [value("x", IMAGE), value("b", (6,))]
    prepared = prepared_alike(
        wrapped([node, bn], fed, [value("n")], [weight("w", 6, 4, 3, 3), *statistics]), {"x": IMAGE, "b": (6,)}
    )
    assert tuple(map(str, prepared.notes)) == (
        "BatchNormalization stays, because the bias of the layer in front is computed: 'n'",
    )


def test_normalization_of_an_input_stays() -> None:
    bn, statistics = normalization("x", "n", 4)
    prepared = prepared_alike(wrapped([bn], [value("x", IMAGE)], [value("n")], statistics), {"x": IMAGE})
    assert tuple(map(str, prepared.notes)) == (
        "BatchNormalization stays, because there is no layer with weights in front: 'n'",
    )


def test_training_mode_stays() -> None:
    bn, statistics = normalization("c", "n", 6, training_mode=1)
    bn.output.extend(["running_mean", "running_variance"])
    proto = wrapped([_CONV, bn], [value("x", IMAGE)], [value("n")], [weight("w", 6, 4, 3, 3), *statistics])
    prepared = prepared_alike(proto, {"x": IMAGE})
    assert tuple(map(str, prepared.notes)) == ("BatchNormalization stays, because it is in training mode: 'n'",)


def test_statistics_for_each_position_stay() -> None:
    bn, _ = normalization("c", "n", 6, spatial=0)
    held = [constant(name, np.ones((6, 3, 3))) for name in bn.input[1:]]
    proto = wrapped([_CONV, bn], [value("x", IMAGE)], [value("n")], [weight("w", 6, 4, 3, 3), *held], opset=8)
    assert tuple(map(str, prepare(in_memory(proto)).notes)) == (
        "BatchNormalization stays, because it has statistics for each position: 'n'",
    )


def test_a_division_by_zero_stays() -> None:
    bn, statistics = normalization("c", "n", 6, epsilon=0.0)
    statistics[3] = constant("n_variance", [0, 1, 1, 1, 1, 1])
    proto = wrapped([_CONV, bn], [value("x", IMAGE)], [value("n")], [weight("w", 6, 4, 3, 3), *statistics])
    prepared = prepare(in_memory(proto))
    assert operations(prepared.model) == ["Conv", "BatchNormalization"]
    assert tuple(map(str, prepared.notes)) == (
        "BatchNormalization stays, because it divides by zero, or its parameters are not finite: 'n'",
    )


def test_what_is_too_large_for_the_type_of_the_weights_stays() -> None:
    bn, statistics = normalization("c", "n", 6, epsilon=0.0, dtype=np.float16)
    statistics[3] = constant("n_variance", np.full(6, 6e-8), np.float16)
    held = [constant("w", np.full((6, 4, 3, 3), 100), np.float16), *statistics]
    fed, given = (value(name, None, 10) for name in "xn")
    prepared = prepare(in_memory(wrapped([_CONV, bn], [fed], [given], held)))
    assert tuple(map(str, prepared.notes)) == (
        "BatchNormalization stays, because the result would not be finite in float16: 'n'",
    )


def test_half_precision_is_folded_in_its_own_type() -> None:
    bn, statistics = normalization("c", "n", 6, dtype=np.float16)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(np.float16))
    weights = [constant("w", np.random.default_rng(0).normal(size=(6, 4, 3, 3)) * 0.1, np.float16), *statistics]
    fed, given = value("x", IMAGE, kind), value("n", None, kind)
    x = np.random.default_rng(1).normal(size=IMAGE).astype(np.float16)
    prepared = prepared_alike(wrapped([_CONV, bn], [fed], [given], weights), {}, feed={"x": x}, rtol=5e-3)
    assert operations(prepared.model) == ["Conv"]
    assert {array.dtype.name for array in _initializers(prepared.model).values()} == {"float16"}
