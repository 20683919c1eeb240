"""What onnxruntime's own quantizer writes, in both of its formats."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnxruntime.quantization import QuantFormat, QuantType

from roundoff.graph.load import load_model
from roundoff.graph.readers.reader import read_quantized
from tests.graph.quantized_nets import mixed_net, run_model
from tests.graph.readers.tools import (
    Net,
    attention,
    by_name,
    edges,
    ops,
    quantized_by_onnxruntime,
    read_back,
    reference,
)
from tests.models import conv_net, random_feed, residual


def conv() -> Net:
    return conv_net(), {"image": (1, 3, 8, 8)}


def branching() -> Net:
    return residual(), {"image": (1, 3, 8, 8)}


def mixed() -> Net:
    return mixed_net(), {"image": (1, 3, 4, 4)}


NETS = {"conv": conv, "residual": branching, "mixed": mixed, "attention": attention}
U8, S8, U16, S4 = QuantType.QUInt8, QuantType.QInt8, QuantType.QUInt16, QuantType.QInt4
PAIRS: dict[str, dict[str, Any]] = {
    "per tensor": {"activation_type": U8, "weight_type": S8},
    "per channel": {"activation_type": U8, "weight_type": S8, "per_channel": True},
    "symmetric": {
        "activation_type": S8,
        "weight_type": S8,
        "per_channel": True,
        "extra_options": {"ActivationSymmetric": True},
    },
    "unsigned weights": {"activation_type": U8, "weight_type": U8},
    "16 bits, own operators": {
        "activation_type": U16,
        "weight_type": S8,
        "extra_options": {"UseQDQContribOps": True},
    },
    "16 bits, opset 21": {"activation_type": U16, "weight_type": S8, "opset": 21},
    "4-bit weights": {"activation_type": U8, "weight_type": S4, "opset": 21},
    "pairs on weights": {"activation_type": U8, "weight_type": S8, "extra_options": {"AddQDQPairToWeight": True}},
    "a pair for each": {"activation_type": U8, "weight_type": S8, "extra_options": {"DedicatedQDQPair": True}},
    "float bias": {"activation_type": U8, "weight_type": S8, "extra_options": {"QuantizeBias": False}},
}
# Weights of 7 bits: with 8 the sums of unsigned times signed products saturate on some processors.
OPERATORS: dict[str, dict[str, Any]] = {
    "u8 x s7": {"activation_type": U8, "weight_type": S8, "reduce_range": True},
    "u8 x s7 per channel": {"activation_type": U8, "weight_type": S8, "reduce_range": True, "per_channel": True},
    "s8 x s8": {"activation_type": S8, "weight_type": S8},
}


@pytest.mark.parametrize("options", PAIRS.values(), ids=PAIRS)
@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_what_is_read_computes_the_same_bit_for_bit(tmp_path: Path, net: Any, options: dict[str, Any]) -> None:
    made = net()
    model = quantized_by_onnxruntime(made, tmp_path, **options)
    feed = random_feed(made[1], seed=7)
    expected = reference(model, feed)

    read = read_quantized(model)

    assert not any("Linear" in op for op in ops(read))
    np.testing.assert_array_equal(read_back(read, feed), expected)
    np.testing.assert_array_equal(read_back(read, feed, bake=True), expected)


@pytest.mark.parametrize("options", OPERATORS.values(), ids=OPERATORS)
@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_operators_on_codes_are_read_to_within_a_step(tmp_path: Path, net: Any, options: dict[str, Any]) -> None:
    made = net()
    model = quantized_by_onnxruntime(made, tmp_path, quant_format=QuantFormat.QOperator, **options)
    feed = random_feed(made[1], seed=7)
    expected = reference(model, feed)

    read = read_quantized(model)

    assert not any(op.startswith("Q") for op in ops(read))
    step = max(float(each.params.scale) for each in read.quantizers if each.output)
    # Integer kernels multiply by a rounded quotient of scales, which can tip the rounding of a single value.
    assert np.abs(read_back(read, feed) - expected).max() <= step * 1.001


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_quantizers_have_the_names_of_the_float_model(tmp_path: Path, form: QuantFormat) -> None:
    options = PAIRS["per channel"]
    read = read_quantized(quantized_by_onnxruntime(mixed(), tmp_path, quant_format=form, **options))
    found = by_name(read)

    assert {name for name in found if found[name].kind == "weight"} == {"w1", "w2", "w3"}
    assert {name for name in found if found[name].kind == "bias"} == {"b1", "b2", "b3"}
    assert edges(found["w1"]) == [("first", 1)]
    assert edges(found["b2"]) == [("depthwise", 2)]
    assert edges(found["image"]) == [("first", 0)]
    assert [name for name in found if found[name].output] == ["logits"]
    weights, activations = found["w1"].spec, found["image"].spec
    assert (weights.dtype, weights.axis, weights.symmetric) == ("s8", 0, True)
    assert (activations.dtype, activations.axis, activations.symmetric) == ("u8", None, False)
    assert [quantizer.tensor for quantizer in read.quantizers][:2] == ["image", "w1"]


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_a_relu_that_was_removed_is_back_in_the_float_model(tmp_path: Path, form: QuantFormat) -> None:
    made = conv()
    model = quantized_by_onnxruntime(made, tmp_path, quant_format=form, **PAIRS["per channel"])
    assert "Relu" not in [each.op_type for each in model.proto.graph.node]

    read = read_quantized(model)

    assert ops(read) == ["Conv", "Relu", "Conv", "Relu", "GlobalAveragePool", "Flatten", "Gemm"]
    assert [oddity.node for oddity in read.oddities if oddity.kind == "restored"] == ["Conv1", "Conv2"]
    assert tuple(map(str, read.notes)) == (
        "an activation that the limits of the codes had replaced was put back behind: Conv1, Conv2",
    )
    feed = random_feed(made[1], seed=3)
    expected = run_model(load_model(tmp_path / "float.onnx"), feed)[0]
    # What is left is the rounding of the weights.
    np.testing.assert_allclose(run_model(read.float_model, feed)[0], expected, atol=0.01)


def test_with_weights_in_float_the_float_model_comes_back_exactly(tmp_path: Path) -> None:
    made = mixed()
    options = {**PAIRS["pairs on weights"], "extra_options": {"AddQDQPairToWeight": True, "QuantizeBias": False}}
    model = quantized_by_onnxruntime(made, tmp_path, **options)
    feed = random_feed(made[1], seed=3)

    twin = read_quantized(model).float_model

    np.testing.assert_array_equal(
        run_model(twin, feed)[0], run_model(load_model(tmp_path / "float.onnx"), feed)[0]
    )


def test_one_quantizer_for_each_reader_when_the_model_has_a_pair_for_each(tmp_path: Path) -> None:
    together = read_quantized(quantized_by_onnxruntime(branching(), tmp_path, **PAIRS["per tensor"]))
    apart = read_quantized(quantized_by_onnxruntime(branching(), tmp_path, **PAIRS["a pair for each"]))

    assert [edges(each) for each in together.quantizers if each.tensor == "a"] == [[("body", 0), ("add", 0)]]
    assert sorted(edges(each) for each in apart.quantizers if each.tensor == "a") == [[("add", 0)], [("body", 0)]]


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_quantizers_move_onto_the_float_model(tmp_path: Path, net: Any, form: QuantFormat) -> None:
    made = net()
    options: dict[str, Any] = {"activation_type": S8, "weight_type": S8, "per_channel": True}
    model = quantized_by_onnxruntime(made, tmp_path, quant_format=form, **options)
    feed = random_feed(made[1], seed=7)
    source = load_model(tmp_path / "float.onnx")

    moved = read_quantized(model, float_model=source)

    assert moved.float_model is source
    assert len(moved.quantizers) == len(read_quantized(model).quantizers)
    # Rounding the float weights gives the very codes of the model.
    assert all(quantizer.codes is None for quantizer in moved.quantizers if quantizer.kind == "weight")
    expected = reference(model, feed)
    step = max(float(each.params.scale) for each in moved.quantizers if each.output)
    tolerance = 0.0 if form is QuantFormat.QDQ else step * 1.001
    assert np.abs(read_back(moved, feed) - expected).max() <= tolerance
