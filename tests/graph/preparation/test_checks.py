"""Models that are refused, and what is said of operators that nobody knows."""

from typing import Any

import pytest
from onnx import helper
from onnx.defs import onnx_opset_version

from roundoff.errors import BadInput
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.preparation.steps import prepare
from tests.graph.preparation.comparing import in_memory
from tests.graph.quantized_nets import mixed_net, mixed_quantizers
from tests.models import single_node, value


def _one(op_type: str, **versions: Any) -> Any:
    return in_memory(
        single_node(helper.make_node(op_type, ["x"], ["y"], name="n"), [value("x", (2,))], **versions)
    )


@pytest.mark.parametrize(
    ("model", "message", "fix"),
    [
        (_one("Relu", opset=6), "of opset 6; models are prepared from opset 7 on", "convert_version"),
        (_one("Relu", opset=onnx_opset_version() + 1), "installed onnx knows opsets up to", "pip install -U"),
        (
            _one("Softmux"),
            "Node 'n' of net.onnx is a 'Softmux', which opset 17 does not have",
            "standard operators",
        ),
        (_one("Gelu", opset=17), "'Gelu', which opset 17 does not have", "standard operators"),
        (
            _one("QLinearSigmoid", domains={"com.microsoft": 1}),
            "quantized already: it has 1 QLinear",
            "give the float",
        ),
    ],
)
def test_what_cannot_be_prepared_is_said(model: Any, message: str, fix: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        prepare(model)
    assert fix in caught.value.fix


def test_a_quantized_model_is_not_quantized_again() -> None:
    quantized = insert_quantizers(in_memory(mixed_net()), mixed_quantizers())
    with pytest.raises(BadInput, match="is quantized already: it has 13 DequantizeLinear, 10 QuantizeLinear"):
        prepare(quantized)


def test_other_domains_are_left_alone_and_mentioned() -> None:
    node = helper.make_node("Magic", ["x"], ["y"], name="n", domain="my.domain")
    prepared = prepare(in_memory(single_node(node, [value("x", (2,))], domains={"my.domain": 1})))
    assert tuple(map(str, prepared.notes)) == (
        "my.domain::Magic is not an operation of ONNX, nothing is known of its results: 'n'",
    )
    assert [each.domain for each in prepared.model.proto.graph.node] == ["my.domain"]
