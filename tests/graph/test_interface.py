from pathlib import Path

import pytest
from onnx import TensorProto, helper

from roundoff.core.tensors import InputSpec, NodeInfo
from roundoff.errors import BadInput
from roundoff.graph.interface import hidden_tensors, inputs, outputs, topology
from tests.models import (
    Axes,
    conv_net,
    loaded,
    residual,
    single_node,
    two_inputs,
    two_outputs,
    value,
    with_if,
    wrapped,
)


def test_inputs_state_type_and_shape(tmp_path: Path) -> None:
    assert inputs(loaded(conv_net("N"), tmp_path)) == (InputSpec("image", "float32", ("N", 3, 8, 8)),)


def test_inputs_with_a_default_need_not_be_fed(tmp_path: Path) -> None:
    assert [spec.name for spec in inputs(loaded(two_inputs(), tmp_path))] == ["left", "right"]


@pytest.mark.parametrize(
    ("shape", "expected"), [(None, None), ((), ()), ((None, 0, -1, "n", 7), (None, 0, None, "n", 7))]
)
def test_axes_may_be_free_in_every_way_exporters_write_it(
    tmp_path: Path, shape: Axes, expected: tuple[int | str | None, ...] | None
) -> None:
    model = single_node(helper.make_node("Cast", ["x"], ["y"], to=1), [value("x", shape, TensorProto.INT64)])

    assert inputs(loaded(model, tmp_path)) == (InputSpec("x", "int64", expected),)


def test_an_input_that_is_no_tensor_is_refused(tmp_path: Path) -> None:
    sequence = helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, None)
    model = single_node(helper.make_node("ConcatFromSequence", ["parts"], ["y"], axis=0), [sequence])

    with pytest.raises(BadInput, match=r"Input 'parts' of .* is of the kind sequence; only tensors can be fed"):
        inputs(loaded(model, tmp_path))


def test_outputs(tmp_path: Path) -> None:
    assert outputs(loaded(two_outputs(), tmp_path)) == ("low", "gate")


def test_topology_lists_nodes_in_order_without_constants(tmp_path: Path) -> None:
    found = topology(loaded(residual(), tmp_path))

    assert found.nodes[0] == NodeInfo("stem", "Conv", ("image",), ("a",))
    assert found.nodes[-1] == NodeInfo("add", "Add", ("a", "c"), ("sum",))
    assert (found.inputs, found.outputs) == (("image",), ("sum",))
    assert found.producers()["c"].name == "act"


def test_constant_nodes_and_absent_inputs_are_left_out(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], ["six"], value_float=6.0),
        helper.make_node("Clip", ["x", "", "six"], ["y"], name="clip"),
    ]
    found = topology(loaded(wrapped(nodes, [value("x", (2,))], [value("y")]), tmp_path))

    assert found.nodes == (NodeInfo("clip", "Clip", ("x",), ("y",)),)


def test_what_a_subgraph_reads_from_outside_is_an_input_of_its_node(tmp_path: Path) -> None:
    chosen = topology(loaded(with_if(), tmp_path)).producers()["chosen"]

    assert chosen.inputs == ("positive", "scaled")


def test_tensors_of_subgraphs_are_known_to_be_hidden(tmp_path: Path) -> None:
    hidden = hidden_tensors(loaded(with_if(), tmp_path))

    assert set(hidden) == {"inner_Relu", "out_Relu", "inner_Abs", "out_Abs"}
    assert set(hidden.values()) == {"choose"}
