"""The graph of copies computes what evaluating node by node computes."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.quantizers import Consumer, Quantizer, QuantSpec, dequantize, parameters_from_range, quantize
from roundoff.core.tensors import Array
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.interface import inputs
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.subgraph import tap
from roundoff.run.session import open_session
from roundoff.run.variants import Copies, Variant, build_copies
from tests.models import (
    branches,
    conv_net,
    loaded,
    random_feed,
    residual,
    two_inputs,
    two_outputs,
    value,
    with_if,
    wrapped,
)
from tests.quantized import Recipe, quantized_simply
from tests.studies.layers.support import (
    accumulated_values,
    demo_network,
    float_values,
    local_values,
    quantizer_of,
    with_quantizer,
)

LOCAL: tuple[Variant, ...] = ("local",)
ACCUMULATED: tuple[Variant, ...] = ("accumulated",)
SHAPES = {"left": (2, 5), "right": (2, 5), "image": (1, 3, 8, 8), "x": (1, 4, 3)}


def network(model: Any, folder: Path, recipe: Recipe | None = None) -> tuple[QuantizedModel, dict[str, Array]]:
    read = loaded(model, folder)
    feeds = [random_feed({spec.name: SHAPES[spec.name] for spec in inputs(read)}, seed) for seed in range(3)]
    return quantized_simply(read, feeds[:2], recipe), feeds[2]


def computed(
    copies: Copies[Variant], quantized: QuantizedModel, feed: Mapping[str, Array]
) -> dict[Variant, dict[str, Array]]:
    """The values of every tap."""
    names = list(dict.fromkeys(each.name for variants in copies.taps.values() for each in variants.values()))
    session = open_session(quantized.float_model, outputs=tap(copies.model, names))
    arrays = dict(zip(names, session.run(feed), strict=True))
    found: dict[Variant, dict[str, Array]] = {}
    for tensor, variants in copies.taps.items():
        for variant, each in variants.items():
            array = arrays[each.name]
            if each.coded:
                written = quantizer_of(quantized, tensor)
                array = dequantize(array, written.params)
            found.setdefault(variant, {})[tensor] = array
    return found


def assert_equal(found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    assert set(found) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("build", [conv_net, residual, branches, two_inputs, two_outputs])
@pytest.mark.parametrize("per_channel", [True, False])
def test_copies_equal_an_evaluation_node_by_node(build: Any, per_channel: bool, tmp_path: Path) -> None:
    quantized, feed = network(build(), tmp_path, Recipe(per_channel=per_channel))
    found = computed(build_copies(quantized, ("local", "accumulated")), quantized, feed)
    assert_equal(found["local"], local_values(quantized, feed))
    assert_equal(found["accumulated"], accumulated_values(quantized, feed))


def test_fused_layers_are_followed_through_their_unit() -> None:
    quantized, samples = demo_network()
    found = computed(build_copies(quantized, ("local", "accumulated")), quantized, samples.feed(0))
    assert_equal(found["local"], local_values(quantized, samples.feed(0)))
    assert_equal(found["accumulated"], accumulated_values(quantized, samples.feed(0)))


def test_the_accumulated_output_is_that_of_the_quantized_model() -> None:
    quantized, samples = demo_network()
    found = computed(build_copies(quantized, ACCUMULATED), quantized, samples.feed(1))
    whole = insert_quantizers(quantized.float_model, quantized.quantizers)
    np.testing.assert_array_equal(found["accumulated"]["logits"], open_session(whole).run(samples.feed(1))[0])


def test_a_unit_alone_reads_exact_inputs(tmp_path: Path) -> None:
    quantized, feed = network(conv_net(), tmp_path)
    found = computed(build_copies(quantized, ("own", "coded")), quantized, feed)
    exact = float_values(quantized, feed)
    raw = local_values(replace(quantized, quantizers=_weights(quantized)), feed)
    for name in ("relu1", "relu2", "logits"):
        written = quantizer_of(quantized, name)
        expected = raw[name] if name == "logits" else np.maximum(raw[name.replace("relu", "conv")], 0)
        np.testing.assert_array_equal(
            found["own"][name], dequantize(quantize(expected, written.params, written.spec), written.params)
        )
        np.testing.assert_array_equal(
            found["coded"][name], dequantize(quantize(exact[name], written.params, written.spec), written.params)
        )
    image = quantizer_of(quantized, "image")
    np.testing.assert_array_equal(
        found["coded"]["image"], dequantize(quantize(feed["image"], image.params, image.spec), image.params)
    )


def _weights(quantized: QuantizedModel) -> tuple[Quantizer, ...]:
    return tuple(each for each in quantized.quantizers if each.kind == "weight")


def test_a_tensor_quantized_again_for_one_reader_is_so_in_all_copies(tmp_path: Path) -> None:
    quantized, feed = network(residual(), tmp_path)
    first = quantizer_of(quantized, "a")
    coarse = QuantSpec(bits=4, signed=True, symmetric=True)
    again = Quantizer(
        "again",
        "a",
        "activation",
        coarse,
        parameters_from_range(-3, 3, coarse),
        (Consumer("add", 0),),
        after=first.name,
    )
    kept = replace(first, consumers=(Consumer("body", 0),))
    quantized = with_quantizer(quantized, kept)
    quantized = replace(quantized, quantizers=(*quantized.quantizers, again))
    found = computed(build_copies(quantized, ("local", "accumulated")), quantized, feed)
    assert_equal(found["local"], local_values(quantized, feed))
    assert_equal(found["accumulated"], accumulated_values(quantized, feed))


def test_codes_of_a_weight_that_were_learned_are_used(tmp_path: Path) -> None:
    quantized, feed = network(conv_net(), tmp_path)
    weight = quantizer_of(quantized, "w1")
    codes = np.random.default_rng(0).integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    quantized = with_quantizer(quantized, replace(weight, codes=codes))
    found = computed(build_copies(quantized, LOCAL), quantized, feed)
    assert_equal(found["local"], local_values(quantized, feed))


@pytest.mark.parametrize(
    "activation",
    [
        QuantSpec(bits=16, signed=True, symmetric=True),
        QuantSpec(bits=4, signed=False, symmetric=False),
        QuantSpec(bits=8, signed=True, symmetric=True, narrow=True, rounding="half_away"),
    ],
    ids=["s16", "u4", "half away"],
)
def test_other_codes_and_roundings(activation: QuantSpec, tmp_path: Path) -> None:
    quantized, feed = network(conv_net(), tmp_path, Recipe(activation=activation))
    found = computed(build_copies(quantized, ("local", "accumulated")), quantized, feed)
    assert_equal(found["accumulated"], accumulated_values(quantized, feed))
    assert_equal(found["local"], local_values(quantized, feed))


def test_subgraphs_read_the_copies_of_what_they_take_from_outside(tmp_path: Path) -> None:
    read = loaded(with_if(), tmp_path)
    spec = QuantSpec(bits=8, signed=True, symmetric=True)
    quantizer = Quantizer(
        "q", "x", "activation", spec, parameters_from_range(-4, 4, spec), (Consumer("scale", 0),)
    )
    quantized = QuantizedModel(read, (quantizer,))
    feed = {"x": np.array([[0.1, 2.03, -1.0]], np.float32)}
    found = computed(build_copies(quantized, ("local", "accumulated")), quantized, feed)
    scaled = 2 * dequantize(quantize(feed["x"], quantizer.params, spec), quantizer.params)
    np.testing.assert_array_equal(found["accumulated"]["chosen"], -np.maximum(scaled, 0))
    # Alone the If reads what the float network computes.
    np.testing.assert_array_equal(found["local"]["chosen"], -np.maximum(2 * feed["x"], 0))
    np.testing.assert_array_equal(found["local"]["scaled"], scaled)


def test_random_numbers_are_drawn_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"], name="noise"),
        helper.make_node("Add", ["x", "noise"], ["y"], name="add"),
    ]
    read = loaded(wrapped(nodes, [value("x", (2, 3))], [value("y")]), tmp_path)
    spec = QuantSpec(bits=8, signed=True, symmetric=True)
    params = parameters_from_range(-4, 4, spec)
    consumers = (Consumer("noise", 0), Consumer("add", 0))
    quantized = QuantizedModel(read, (Quantizer("q", "x", "activation", spec, params, consumers),))
    taps = build_copies(quantized, ("local", "accumulated")).taps["noise"]
    assert {each.name for each in taps.values()} == {"noise"}


def test_half_precision_networks_keep_their_type(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    weights = [numpy_helper.from_array(np.linspace(-1, 1, 12, dtype=np.float16).reshape(3, 4), "w")]
    half = TensorProto.FLOAT16
    read = loaded(wrapped(nodes, [value("x", (2, 3), half)], [value("y", (2, 4), half)], weights), tmp_path)
    activation, weight = QuantSpec(8, signed=False, symmetric=False), QuantSpec(8, signed=True, symmetric=True)
    quantized = QuantizedModel(
        read,
        (
            Quantizer(
                "x",
                "x",
                "activation",
                activation,
                parameters_from_range(-1, 1, activation),
                (Consumer("product", 0),),
            ),
            Quantizer("w", "w", "weight", weight, parameters_from_range(-1, 1, weight), (Consumer("product", 1),)),
            Quantizer(
                "y", "y", "activation", activation, parameters_from_range(-3, 3, activation), (), output=True
            ),
        ),
    )
    feed = {"x": np.random.default_rng(0).uniform(-1, 1, (2, 3)).astype(np.float16)}
    copies = build_copies(quantized, LOCAL)
    assert not copies.taps["y"]["local"].coded
    found = computed(copies, quantized, feed)["local"]["y"]
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, feed["x"] @ np.linspace(-1, 1, 12).reshape(3, 4), atol=0.05)


def test_large_weights_are_quantized_when_the_copies_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quantized, feed = network(conv_net(), tmp_path)
    expected = computed(build_copies(quantized, ACCUMULATED), quantized, feed)
    monkeypatch.setattr("roundoff.run.variants._MOST_BAKED_BYTES", 0)
    copies = build_copies(quantized, ACCUMULATED)
    assert sum(node.op_type == "QuantizeLinear" for node in copies.model.proto.graph.node) == 9
    assert_equal(computed(copies, quantized, feed)["accumulated"], expected["accumulated"])
