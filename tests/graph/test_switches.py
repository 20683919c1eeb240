"""What names mean."""

from pathlib import Path

import pytest

from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.switches import Switches
from tests.graph.quantized_nets import mixed_net, mixed_quantizers


@pytest.fixture
def switches() -> Switches:
    return Switches(QuantizedModel(Model(mixed_net(), Path("net.onnx"), 0), mixed_quantizers()))


def test_kinds_of_quantizers(switches: Switches) -> None:
    assert switches.find("weight") == ("w1_q", "b1_q", "w2_q", "b2_q", "w3_q", "b3_q")
    activations = ("image_q", "act_q", "deep_q", "sum_q", "both_q", "flat_q", "logits_q")
    assert switches.find("activation") == switches.find("activations") == activations
    assert switches.find("all") == switches.names
    assert switches.without("weight") == activations


@pytest.mark.parametrize(
    ("name", "quantizers"),
    [
        ("add", ("act_q", "deep_q")),  # a node: what is on its inputs
        ("node:add", ("act_q", "deep_q")),
        ("act_q", ("act_q",)),
        ("quantizer:act_q", ("act_q",)),
        ("act", ("act_q",)),  # a tensor
        ("tensor:act", ("act_q",)),
        ("act_HzCalibration", ("act_q",)),
        ("w2_HzCalibration", ("w2_q",)),
        ("w2_DequantizeLinear", ("w2_q",)),
        ("op:Conv", ("image_q", "w1_q", "b1_q", "act_q", "w2_q", "b2_q")),
        ("op:*o*", ("image_q", "w1_q", "b1_q", "act_q", "w2_q", "b2_q", "sum_q", "both_q")),
        ("f*", ("image_q", "w1_q", "b1_q")),  # nodes come before tensors: flat is one
        ("w?", ("w1_q", "w2_q", "w3_q")),
        ("w*_q", ("w1_q", "w2_q", "w3_q")),
        ("*_HzCalibration", ()),
    ],
)
def test_names(switches: Switches, name: str, quantizers: tuple[str, ...]) -> None:
    assert switches.find(name) == (quantizers or switches.names)


def test_several_names_are_joined_in_execution_order(switches: Switches) -> None:
    assert switches.find("last", "w1", "first") == ("image_q", "w1_q", "b1_q", "flat_q", "w3_q", "b3_q")
    assert switches.find() == ()
    assert [each.name for each in switches.select(["b3_q", "w1_q"])] == ["w1_q", "b3_q"]


def test_nodes_are_those_with_quantized_inputs(switches: Switches) -> None:
    assert switches.nodes == ("first", "depthwise", "add", "concat", "pool", "last")


@pytest.mark.parametrize(
    ("name", "what", "fix"),
    [
        ("ad", "'ad' is no quantized node, tensor or quantizer of net.onnx.", "did you mean 'add'?"),
        ("relu", "Node 'relu' (Relu) has no quantizer on its inputs.", "choose nodes that are quantized: first, "),
        ("node:relu", "Node 'relu' (Relu) has no quantizer on its inputs.", "first, depthwise, add, concat, pool"),
        ("op:Cnv", "'op:Cnv' is no quantized node", "did you mean 'Conv'?"),
        ("ac_HzCalibration", "'ac_HzCalibration' is no quantized node", "did you mean 'act'?"),
    ],
)
def test_unknown_names(switches: Switches, name: str, what: str, fix: str) -> None:
    with pytest.raises(BadInput) as caught:
        switches.find(name)
    assert what in caught.value.what
    assert fix in caught.value.fix


def test_a_model_without_quantizers_has_no_names() -> None:
    with pytest.raises(BadInput, match="has no quantizers"):
        Switches(QuantizedModel(Model(mixed_net(), Path("net.onnx"), 0), ())).find("add")
