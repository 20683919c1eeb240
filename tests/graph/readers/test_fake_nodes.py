"""Single nodes that quantize and dequantize."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.load import Model
from roundoff.graph.readers.reader import read_quantized
from tests.graph.quantized_nets import weight_values
from tests.graph.readers.tools import by_name, constant, edges, node, ops, read_back
from tests.models import loaded, random_feed, value, weight, wrapped

FEED = random_feed({"x": (2, 3)}, seed=1)
W = np.array([[0.3, -0.2], [0.1, 0.4], [-0.5, 0.25]], np.float32)
HORIZON = "horizon"


def rounded(values: Array, scale: Any, low: int, high: int, zero: int = 0) -> Array:
    """Quantized and dequantized by the definition."""
    return np.asarray((np.clip(np.rint(values / scale) + zero, low, high) - zero) * scale)


def calibrated(folder: Path, *, activation: dict[str, Any], weights: dict[str, Any]) -> Model:
    """x -> MatMul -> y with a calibration node on either operand."""
    nodes = [
        node("HzCalibration", ["x"], "x_calibrated", name="x_HzCalibration", domain=HORIZON, **activation),
        node("HzCalibration", ["w"], "w_calibrated", name="w_HzCalibration", domain=HORIZON, **weights),
        node("MatMul", ["x_calibrated", "w_calibrated"], "y", name="product"),
    ]
    proto = wrapped(nodes, [value("x", (2, 3))], [value("y")], [constant("w", W)], domains={HORIZON: 1})
    return loaded(proto, folder)


SCALES = np.array([0.004, 0.003], np.float32)


@pytest.mark.parametrize(
    ("activation", "weights"),
    [
        (
            {"scales": [0.02], "qtype": "int8"},
            {"scales": SCALES.tolist(), "axis": 1, "qtype": "int8"},
        ),
        (
            {"thresholds": [0.02 * 127], "bits": 8},
            {"thresholds": (SCALES * 127).tolist(), "axis": 1, "num_bits": 8},
        ),
        (
            {"scale": 0.02, "quantized_type": "int8"},
            {"calib_scales": constant("", SCALES), "quantized_axis": 1},
        ),
    ],
    ids=["scales", "thresholds", "other names"],
)
def test_calibration_nodes(tmp_path: Path, activation: dict[str, Any], weights: dict[str, Any]) -> None:
    read = read_quantized(calibrated(tmp_path, activation=activation, weights=weights))

    assert ops(read) == ["MatMul"]
    found = by_name(read)
    assert {name: (each.kind, each.tensor) for name, each in found.items()} == {
        "x": ("activation", "x"),
        "w": ("weight", "w"),
    }
    assert (edges(found["x"]), edges(found["w"])) == ([("product", 0)], [("product", 1)])
    assert (found["x"].spec.dtype, found["x"].spec.symmetric, found["w"].spec.axis) == ("s8", True, 1)
    np.testing.assert_allclose(found["w"].params.scale, SCALES, rtol=1e-6)
    expected = rounded(FEED["x"], 0.02, -128, 127) @ rounded(W, SCALES, -128, 127)
    np.testing.assert_allclose(read_back(read, FEED), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threshold", [-2.0, 0.0, float("nan")])
def test_impossible_thresholds_are_refused_where_they_would_be_computed_with(
    threshold: float, tmp_path: Path
) -> None:
    options = {"thresholds": [threshold], "bits": 8}
    read = read_quantized(calibrated(tmp_path, activation=options, weights={"thresholds": [0.5], "bits": 8}))
    with pytest.raises(BadInput, match=r"The quantizer of 'x', which node 'product' reads, has the scale "):
        insert_quantizers(read.float_model, read.quantizers)


def test_thresholds_of_16_bits(tmp_path: Path) -> None:
    options = {"thresholds": [2.0], "qtype": "int16"}
    found = by_name(read_quantized(calibrated(tmp_path, activation=options, weights={"thresholds": [0.5]})))
    assert (found["x"].spec.dtype, found["w"].spec.dtype) == ("s16", "s8")
    assert float(found["x"].params.scale) == pytest.approx(2.0 / 32767)
    assert float(found["w"].params.scale) == pytest.approx(0.5 / 127)


def test_a_calibration_node_set_to_float_passes_values_on(tmp_path: Path) -> None:
    model = calibrated(
        tmp_path, activation={"scales": [0.02], "qtype": "float32"}, weights={"scales": [0.01], "qtype": "int8"}
    )
    read = read_quantized(model)
    assert list(by_name(read)) == ["w"]
    assert read.oddities == ()


def test_a_calibration_node_without_numbers_is_named(tmp_path: Path) -> None:
    read = read_quantized(calibrated(tmp_path, activation={"qtype": "int8"}, weights={"scales": [0.01]}))
    assert list(by_name(read)) == ["w"]
    assert str(read.oddities[0].text) == (
        "HzCalibration 'x_HzCalibration' passes float values on: it has neither scales nor thresholds"
    )


@pytest.mark.parametrize(
    ("op_type", "says", "fix"),
    [
        ("HzSQuantizedConv", "is a compiled integer model", "_calibrated_model.onnx"),
        ("QcQuantizeOp", "whose scales are kept in another file", "to_onnx_qdq"),
    ],
)
def test_models_of_another_stage_are_refused(tmp_path: Path, op_type: str, says: str, fix: str) -> None:
    proto = wrapped(
        [node(op_type, ["x"], "y", domain="other")], [value("x", (2, 3))], [value("y")], domains={"other": 1}
    )
    with pytest.raises(BadInput, match=says) as refused:
        read_quantized(loaded(proto, tmp_path))
    assert fix in refused.value.fix


def fake_quantize(folder: Path, low: Any, high: Any, levels: int, source: str = "x") -> Model:
    held = [constant("low", np.asarray(low, np.float32)), constant("high", np.asarray(high, np.float32))]
    held.append(weight("w", 3, 3))
    nodes = [
        node(
            "FakeQuantize",
            [source, "low", "high", "low", "high"],
            "q",
            domain="org.openvinotoolkit",
            levels=levels,
        ),
        node("MatMul", ["x", "q"] if source == "w" else ["q", "w"], "y"),
    ]
    proto = wrapped(nodes, [value("x", (2, 3))], [value("y")], held, domains={"org.openvinotoolkit": 1})
    return loaded(proto, folder)


@pytest.mark.parametrize(
    ("low", "high", "levels", "expected_form"),
    [
        (0.0, 2.55, 256, ("u8", 0, False)),
        (-1.28, 1.27, 256, ("s8", 0, False)),
        (-1.27, 1.27, 255, ("s8", 0, True)),
        (-0.55, 2.0, 256, ("u8", 55, False)),
        (-0.07, 0.07, 15, ("s4", 0, True)),
    ],
)
def test_fake_quantize_of_activations(
    tmp_path: Path, low: float, high: float, levels: int, expected_form: tuple[str, int, bool]
) -> None:
    read = read_quantized(fake_quantize(tmp_path, low, high, levels))
    (quantizer,) = read.quantizers
    spec, params = quantizer.spec, quantizer.params
    assert (spec.dtype, int(params.zero_point), spec.narrow) == expected_form
    # By the definition of the operator: values in the range are rounded to the nearest of the levels.
    limited = np.clip(FEED["x"].astype(np.float64), low, high)
    step = (high - low) / (levels - 1)
    expected = np.rint((limited - low) / step) * step + low
    held = weight_values(read.float_model.proto)["w"]
    np.testing.assert_allclose(read_back(read, FEED), expected @ held, rtol=1e-4, atol=1e-5)


def test_fake_quantize_of_weights_has_a_range_per_slice(tmp_path: Path) -> None:
    high = np.array([[0.5, 1.0, 2.0]])
    read = read_quantized(fake_quantize(tmp_path, -high, high, 255, source="w"))
    (quantizer,) = read.quantizers
    assert (quantizer.kind, quantizer.spec.axis, quantizer.spec.narrow) == ("weight", 1, True)
    np.testing.assert_allclose(quantizer.params.scale, high.ravel() / 127, rtol=1e-6)


@pytest.mark.parametrize(
    ("low", "high", "levels", "reason"),
    [
        (0.1, 1.0, 256, "zero is not one of its levels"),
        (-1.0, 1.0, 256, "zero is not one of its levels"),
        (0.0, 1.0, 200, "its 200 levels are no whole number of bits"),
        (1.0, 0.0, 256, "its range is empty"),
    ],
)
def test_fake_quantize_that_has_no_integers_behind_it(
    tmp_path: Path, low: float, high: float, levels: int, reason: str
) -> None:
    read = read_quantized(fake_quantize(tmp_path, low, high, levels))
    assert read.quantizers == ()
    assert str(read.oddities[0].text).endswith(reason)


@pytest.mark.parametrize("rounding", ["ROUND", "FLOOR"])
def test_qonnx_quant(tmp_path: Path, rounding: str) -> None:
    held = [constant("s", np.float32(0.25)), constant("z", np.float32(0)), constant("b", np.float32(4))]
    quant = helper.make_node(
        "Quant",
        ["x", "s", "z", "b"],
        ["q"],
        name="quant",
        domain="qonnx.custom_op.general",
        signed=1,
        narrow=1,
        rounding_mode=rounding,
    )
    proto = wrapped(
        [quant, node("Neg", ["q"], "y")],
        [value("x", (2, 3))],
        [value("y")],
        held,
        domains={"qonnx.custom_op.general": 1},
    )
    read = read_quantized(loaded(proto, tmp_path))
    (quantizer,) = read.quantizers
    assert (quantizer.spec.dtype, quantizer.spec.narrow) == ("s4", True)
    whole = np.rint if rounding == "ROUND" else np.floor
    expected = -np.clip(whole(FEED["x"] / 0.25), -7, 7) * 0.25
    np.testing.assert_array_equal(read_back(read, FEED), expected.astype(np.float32))
