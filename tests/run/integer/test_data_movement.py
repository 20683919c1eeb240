from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.quantizers import Consumer, Quantizer, QuantParams, QuantSpec
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.run.integer.machine import IntegerRunner
from tests.models import value, wrapped
from tests.run.integer.support import FIXED, S8, U8, Codes, in_memory, params, random_codes, run_node

S16 = QuantSpec(16, signed=True, symmetric=True)
MOVES: list[tuple[str, dict[str, Array], dict[str, Any]]] = [
    ("Transpose", {}, {"perm": [0, 2, 3, 1]}),
    ("Transpose", {}, {}),
    ("Flatten", {}, {"axis": 2}),
    ("Reshape", {"shape": np.array([0, -1, 2])}, {}),
    ("Squeeze", {"axes": np.array([0])}, {}),
    ("Unsqueeze", {"axes": np.array([1, -1])}, {}),
    (
        "Slice",
        {
            "starts": np.array([3, 1]),
            "ends": np.array([0, 9]),
            "axes": np.array([3, 1]),
            "steps": np.array([-1, 2]),
        },
        {},
    ),
    ("Gather", {"indices": np.array([[2, 0], [1, -1]])}, {"axis": 3}),
    ("Tile", {"repeats": np.array([1, 2, 1, 3])}, {}),
    ("Expand", {"shape": np.array([2, 4, 2, 6])}, {}),
    ("DepthToSpace", {}, {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", {}, {"blocksize": 2}),
    ("Pad", {"pads": np.array([0, 0, 1, 2, 0, 0, 0, 1])}, {}),
    ("Pad", {"pads": np.array([0, 0, 1, 2, 0, 0, 0, -1])}, {"mode": "edge"}),
    ("Pad", {"pads": np.array([0, 0, 1, 2, 0, 0, 1, 0])}, {"mode": "reflect"}),
    ("MaxPool", {}, {"kernel_shape": [2, 3], "strides": [1, 2], "pads": [1, 1, 0, 1], "ceil_mode": 1}),
    ("GlobalMaxPool", {}, {}),
    ("ReduceMax", {}, {"axes": [1], "keepdims": 0}),
    ("ReduceMin", {}, {"axes": [2, 3]}),
    (
        "Resize",
        {"roi": np.zeros(0, np.float32), "scales": np.array([1, 1, 2, 1.5], np.float32)},
        {"mode": "nearest"},
    ),
]


def in_onnxruntime(op_type: str, data: Array, constants: dict[str, Array], **attributes: Any) -> Array:
    node = helper.make_node(op_type, ["x", *constants], ["y"], "node", **attributes)
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    model = wrapped([node], [value("x")], [value("y")], stored)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result: Array = session.run(None, {"x": data.astype(np.float32)})[0]
    return result


@pytest.mark.parametrize(("op_type", "constants", "attributes"), MOVES)
def test_codes_move_as_values_do(op_type: str, constants: dict[str, Array], attributes: dict[str, Any]) -> None:
    x = random_codes(np.random.default_rng(0), (1, 4, 2, 6), params(0.3, 77))

    ran = run_node(op_type, {"x": x, **constants}, {"y": (x.params, U8)}, **attributes)

    assert ran.is_integer
    moved = in_onnxruntime(op_type, x.centred, constants, **attributes)
    assert np.array_equal(ran.codes, moved + 77)
    assert ran.codes.dtype == np.uint8


@pytest.mark.parametrize("op_type", ["Reshape", "Pad", "Slice"])
def test_moves_between_a_product_and_its_quantizer(op_type: str) -> None:
    """What moves is then a sum of products, with a scale for each channel."""
    rng = np.random.default_rng(1)
    constants = next(each[1] for each in MOVES if each[0] == op_type)
    weights = rng.integers(-127, 128, (4, 3, 1, 1))
    scales = params(np.array([0.5, 0.25, 0.125, 1], np.float32))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["sum"], "conv"),
        helper.make_node(op_type, ["sum", *constants], ["y"], "move"),
    ]
    real = weights * scales.scale.reshape(-1, 1, 1, 1)
    stored = [
        numpy_helper.from_array(array, name) for name, array in {"w": real.astype(np.float32), **constants}.items()
    ]
    model = in_memory(wrapped(nodes, [value("x", (1, 3, 2, 6))], [value("y")], stored))
    quantizers = [
        Quantizer("x", "x", "activation", U8, params(1, 10), (Consumer("conv", 0),)),
        Quantizer("w", "w", "weight", S8.along(0), scales, (Consumer("conv", 1),)),
        Quantizer("y", "y", "activation", S16, params(0.125), (), output=True),
    ]
    x = rng.integers(-3, 3, (1, 3, 2, 6)).astype(np.float32)
    runner = IntegerRunner(model, quantizers, Arithmetic())

    codes = runner.run({"x": x}).codes["y"]

    summed = np.einsum("nchw,oc->nohw", x, real[..., 0, 0])
    assert runner.report.integer_nodes == ("conv", "move")
    assert np.array_equal(codes, in_onnxruntime(op_type, summed, constants) / 0.125)


