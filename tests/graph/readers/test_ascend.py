"""AMCT's deploy model and both of its simulating models."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.readers.reader import read_quantized
from tests.graph.quantized_nets import run_model
from tests.graph.readers.tools import by_name, constant, edges, node, ops, read_back
from tests.models import loaded, random_feed, value, wrapped

STEP, OFFSET = np.float32(0.03), -20
WEIGHT_STEPS = np.array([0.01, 0.02, 0.005], np.float32)
CODES = np.random.default_rng(5).integers(-127, 128, (3, 2, 3, 3)).astype(np.int8)
BIAS = np.array([150, -900, 12], np.int32)
SHAPE = (1, 2, 5, 5)
FEED = random_feed({"x": SHAPE}, seed=3)
CUSTOM = "amct.customop"


def packed(scales: Array, shift: int = 0, offset: int = 0) -> Array:
    """Parameters of AscendDequant: float32 scale, shift and weight offset in 64 bits."""
    bits = scales.astype(np.float32).view(np.uint32).astype(np.uint64)
    return bits | np.uint64(shift << 32) | np.uint64((offset & 0xFF) << 40)


def conv(inputs: list[str], output: str) -> Any:
    return node("Conv", inputs, output, name="layer", pads=[1] * 4)


def deploy(folder: Path, *, shift: int = 0, domain: str = "", numbers: type = np.int8) -> Model:
    """AscendQuant, Conv on integers, AscendDequant."""
    nodes = [
        node("AscendQuant", ["x"], "n", name="layer.quant", domain=domain, dst_type="INT8",
             scale=float(1 / STEP), offset=float(OFFSET)),
        conv(["n", "w", "b"], "sums"),
        node("AscendDequant", ["sums", "layer.dequant.param"], "d", name="layer.dequant", domain=domain),
        node("Relu", ["d"], "y", name="relu"),
    ]  # fmt: skip
    whole = np.int32 if numbers is np.int8 else numbers
    held = [
        constant("w", CODES.astype(numbers)),
        constant("b", BIAS.astype(whole)),
        constant("layer.dequant.param", packed(STEP * WEIGHT_STEPS, shift)),
    ]
    domains = {domain: 1} if domain else {}
    return loaded(wrapped(nodes, [value("x", SHAPE)], [value("y")], held, domains=domains), folder)


def simulated(folder: Path) -> Model:
    """The same with plain operators, on whole numbers kept as floats."""
    prefix = "layer.quant.fakequant"
    nodes = [
        node("Mul", ["x", "inverse"], "n1", name=f"{prefix}.mul"),
        node("Round", ["n1"], "n2", name=f"{prefix}.round"),
        node("Add", ["n2", "offset"], "n3", name=f"{prefix}.add"),
        node("Clip", ["n3", "low", "high"], "n4", name=f"{prefix}.clip"),
        node("Sub", ["n4", "offset"], "n", name=f"{prefix}.sub"),
        conv(["n", "w", "b"], "sums"),
        node("Mul", ["sums", "back"], "d", name="layer.fakedequant.mul"),
        node("Relu", ["d"], "y", name="relu"),
    ]
    held = {
        "inverse": np.float32(1) / STEP,
        "offset": np.float32(OFFSET),
        "low": np.float32(-128),
        "high": np.float32(127),
        "w": CODES.astype(np.float32),
        "b": BIAS.astype(np.float32),
        "back": (STEP * WEIGHT_STEPS).reshape(1, 3, 1, 1),
    }
    weights = [constant(name, array) for name, array in held.items()]
    return loaded(wrapped(nodes, [value("x", SHAPE)], [value("y")], weights), folder)


FORMS = {
    "deploy": deploy,
    "own operators": lambda folder: deploy(folder, domain=CUSTOM, numbers=np.float32),
    "plain operators": simulated,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_all_three_forms_are_the_same_quantizers(tmp_path: Path, form: Any) -> None:
    read = read_quantized(form(tmp_path))

    assert ops(read) == ["Conv", "Relu"]
    assert read.oddities == ()
    found = {each.kind: each for each in read.quantizers}
    activation, weights, bias = found["activation"], found["weight"], found["bias"]
    assert (activation.tensor, activation.spec.dtype, edges(activation)) == ("x", "s8", [("layer", 0)])
    assert int(activation.params.zero_point) == OFFSET
    np.testing.assert_allclose(activation.params.scale, STEP, rtol=1e-6)
    assert (weights.spec.dtype, weights.spec.axis, edges(weights)) == ("s8", 0, [("layer", 1)])
    np.testing.assert_allclose(weights.params.scale, WEIGHT_STEPS, rtol=1e-6)
    assert (bias.spec.dtype, bias.spec.axis, edges(bias)) == ("s32", 0, [("layer", 2)])
    np.testing.assert_allclose(bias.params.scale, STEP * WEIGHT_STEPS, rtol=1e-6)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_all_three_forms_compute_what_the_plain_operators_do(tmp_path: Path, form: Any) -> None:
    expected = run_model(simulated(tmp_path), FEED)[0]
    np.testing.assert_allclose(read_back(read_quantized(form(tmp_path)), FEED), expected, rtol=1e-4, atol=1e-4)


def test_bias_added_behind_a_product(tmp_path: Path) -> None:
    codes = np.arange(-6, 6, dtype=np.int8).reshape(4, 3)
    nodes = [
        node("AscendQuant", ["x"], "n", name="fc.quant", scale=float(1 / STEP), offset=0.0, dst_type="INT8"),
        node("MatMul", ["n", "w"], "m", name="fc"),
        node("Add", ["m", "b"], "sums", name="bias"),
        node("AscendDequant", ["sums", "p"], "y", name="fc.dequant"),
    ]
    scale = STEP * np.float32(0.01)
    held = [constant("w", codes), constant("b", BIAS), constant("p", packed(np.array([scale])))]
    read = read_quantized(loaded(wrapped(nodes, [value("x", (2, 4))], [value("y")], held), tmp_path))
    assert ops(read) == ["MatMul", "Add"]
    found = {each.kind: each for each in read.quantizers}
    assert edges(found["bias"]) == [("bias", 1)]
    feed = random_feed({"x": (2, 4)})
    values = np.clip(np.rint(feed["x"] / STEP), -128, 127) @ codes + BIAS
    np.testing.assert_allclose(read_back(read, feed), values * scale, rtol=1e-5, atol=1e-6)


def test_one_quantizer_for_two_layers_and_pooling(tmp_path: Path) -> None:
    half = packed(np.array([STEP]))
    nodes = [
        node("AscendQuant", ["x"], "n", name="layer.quant", scale=float(1 / STEP), offset=0.0, dst_type="INT8"),
        conv(["n", "w"], "sums"),
        node("AscendDequant", ["sums", "p"], "d", name="layer.dequant"),
        node("AveragePool", ["n"], "pooled", name="pool", kernel_shape=[5, 5]),
        node("AscendDequant", ["pooled", "half"], "e", name="pool.dequant"),
        node("Concat", ["f", "g"], "y", axis=1),
        node("GlobalAveragePool", ["d"], "f"),
        node("Identity", ["e"], "g"),
    ]
    nodes = [*nodes[:5], *nodes[6:], nodes[5]]
    held = [constant("w", CODES), constant("p", packed(STEP * WEIGHT_STEPS)), constant("half", half)]
    read = read_quantized(loaded(wrapped(nodes, [value("x", SHAPE)], [value("y")], held), tmp_path))
    assert read.oddities == ()
    assert edges(by_name(read)["x"]) == [("layer", 0), ("pool", 0)]


def test_numbers_turned_back_at_once(tmp_path: Path) -> None:
    nodes = [
        node("AscendQuant", ["x"], "n", name="cat.quant", scale=20.0, offset=-7.0, dst_type="INT8"),
        node("Concat", ["n", "n"], "m", axis=1),
        node("AscendAntiQuant", ["m"], "y", name="cat.anti_quant", scale=0.05, offset=7.0),
    ]
    read = read_quantized(loaded(wrapped(nodes, [value("x", (2, 3))], [value("y")]), tmp_path))
    assert (ops(read), read.oddities) == (["Concat"], ())
    feed = random_feed({"x": (2, 3)})
    once = (np.clip(np.rint(feed["x"] * 20) - 7, -128, 127) + 7) * 0.05
    np.testing.assert_allclose(read_back(read, feed), np.concatenate([once, once], axis=1), rtol=1e-6, atol=1e-7)


def test_a_wrong_scale_on_the_way_back_is_reported(tmp_path: Path) -> None:
    nodes = [
        node("AscendQuant", ["x"], "n", name="quant", scale=20.0, offset=0.0, dst_type="INT8"),
        node("AscendAntiQuant", ["n"], "y", name="anti", scale=0.1, offset=0.0),
    ]
    read = read_quantized(loaded(wrapped(nodes, [value("x", (2, 3))], [value("y")]), tmp_path))
    assert [(oddity.kind, oddity.node) for oddity in read.oddities] == [("disagreement", "x")]
    assert "with the scale 0.05 but 'anti' dequantizes with 0.1" in str(read.oddities[0].text)


def test_a_shift_of_the_sums_is_reported(tmp_path: Path) -> None:
    read = read_quantized(deploy(tmp_path, shift=3))
    assert [str(oddity.text) for oddity in read.oddities] == [
        "sums of 'layer.dequant' are shifted right by up to 3 bits, which is left out here"
    ]


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        (
            [node("AscendQuant", ["x"], "y", name="q", scale=20.0, offset=0.0)],
            r"'q' \(AscendQuant\) writes reaches output 'y'",
        ),
        (
            [
                node("AscendQuant", ["x"], "n", name="q", scale=20.0, offset=0.0),
                node("Exp", ["n"], "y", name="exp"),
            ],
            r"reaches node 'exp' \(Exp\)",
        ),
        ([node("AscendQuant", ["x"], "y", name="q", scale=0.0, offset=0.0)], "has the scale 0.0"),
        ([node("AscendRequant", ["x", "x"], "y", name="r")], "'r' is AscendRequant"),
    ],
)
def test_what_cannot_be_followed_is_refused(tmp_path: Path, nodes: list[Any], says: str) -> None:
    outputs = [value("y", elem_type=TensorProto.FLOAT)]
    with pytest.raises(BadInput, match=says):
        read_quantized(loaded(wrapped(nodes, [value("x", (2, 3))], outputs), tmp_path))


def test_rounding_that_has_nothing_to_do_with_quantization_stays(tmp_path: Path) -> None:
    nodes = [node("Mul", ["x", "two"], "a"), node("Round", ["a"], "b"), node("Exp", ["b"], "y")]
    read = read_quantized(
        loaded(wrapped(nodes, [value("x", (2, 3))], [value("y")], [constant("two", np.float32(2))]), tmp_path)
    )
    assert (ops(read), read.quantizers) == (["Mul", "Round", "Exp"], ())
