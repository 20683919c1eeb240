"""Which names mean what."""

from dataclasses import replace
from pathlib import Path

import pytest

from roundoff.errors import BadInput
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.studies.distribution.records import find_inspected
from roundoff.studies.distribution.result import InspectedKind
from tests.models import conv_net, loaded, random_feed, two_outputs, with_if
from tests.quantized import quantized_simply


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> QuantizedModel:
    model = loaded(conv_net(), tmp_path_factory.mktemp("net"))
    return quantized_simply(model, [random_feed({"image": (1, 3, 8, 8)})])


def found(network: QuantizedModel, *names: str, kinds: tuple[InspectedKind, ...] = ()) -> list[tuple[str, str]]:
    return [(each.kind, each.name) for each in find_inspected(network, names, kinds=kinds)]


def test_a_node_means_its_output(network: QuantizedModel) -> None:
    (node,) = find_inspected(network, ["Relu1"])
    assert (node.kind, node.tensor, node.op_type) == ("node", "relu1", "Relu")
    assert node.quantizer is not None
    assert found(network, "relu1") == [("node", "Relu1")]


def test_a_tensor_inside_a_unit_has_no_quantizer(network: QuantizedModel) -> None:
    (node,) = find_inspected(network, ["Conv1"])
    assert node.quantizer is None


def test_weights_biases_and_inputs(network: QuantizedModel) -> None:
    assert found(network, "w1") == [("weight", "w1")]
    assert found(network, "q:Conv1:weight") == [("weight", "w1")]
    assert found(network, "b3") == [("constant", "b3")]
    (image,) = find_inspected(network, ["image"])
    assert (image.kind, image.node) == ("node", "")
    assert image.quantizer is not None


@pytest.mark.parametrize("suffix", ["_HzCalibration", "_QuantizeLinear", "_DequantizeLinear"])
def test_quantizers_go_by_the_names_other_tools_give_them(network: QuantizedModel, suffix: str) -> None:
    assert found(network, f"relu1{suffix}") == [("activation", "relu1")]
    assert found(network, f"Relu1{suffix}") == [("activation", "relu1")]
    assert found(network, f"w1{suffix}") == [("weight", "w1")]
    assert found(network, "q:relu1") == [("activation", "relu1")]


def test_globs_mean_nodes_first_and_come_in_execution_order(network: QuantizedModel) -> None:
    assert found(network, "Re*", "Conv2", "Conv*") == [
        ("node", "Conv1"), ("node", "Relu1"), ("node", "Conv2"), ("node", "Relu2"),
    ]  # fmt: skip
    assert found(network, "w?") == [("weight", "w1"), ("weight", "w2"), ("weight", "w3")]


def test_a_name_with_brackets_is_no_glob(network: QuantizedModel) -> None:
    odd = tuple(replace(each, name="q[1]") if each.name == "q:relu1" else each for each in network.quantizers)
    assert found(replace(network, quantizers=odd), "q[1]") == [("activation", "relu1")]


def test_several_quantizers_of_one_tensor_go_by_their_own_names(network: QuantizedModel) -> None:
    (first,) = [each for each in network.quantizers if each.tensor == "w1"]
    second = replace(first, name="second", consumers=())
    both = replace(network, quantizers=(*network.quantizers, second))
    assert found(both, "w1") == [("weight", "q:Conv1:weight"), ("weight", "second")]
    assert found(both, "second") == [("weight", "second")]


def test_kinds_restrict_what_is_looked_at(network: QuantizedModel) -> None:
    assert {kind for kind, _ in found(network, "*", kinds=("activation",))} == {"activation"}
    assert [name for _, name in found(network, "*", kinds=("constant",))] == ["b3"]
    with pytest.raises(BadInput, match="'Relu1' names nothing of the kind weight"):
        find_inspected(network, ["Relu1"], kinds=("weight",))


def test_outputs_of_one_node_are_told_apart(tmp_path: Path) -> None:
    model = QuantizedModel(loaded(two_outputs(), tmp_path), ())
    assert [each.name for each in find_inspected(model, ["split"])] == ["low", "high"]


def test_unknown_names_are_refused(network: QuantizedModel, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="'Rellu1' names no node, tensor or quantizer") as caught:
        find_inspected(network, ["Rellu1"])
    assert caught.value.fix == "did you mean 'relu1'?"
    inner = QuantizedModel(loaded(with_if(), tmp_path), ())
    with pytest.raises(BadInput) as hidden:
        find_inspected(inner, ["inner_Relu"])
    assert "inside of node 'choose'" in hidden.value.fix