def test_padding_is_quantized_like_everything_else() -> None:
    x = random_codes(np.random.default_rng(2), (2, 3), params(0.5, 100))
    pads = np.array([0, 1, 1, 0])
    fill = np.array(3.1, np.float32)

    ran = run_node("Pad", {"x": x, "pads": pads, "fill": fill}, {"y": (x.params, U8)})
    old = run_node("Pad", {"x": x}, {"y": (x.params, U8)}, opset=10, pads=pads.tolist(), value=3.1)

    expected = np.pad(x.codes, ((0, 1), (1, 0)), constant_values=100 + round(3.1 / 0.5))
    assert np.array_equal(ran.codes, expected)
    assert np.array_equal(old.codes, expected)


@pytest.mark.parametrize("fill", [-np.inf, np.inf, -7.0])
def test_padding_with_values_that_have_no_code_saturates(fill: float) -> None:
    x = random_codes(np.random.default_rng(3), (3,), params(0.01, 100))

    ran = run_node(
        "Pad", {"x": x, "pads": np.array([1, 0]), "fill": np.array(fill, np.float32)}, {"y": (x.params, U8)}
    )

    assert ran.codes.tolist() == [255 if fill > 0 else 0, *x.codes]


def test_parts_of_a_split_are_quantized_each() -> None:
    x = random_codes(np.random.default_rng(4), (2, 6), params(0.5, 128))
    outs = {"low": (x.params, U8), "high": (params(0.25, 0), S16)}

    ran = run_node("Split", {"x": x, "sizes": np.array([2, 4])}, outs, axis=1)

    assert np.array_equal(ran.run.codes["low"], x.codes[:, :2])
    assert np.array_equal(ran.run.codes["high"], x.centred[:, 2:] * 2)


def test_an_embedding_is_a_move_of_its_table() -> None:
    rng = np.random.default_rng(5)
    table = random_codes(rng, (10, 3), params(0.1), S8, constant=True, kind="weight")
    nodes = [helper.make_node("Gather", ["table", "words"], ["y"], "node")]
    stored = numpy_helper.from_array(table.real, "table")
    model = in_memory(wrapped(nodes, [value("words", (4,), TensorProto.INT64)], [value("y")], [stored]))
    quantizers = [
        Quantizer("table", "table", "weight", S8, table.params, (Consumer("node", 0),)),
        Quantizer("y", "y", "activation", S8, table.params, (), output=True),
    ]

    codes = IntegerRunner(model, quantizers, Arithmetic()).run({"words": np.array([3, 0, 9, 3])}).codes["y"]

    assert np.array_equal(codes, table.codes[[3, 0, 9, 3]])


@pytest.mark.parametrize("arithmetic", [Arithmetic(), FIXED])
def test_joined_tensors_are_brought_to_one_scale(arithmetic: Arithmetic) -> None:
    rng = np.random.default_rng(6)
    parts = {
        "a": random_codes(rng, (2, 1, 3), params(0.5, 128)),
        "b": random_codes(rng, (2, 2, 3), params(0.25, 3)),
        "c": Codes(np.array([[[1, 2, 3]]] * 2), params(1.0, 0), constant=True),
    }

    ran = run_node("Concat", parts, {"y": (params(0.25, 0), S16)}, arithmetic=arithmetic, axis=-2)

    expected = np.concatenate([parts["a"].centred * 2, parts["b"].centred, parts["c"].codes * 4], axis=1)
    assert ran.is_integer
    assert np.array_equal(ran.codes, expected)


def test_joining_tensors_of_one_scale_only_moves_codes() -> None:
    rng = np.random.default_rng(7)
    a, b = (random_codes(rng, (2, 3), params(0.37, 31)) for _ in range(2))

    ran = run_node("Concat", {"a": a, "b": b}, {"y": (a.params, U8)}, axis=0)

    assert np.array_equal(ran.codes, np.concatenate([a.codes, b.codes]))


def test_a_move_of_slices_with_scales_of_their_own() -> None:
    each = QuantParams(np.array([0.5, 0.25], np.float32), np.array([100, 30]))
    x = random_codes(np.random.default_rng(8), (3, 2), each, U8.along(1))

    ran = run_node("Transpose", {"x": x}, {"y": (params(0.25, 0), S16)})

    assert np.array_equal(ran.codes, (x.centred * np.array([2, 1])).T)


def test_a_second_output_that_no_move_has_runs_in_float() -> None:
    x = random_codes(np.random.default_rng(9), (4,), params(0.5, 100))

    ran = run_node("Dropout", {"x": x}, {"y": (x.params, U8), "mask": None})

    assert [entry.why for entry in ran.report.float_nodes] == ["its second output is used"]
    assert np.array_equal(ran.codes, x.codes)
    assert ran.run.values["mask"].all()


def test_the_places_of_the_largest_come_with_them() -> None:
    x = random_codes(np.random.default_rng(10), (1, 1, 4, 4), params(0.5, 100))

    ran = run_node("MaxPool", {"x": x}, {"y": (x.params, U8), "places": None}, kernel_shape=[2, 2], strides=[2, 2])

    assert np.array_equal(x.codes.ravel()[ran.run.values["places"]], ran.codes)
