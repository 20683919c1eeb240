"""Which nodes are computed as one, with operations that are spelled out in several."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roundoff.graph.units import joined_units, units
from tests.graph.test_units import chain, quantizer
from tests.models import conv_net, loaded, residual
from tests.quantize.planning.networks import NETWORKS

SEEN = quantizer("x", ("conv1", 0))
WEIGHTS = [quantizer("w1", ("conv1", 1), kind="weight"), quantizer("w2", ("conv2", 1), kind="weight")]


def groups(network: str, folder: Path, *quantizers: object) -> list[tuple[str, ...]]:
    found = joined_units(loaded(NETWORKS[network](), folder), quantizers)  # type: ignore[arg-type]
    return [members for members in found.members.values() if len(members) > 1]


def test_a_spelled_out_activation_is_computed_with_what_is_in_front(tmp_path: Path) -> None:
    around = (quantizer("b", ("conv2", 0)), quantizer("d", ("gate", 0)), *WEIGHTS)
    assert groups("swish_net", tmp_path, *around) == [("conv2", "sigmoid2", "mul2")]
    # The first one's inner tensor is read elsewhere.
    assert groups("swish_net", tmp_path, SEEN, *around) == [("conv2", "sigmoid2", "mul2")]


@pytest.mark.parametrize("quantized", ["c", "t"])
def test_a_quantizer_inside_takes_it_apart(tmp_path: Path, quantized: str) -> None:
    inside = {"c": quantizer("c", ("sigmoid2", 0), ("mul2", 1)), "t": quantizer("t", ("mul2", 0))}[quantized]
    around = (quantizer("b", ("conv2", 0)), quantizer("d", ("gate", 0)), inside, *WEIGHTS)
    expected = [("sigmoid2", "mul2")] if quantized == "c" else []
    assert groups("swish_net", tmp_path, *around) == expected


def test_what_begins_in_float_or_has_a_float_weight_is_no_unit(tmp_path: Path) -> None:
    behind = (quantizer("d", ("gate", 0)), *WEIGHTS)
    assert groups("swish_net", tmp_path, *behind) == [("sigmoid2", "mul2")]
    assert groups("swish_net", tmp_path, quantizer("b", ("conv2", 0)), behind[0], WEIGHTS[0]) == [
        ("sigmoid2", "mul2")
    ]


def test_bias_and_gelu_behind_a_product(tmp_path: Path) -> None:
    ends = (
        quantizer("x", ("fc1", 0)),
        quantizer("w1", ("fc1", 1), kind="weight"),
        quantizer("g", ("fc2", 0)),
        quantizer("w2", ("fc2", 1), kind="weight"),
    )
    assert groups("gelu_mlp", tmp_path, *ends) == [
        ("fc1", "fc1_bias", "div", "erf", "plus_one", "mul", "halve"),
    ]


@given(st.lists(st.sampled_from(["Relu", "Sigmoid", "Neg", "Add"]), min_size=1, max_size=4), st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_without_spelled_out_operations_units_are_the_same(
    tmp_path: Path, ops: list[str], data: st.DataObject
) -> None:
    model = chain(tmp_path, ["Conv", *(f"{op}" for op in dict.fromkeys(ops))])
    names = [node.name for node in model.proto.graph.node]
    tensors = ["x", *(f"t{at}" for at in range(len(names)))]
    chosen = data.draw(st.sets(st.integers(0, len(names) - 1)))
    found = [quantizer(tensors[at], (names[at], 0)) for at in sorted(chosen)]
    found.append(quantizer("w", ("Conv", 1), kind="weight"))
    assert joined_units(model, found) == units(model, found)


@pytest.mark.parametrize("network", [conv_net, residual])
def test_a_model_without_quantizers_has_no_units(tmp_path: Path, network: object) -> None:
    model = loaded(network(), tmp_path)  # type: ignore[operator]
    assert joined_units(model, ()) == units(model, ())
