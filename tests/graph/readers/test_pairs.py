"""QuantizeLinear and DequantizeLinear in every arrangement that tools write."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from roundoff.core.tensors import Array
from roundoff.graph.readers.reader import read_quantized
from tests.graph.quantized_nets import run_model
from tests.graph.readers.tools import constant, edges, node, ops, read_back, reference, small
from tests.models import loaded, random_feed, value, wrapped

FEED = random_feed({"x": (2, 3)}, seed=1)
SCALE, ZERO = np.float32(0.05), np.uint8(100)
PARAMETERS: dict[str, Any] = {"s": SCALE, "z": ZERO}
WEIGHT = np.array([[0.3, -0.2], [0.1, 0.4], [-0.5, 0.25]], np.float32)


def pair(source: str, result: str, scale: str = "s", zero: str = "z", **attributes: Any) -> list[Any]:
    """Quantize and dequantize a tensor."""
    parameters = [scale, zero] if zero else [scale]
    return [
        node("QuantizeLinear", [source, *parameters], f"{result}_codes", **attributes),
        node("DequantizeLinear", [f"{result}_codes", *parameters], result, **attributes),
    ]


def codes_of(values: Array, scale: Any = SCALE, zero: int = 100) -> Array:
    return np.asarray(np.clip(np.rint(values / scale) + zero, 0, 255).astype(np.uint8))


def test_a_pair_in_front_of_a_node(tmp_path: Path) -> None:
    model = small(tmp_path, [*pair("x", "xq"), node("Relu", ["xq"], "y")], PARAMETERS)
    read = read_quantized(model)

    (quantizer,) = read.quantizers
    assert (quantizer.tensor, quantizer.kind, edges(quantizer)) == ("x", "activation", [("y_Relu", 0)])
    assert (float(quantizer.params.scale), int(quantizer.params.zero_point)) == (float(SCALE), 100)
    assert [str(array.dtype) for array in (quantizer.params.scale, quantizer.params.zero_point)] == [
        "float32",
        "int64",
    ]
    assert ops(read) == ["Relu"]
    assert read.oddities == ()
    np.testing.assert_array_equal(read_back(read, FEED), reference(model, FEED))


@pytest.mark.parametrize(
    ("parameters", "dtype", "symmetric"),
    [
        ({"s": SCALE, "z": np.uint8(128)}, "u8", True),
        ({"s": SCALE, "z": np.int8(0)}, "s8", True),
        ({"s": SCALE, "z": np.int8(-5)}, "s8", False),
        ({"s": np.full(1, SCALE), "z": np.full(1, 7, np.uint8)}, "u8", False),
    ],
)
def test_type_and_symmetry_come_from_the_zero_point(
    tmp_path: Path, parameters: dict[str, Any], dtype: str, symmetric: bool
) -> None:
    model = small(tmp_path, [*pair("x", "xq"), node("Relu", ["xq"], "y")], parameters)
    read = read_quantized(model)

    (quantizer,) = read.quantizers
    assert (quantizer.spec.dtype, quantizer.spec.symmetric, quantizer.spec.axis) == (dtype, symmetric, None)
    assert quantizer.params.scale.shape == quantizer.params.zero_point.shape == ()
    np.testing.assert_array_equal(read_back(read, FEED), reference(model, FEED))


# The newest opset that every onnxruntime runs that we allow, and the version that runs the next one.
_RUN_OPSET, _RUNS_MORE = 21, (1, 24)


@pytest.mark.parametrize(("opset", "ir_version"), [(10, 5), (13, 7), (19, 9), (21, 10), (23, 11)])
def test_any_opset(tmp_path: Path, opset: int, ir_version: int) -> None:
    if opset > _RUN_OPSET and tuple(map(int, onnxruntime.__version__.split(".")[:2])) < _RUNS_MORE:
        pytest.skip(f"onnxruntime {onnxruntime.__version__} has no QuantizeLinear of opset {opset}")
    nodes = [*pair("x", "xq"), node("Relu", ["xq"], "y")]
    model = small(tmp_path, nodes, PARAMETERS, opset=opset, ir_version=ir_version)
    read = read_quantized(model)
    assert [each.spec.dtype for each in read.quantizers] == ["u8"]
    np.testing.assert_array_equal(read_back(read, FEED), reference(model, FEED))


def test_without_a_zero_point_codes_are_unsigned_and_start_at_zero(tmp_path: Path) -> None:
    model = small(tmp_path, [*pair("x", "xq", zero=""), node("Neg", ["xq"], "y")], {"s": SCALE})
    (quantizer,) = read_quantized(model).quantizers
    assert (quantizer.spec.dtype, int(quantizer.params.zero_point)) == ("u8", 0)


def test_weights_are_read_from_codes_and_from_pairs(tmp_path: Path) -> None:
    scales, zeros = np.array([0.01, 0.02], np.float32), np.zeros(2, np.int8)
    codes = np.clip(np.rint(WEIGHT / scales), -128, 127).astype(np.int8)
    held = {"sw": scales, "zw": zeros}
    baked = [node("DequantizeLinear", ["w_codes", "sw", "zw"], "wq", axis=1), node("MatMul", ["x", "wq"], "y")]
    paired = [*pair("w", "wq", "sw", "zw", axis=-1), node("MatMul", ["x", "wq"], "y")]
    for nodes, stored in ((baked, {"w_codes": codes}), (paired, {"w": WEIGHT})):
        model = small(tmp_path, nodes, {**held, **stored})
        read = read_quantized(model)
        (quantizer,) = read.quantizers
        assert (quantizer.tensor, quantizer.kind, quantizer.spec.axis) == ("w", "weight", 1)
        assert quantizer.codes is None
        assert ops(read) == ["MatMul"]
        np.testing.assert_array_equal(read_back(read, FEED), reference(model, FEED))


def test_the_codes_of_a_bias_are_kept_where_float32_cannot_hold_them(tmp_path: Path) -> None:
    codes = np.array([2**24 + 1, 3], np.int32)
    held = {"w": WEIGHT.T.copy(), "b_codes": codes, "sb": np.float32(1e-6)}
    nodes = [node("DequantizeLinear", ["b_codes", "sb"], "bq"), node("Gemm", ["x", "w", "bq"], "y", transB=1)]
    read = read_quantized(small(tmp_path, nodes, held))
    (quantizer,) = read.quantizers
    assert (quantizer.kind, quantizer.spec.dtype) == ("bias", "s32")
    assert quantizer.codes is not None
    np.testing.assert_array_equal(quantizer.codes, codes)


def test_a_narrow_constant_added_by_a_layer_is_a_bias_too(tmp_path: Path) -> None:
    held = {"w": WEIGHT.T.copy(), "b": np.array([0.5, -0.5], np.float32), "s": SCALE, "z": np.int8(0)}
    nodes = [*pair("b", "bq"), node("Gemm", ["x", "w", "bq"], "y", transB=1)]
    (quantizer,) = read_quantized(small(tmp_path, nodes, held)).quantizers
    assert (quantizer.kind, quantizer.spec.dtype) == ("bias", "s8")


def test_one_quantize_with_several_dequantizes_is_one_quantizer(tmp_path: Path) -> None:
    nodes = [
        *pair("x", "first"),
        node("DequantizeLinear", ["first_codes", "s", "z"], "second"),
        node("Add", ["first", "second"], "y"),
    ]
    model = small(tmp_path, nodes, PARAMETERS)
    read = read_quantized(model)
    assert [edges(each) for each in read.quantizers] == [[("y_Add", 0), ("y_Add", 1)]]
    np.testing.assert_array_equal(read_back(read, FEED), reference(model, FEED))


def test_codes_shared_by_two_layers_are_one_quantizer_unless_their_scales_differ(tmp_path: Path) -> None:
    codes = np.arange(9, dtype=np.int8).reshape(3, 3)
    held = {"c": codes, "s": np.float32(0.1), "t": np.float32(0.2)}
    for second, expected in (("s", 1), ("t", 2)):
        nodes = [
            node("DequantizeLinear", ["c", "s"], "first"),
            node("DequantizeLinear", ["c", second], "other"),
            node("MatMul", ["x", "first"], "h"),
            node("MatMul", ["h", "other"], "y"),
        ]
        model = small(tmp_path, nodes, held)
        read = read_quantized(model)
        assert len(read.quantizers) == expected
        np.testing.assert_array_equal(read_back(read, FEED), reference(model, FEED))


def test_a_chain_of_pairs_is_quantizers_that_follow_one_another(tmp_path: Path) -> None:
    held = {**PARAMETERS, "s2": np.float32(0.2), "z2": np.int8(0)}
    nodes = [*pair("x", "a"), *pair("a", "b", "s2", "z2"), node("Add", ["a", "b"], "y")]
    model = small(tmp_path, nodes, held)
    read = read_quantized(model)

    first, second = read.quantizers
    assert (first.tensor, second.tensor, first.after, second.after) == ("x", "x", "", first.name)
    assert (edges(first), edges(second)) == ([("y_Add", 0)], [("y_Add", 1)])
    np.testing.assert_array_equal(read_back(read, FEED), reference(model, FEED))


def test_float_and_quantized_values_of_one_tensor_are_told_apart(tmp_path: Path) -> None:
    model = small(tmp_path, [*pair("x", "xq"), node("Sub", ["x", "xq"], "y")], PARAMETERS)
    read = read_quantized(model)
    assert [edges(each) for each in read.quantizers] == [[("y_Sub", 1)]]
    np.testing.assert_array_equal(read_back(read, FEED), reference(model, FEED))


def test_a_quantized_output_keeps_its_name(tmp_path: Path) -> None:
    model = small(tmp_path, [node("Neg", ["x"], "h"), *pair("h", "y")], PARAMETERS)
    read = read_quantized(model)
    (quantizer,) = read.quantizers
    assert (quantizer.tensor, quantizer.output, edges(quantizer)) == ("y", True, [])
    assert [list(each.output) for each in read.float_model.proto.graph.node] == [["y"]]
    np.testing.assert_array_equal(read_back(read, FEED), reference(model, FEED))


def test_an_output_in_float_and_quantized(tmp_path: Path) -> None:
    nodes = [node("Neg", ["x"], "h"), *pair("h", "y")]
    held = [constant("s", SCALE), constant("z", ZERO)]
    model = loaded(wrapped(nodes, [value("x", (2, 3))], [value("h"), value("y")], held), tmp_path)
    read = read_quantized(model)
    floats, quantized = run_model(read.float_model, FEED)
    np.testing.assert_array_equal(floats, quantized)
    np.testing.assert_array_equal(floats, -FEED["x"])
    (quantizer,) = read.quantizers
    assert (quantizer.tensor, edges(quantizer)) == ("h", [("y_Identity", 0)])


def test_a_model_that_only_quantizes_its_input(tmp_path: Path) -> None:
    model = small(tmp_path, pair("x", "y"), PARAMETERS)
    read = read_quantized(model)
    np.testing.assert_array_equal(read_back(read, FEED), reference(model, FEED))


def test_an_integer_input_becomes_a_float_one(tmp_path: Path) -> None:
    nodes = [node("DequantizeLinear", ["x", "s", "z"], "xq"), node("Neg", ["xq"], "y")]
    held = [constant("s", SCALE), constant("z", ZERO)]
    model = loaded(wrapped(nodes, [value("x", (2, 3), TensorProto.UINT8)], [value("y")], held), tmp_path)
    codes = np.arange(6, dtype=np.uint8).reshape(2, 3)
    read = read_quantized(model)

    (quantizer,) = read.quantizers
    assert (quantizer.tensor, quantizer.spec.dtype, edges(quantizer)) == ("x", "u8", [("y_Neg", 0)])
    (entry,) = read.float_model.proto.graph.input
    assert entry.type.tensor_type.elem_type == TensorProto.FLOAT
    values = (codes.astype(np.float32) - 100) * SCALE
    np.testing.assert_array_equal(read_back(read, {"x": values}), reference(model, {"x": codes}))
    assert [(oddity.kind, oddity.node) for oddity in read.oddities] == [("interface", "x")]


def test_an_integer_input_that_is_also_used_as_such_stays(tmp_path: Path) -> None:
    nodes = [
        node("DequantizeLinear", ["x", "s", "z"], "xq"),
        node("Cast", ["x"], "raw", to=TensorProto.FLOAT),
        node("Add", ["xq", "raw"], "y"),
    ]
    held = [constant("s", SCALE), constant("z", ZERO)]
    model = loaded(wrapped(nodes, [value("x", (2, 3), TensorProto.UINT8)], [value("y")], held), tmp_path)
    codes = np.arange(6, dtype=np.uint8).reshape(2, 3)
    read = read_quantized(model)
    assert read.quantizers == ()
    assert "DequantizeLinear" in ops(read)
    np.testing.assert_array_equal(run_model(read.float_model, {"x": codes})[0], reference(model, {"x": codes}))


def test_an_integer_output_becomes_a_float_one(tmp_path: Path) -> None:
    nodes = [node("Neg", ["x"], "h"), node("QuantizeLinear", ["h", "s", "z"], "y")]
    held = [constant("s", SCALE), constant("z", ZERO)]
    outputs = [value("y", (2, 3), TensorProto.UINT8)]
    model = loaded(wrapped(nodes, [value("x", (2, 3))], outputs, held), tmp_path)
    read = read_quantized(model)

    (quantizer,) = read.quantizers
    assert (quantizer.tensor, quantizer.output) == ("y", True)
    assert [(oddity.kind, oddity.node) for oddity in read.oddities] == [("interface", "y")]
    values = (reference(model, FEED).astype(np.float32) - 100) * SCALE
    np.testing.assert_array_equal(read_back(read, FEED), values)


@pytest.mark.parametrize(
    "mover",
    [
        node("Transpose", ["c"], "m", perm=[1, 0]),
        node("Reshape", ["c", "shape"], "m"),
        node("Concat", ["c", "c"], "m", axis=0),
        node("Pad", ["c", "pads", "fill"], "m"),
        node("Pad", ["c", "pads"], "m"),
        node("Slice", ["c", "start", "end"], "m"),
        node("Clip", ["c", "low", "high"], "m"),
        node("Identity", ["c"], "m"),
    ],
    ids=lambda mover: f"{mover.op_type}{len(mover.input)}",
)
def test_nodes_that_move_codes_move_values_instead(tmp_path: Path, mover: Any) -> None:
    held = {
        **PARAMETERS,
        "shape": np.array([3, 2]),
        "pads": np.array([0, 1, 0, 1]),
        "fill": np.uint8(90),
        "start": np.array([0, 1]),
        "end": np.array([2, 3]),
        "low": np.uint8(95),
        "high": np.uint8(110),
    }
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "c"),
        mover,
        node("DequantizeLinear", ["m", "s", "z"], "d"),
        node("Neg", ["d"], "y"),
    ]
    model = small(tmp_path, nodes, held, opset=13)
    read = read_quantized(model)

    assert ops(read) == [mover.op_type, "Neg"]
    assert [each.tensor for each in read.quantizers] == ["x"]
    np.testing.assert_array_equal(read_back(read, FEED), reference(model, FEED))


def test_pooling_and_looking_at_codes(tmp_path: Path) -> None:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "c"),
        node("MaxPool", ["c"], "m", kernel_shape=[2, 2]),
        node("DequantizeLinear", ["m", "s", "z"], "d"),
        node("ReduceMax", ["d"], "y", keepdims=0),
        node("Shape", ["c"], "size"),
    ]
    held = [constant("s", SCALE), constant("z", ZERO)]
    outputs = [value("y"), value("size", elem_type=TensorProto.INT64)]
    model = loaded(wrapped(nodes, [value("x", (1, 1, 4, 4))], outputs, held), tmp_path)
    feed = random_feed({"x": (1, 1, 4, 4)})
    read = read_quantized(model)
    assert ops(read) == ["MaxPool", "ReduceMax", "Shape"]
    np.testing.assert_array_equal(read_back(read, feed), reference(model, feed))
    np.testing.assert_array_equal(run_model(read.float_model, feed)[1], [1, 1, 4, 4])


def test_rows_taken_from_a_table_of_codes(tmp_path: Path) -> None:
    table = np.arange(12, dtype=np.uint8).reshape(4, 3)
    nodes = [
        node("Gather", ["table_quantized", "x"], "rows"),
        node("DequantizeLinear", ["rows", "s", "z"], "d"),
        node("Neg", ["d"], "y"),
    ]
    held = [constant("table_quantized", table), constant("s", SCALE), constant("z", ZERO)]
    model = loaded(wrapped(nodes, [value("x", (2,), TensorProto.INT64)], [value("y")], held), tmp_path)
    feed = {"x": np.array([3, 1])}
    read = read_quantized(model)
    (quantizer,) = read.quantizers
    assert (quantizer.tensor, quantizer.kind, edges(quantizer)) == ("table", "weight", [("rows_Gather", 0)])
    np.testing.assert_array_equal(read_back(read, feed), reference(model, feed))


@pytest.mark.parametrize(("low", "high", "dtype", "narrow"), [(-8, 7, "s4", False), (-7, 7, "s4", True)])
def test_a_clip_of_codes_means_fewer_bits(tmp_path: Path, low: int, high: int, dtype: str, narrow: bool) -> None:
    held = {"s": np.float32(0.3), "z": np.int8(0), "low": np.int8(low), "high": np.int8(high)}
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "c"),
        node("Clip", ["c", "low", "high"], "m"),
        node("DequantizeLinear", ["m", "s", "z"], "d"),
        node("Neg", ["d"], "y"),
    ]
    model = small(tmp_path, nodes, held)
    read = read_quantized(model)
    (quantizer,) = read.quantizers
    assert (quantizer.spec.dtype, quantizer.spec.narrow, ops(read)) == (dtype, narrow, ["Neg"])
    feed = {"x": FEED["x"] * 5}
    np.testing.assert_array_equal(read_back(read, feed), reference(model, feed))


def test_parameters_behind_copies_casts_and_reshapes(tmp_path: Path) -> None:
    nodes = [
        node("Identity", ["s0"], "s1"),
        node("Squeeze", ["s1"], "s"),
        node("Cast", ["z0"], "z", to=TensorProto.INT8),
        *pair("x", "xq"),
        node("Neg", ["xq"], "y"),
    ]
    model = small(tmp_path, nodes, {"s0": np.full((1, 1), SCALE), "z0": np.int64(3)})
    read = read_quantized(model)
    (quantizer,) = read.quantizers
    assert (quantizer.spec.dtype, int(quantizer.params.zero_point)) == ("s8", 3)
    assert ops(read) == ["Neg"]


def test_constants_held_by_nodes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["s"], value_float=0.05),
        helper.make_node("Constant", [], ["z"], value=constant("", ZERO)),
        *pair("x", "xq"),
        node("Neg", ["xq"], "y"),
    ]
    read = read_quantized(small(tmp_path, nodes, {}))
    assert [float(each.params.scale) for each in read.quantizers] == [float(SCALE)]
    assert ops(read) == ["Neg"]


def test_different_scales_of_the_two_halves_are_reported(tmp_path: Path) -> None:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], "c"),
        node("DequantizeLinear", ["c", "s2", "z"], "d"),
        node("Neg", ["d"], "y"),
    ]
    read = read_quantized(small(tmp_path, nodes, {**PARAMETERS, "s2": np.float32(0.1)}))
    (oddity,) = read.oddities
    assert oddity.kind == "disagreement"
    assert str(oddity.text) == (
        "'x' is quantized with u8, scale 0.05, zero point 100 but dequantized by 'd_DequantizeLinear' with u8, "
        "scale 0.1, zero point 100; taken here is the first"
    )
    assert float(read.quantizers[0].params.scale) == float(SCALE)


def test_what_cannot_be_represented_stays_and_is_named(tmp_path: Path) -> None:
    dynamic = [
        node("ReduceMax", ["x"], "top", keepdims=0),
        node("Div", ["top", "most"], "s"),
        *pair("x", "xq", zero="z"),
        node("Neg", ["xq"], "y"),
    ]
    model = small(tmp_path, dynamic, {"most": np.float32(127), "z": np.int8(0)})
    read = read_quantized(model)
    assert read.quantizers == ()
    assert ops(read).count("QuantizeLinear") == ops(read).count("DequantizeLinear") == 1
    assert read.oddities[0].kind == "dynamic"
    assert "its scale is computed while the model runs" in str(read.oddities[0].text)
    np.testing.assert_array_equal(run_model(read.float_model, FEED)[0], reference(model, FEED))


def test_blocks_with_computed_scales_are_not_supported_and_say_so(tmp_path: Path) -> None:
    codes = np.arange(8, dtype=np.int8).reshape(4, 2)
    scales = np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)
    nodes = [
        node("ReduceMax", ["x"], "most", keepdims=0),
        node("Mul", ["s", "most"], "scales"),
        node("DequantizeLinear", ["c", "scales"], "w", axis=0, block_size=2),
        node("MatMul", ["x", "w"], "y"),
    ]
    model = small(tmp_path, nodes, {"c": codes, "s": scales}, shape=(2, 4), opset=21, ir_version=10)
    read = read_quantized(model)
    assert read.quantizers == ()
    assert "one scale per block of 2 elements" in str(read.oddities[0].text)
    feed = random_feed({"x": (2, 4)})
    np.testing.assert_array_equal(run_model(read.float_model, feed)[0], reference(model, feed))


def test_float8_codes_are_not_supported_and_say_so(tmp_path: Path) -> None:
    zero = constant("z", np.float32(0), TensorProto.FLOAT8E4M3FN)
    nodes = [*pair("x", "xq"), node("Neg", ["xq"], "y")]
    read = read_quantized(small(tmp_path, nodes, [constant("s", SCALE), zero], opset=19, ir_version=9))
    assert read.quantizers == ()
    assert "its codes are float8e4m3fn" in str(read.oddities[0].text)


def test_integers_that_other_nodes_need_stay(tmp_path: Path) -> None:
    nodes = [
        *pair("x", "d"),
        node("Cast", ["d_codes"], "raw", to=TensorProto.FLOAT),
        node("Add", ["d", "raw"], "y"),
    ]
    model = small(tmp_path, nodes, PARAMETERS)
    read = read_quantized(model)
    assert ops(read) == ["QuantizeLinear", "Cast", "Add"]
    assert [edges(each) for each in read.quantizers] == [[("y_Add", 0)]]
    np.testing.assert_array_equal(read_back(read, FEED), reference(model, FEED))


def test_subgraphs_stay_and_still_get_what_they_read(tmp_path: Path) -> None:
    inner = helper.make_graph(
        [node("Neg", ["xq"], "i")], "then", [], [helper.make_tensor_value_info("i", TensorProto.FLOAT, None)]
    )
    other = helper.make_graph(
        [node("Abs", ["xq"], "j")], "else", [], [helper.make_tensor_value_info("j", TensorProto.FLOAT, None)]
    )
    nodes = [*pair("x", "xq"), node("If", ["yes"], "y", then_branch=inner, else_branch=other)]
    model = small(tmp_path, nodes, {**PARAMETERS, "yes": np.bool_(True)})
    read = read_quantized(model)
    assert ops(read) == ["Identity", "If"]
    assert [edges(each) for each in read.quantizers] == [[("xq_Identity", 0)]]
    np.testing.assert_array_equal(read_back(read, FEED), reference(model, FEED))


def test_quantizers_inside_subgraphs_are_left_and_said_to_be(tmp_path: Path) -> None:
    branches = [
        helper.make_graph(
            [*pair("x", f"q{side}"), node(op, [f"q{side}"], f"o{side}")],
            side,
            [],
            [helper.make_tensor_value_info(f"o{side}", TensorProto.FLOAT, None)],
        )
        for side, op in (("a", "Neg"), ("b", "Abs"))
    ]
    nodes = [node("If", ["yes"], "y", then_branch=branches[0], else_branch=branches[1])]
    model = small(tmp_path, nodes, {**PARAMETERS, "yes": np.bool_(True)})
    read = read_quantized(model)
    assert read.quantizers == ()
    assert [(oddity.kind, oddity.node) for oddity in read.oddities] == [("not_represented", "y_If")]
    assert "2 quantizers inside 'y_If' (If) stay as they are" in str(read.oddities[0].text)
    np.testing.assert_array_equal(run_model(read.float_model, FEED)[0], reference(model, FEED))


def test_half_precision(tmp_path: Path) -> None:
    held = {"s": np.float16(0.05), "z": np.int8(0), "c": np.array([[3], [-7], [100]], np.int8)}
    nodes = [*pair("x", "xq"), node("DequantizeLinear", ["c", "s", "z"], "w"), node("MatMul", ["xq", "w"], "y")]
    inputs = [value("x", (2, 3), TensorProto.FLOAT16)]
    weights = [constant(name, array) for name, array in held.items()]
    proto = wrapped(nodes, inputs, [value("y", None, TensorProto.FLOAT16)], weights, opset=19, ir_version=9)
    read = read_quantized(loaded(proto, tmp_path))
    assert {tensor.data_type for tensor in read.float_model.proto.graph.initializer} == {TensorProto.FLOAT16}
    assert [each.params.scale.dtype for each in read.quantizers] == [np.float32] * 2


def test_a_float_model_has_no_quantizers(tmp_path: Path) -> None:
    model = small(tmp_path, [node("Neg", ["x"], "y")], {})
    read = read_quantized(model)
    assert (read.quantizers, read.oddities, ops(read)) == ((), (), ["Neg"])


def test_the_given_model_is_not_changed(tmp_path: Path) -> None:
    model = small(tmp_path, [node("Neg", ["x"], "h"), *pair("h", "y")], PARAMETERS)
    before = model.proto.SerializeToString(deterministic=True)
    read_quantized(model)
    assert model.proto.SerializeToString(deterministic=True) == before
