"""What is switched, by name."""

from dataclasses import replace
from pathlib import Path

import pytest

from roundoff.errors import BadInput
from roundoff.graph.interface import find_outputs
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.studies.sensitivity.ranking import find_subjects, group_subject
from tests.graph.quantized_nets import mixed_net, mixed_quantizers
from tests.models import loaded, with_if


@pytest.fixture
def quantized(tmp_path: Path) -> QuantizedModel:
    return QuantizedModel(loaded(mixed_net(), tmp_path), mixed_quantizers())


def test_a_node_is_all_quantizers_on_its_inputs(quantized: QuantizedModel) -> None:
    found = {subject.name: subject for subject in find_subjects(quantized, ["node"])}
    assert list(found) == ["first", "depthwise", "add", "concat", "pool", "last"]
    assert found["first"].quantizers == ("image_q", "w1_q", "b1_q")
    assert found["add"].quantizers == ("act_q", "deep_q")
    assert (found["add"].node, found["add"].op_type) == ("add", "Add")


def test_single_quantizers_come_by_kind(quantized: QuantizedModel) -> None:
    weights = find_subjects(quantized, ["weight"])
    assert [(each.name, each.tensor, each.node, each.op_type) for each in weights] == [
        ("w1_q", "w1", "first", "Conv"), ("w2_q", "w2", "depthwise", "Conv"), ("w3_q", "w3", "last", "Gemm"),
    ]  # fmt: skip
    assert [each.name for each in find_subjects(quantized, ["bias"])] == ["b1_q", "b2_q", "b3_q"]
    activations = {each.name: each for each in find_subjects(quantized, ["activation"])}
    assert activations["act_q"].node == "depthwise"
    assert activations["logits_q"].node == ""
    assert [each.kind for each in find_subjects(quantized, ["weight", "node", "weight"])] == ["weight"] * 3 + [
        "node"
    ] * 6


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["last"], ["last", "w3_q", "flat_q"]),
        (["w?"], ["w1_q", "w2_q", "w3_q"]),
        (["act_q", "p*"], ["pool", "act_q", "both_q"]),
    ],
)
def test_patterns_choose_by_node_tensor_or_quantizer(
    patterns: list[str], names: list[str], quantized: QuantizedModel
) -> None:
    found = find_subjects(quantized, ["node", "weight", "activation"], patterns=patterns)
    assert [subject.name for subject in found] == names


def test_a_name_with_special_characters_means_itself(quantized: QuantizedModel) -> None:
    named = replace(quantized.quantizers[0], name="image[0]*")
    quantized = replace(quantized, quantizers=(named, *quantized.quantizers[1:]))
    assert [each.name for each in find_subjects(quantized, ["activation"], patterns=["image[0]*"])] == [
        "image[0]*"
    ]


def test_groups_join_what_their_patterns_match(quantized: QuantizedModel) -> None:
    (group,) = find_subjects(quantized, [], groups={"tail": ("last", "both_q", "logits")})
    assert group.kind == "group"
    assert group.quantizers == ("both_q", "flat_q", "w3_q", "b3_q", "logits_q")
    assert group_subject(quantized, "all", ["*"]).quantizers == tuple(each.name for each in quantized.quantizers)


def test_unknown_names_are_refused(quantized: QuantizedModel) -> None:
    with pytest.raises(BadInput, match="'depthwse' is no quantized node") as caught:
        find_subjects(quantized, ["node"], patterns=["depthwse"])
    assert caught.value.fix == "did you mean 'depthwise'?"
    with pytest.raises(BadInput, match=r"Node 'relu' \(Relu\) has no quantizer on its inputs") as caught:
        find_subjects(quantized, ["node"], patterns=["relu"])
    assert "first" in caught.value.fix
    with pytest.raises(BadInput, match="has no quantizers, so there is nothing to switch"):
        find_subjects(replace(quantized, quantizers=()), ["node"])
    with pytest.raises(BadInput, match="Nothing of the kind weight is quantized among these nodes"):
        find_subjects(quantized, ["weight"], patterns=["pool"])


def test_outputs_are_tensors_or_nodes(quantized: QuantizedModel, tmp_path: Path) -> None:
    model = quantized.float_model
    assert find_outputs(model, []) == ("logits",)
    assert find_outputs(model, ["sum", "first", "logits"]) == ("sum", "conv", "logits")
    with pytest.raises(BadInput, match="has no tensor or node 'som' to compare at"):
        find_outputs(model, ["som"])
    inside = loaded(with_if(), tmp_path)
    with pytest.raises(BadInput) as caught:
        find_outputs(inside, ["inner_Relu"])
    assert caught.value.fix == "it is computed inside of node 'choose'; take that"
