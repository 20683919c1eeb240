from onnx import helper

from roundoff.graph.nodes import make_model
from tests.models import value


def test_versions_are_explicit_and_domains_are_declared() -> None:
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [value("x", (1,))], [value("y")])

    model = make_model(graph, opset=13, ir_version=7, domains={"com.microsoft": 1})

    assert model.ir_version == 7
    assert {entry.domain: entry.version for entry in model.opset_import} == {"": 13, "com.microsoft": 1}
    assert model.producer_name == "roundoff"
    assert [node.op_type for node in model.graph.node] == ["Relu"]


def test_default_versions_are_old_enough_for_every_supported_onnxruntime() -> None:
    model = make_model(helper.make_graph([], "g", [], []))

    assert (model.ir_version, model.opset_import[0].version) == (8, 17)
