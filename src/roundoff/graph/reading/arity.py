"""Refusing nodes that lack the inputs or outputs their operation must have, before anything looks for them."""

from functools import cache
from typing import Any

from roundoff.core.wording import counted
from roundoff.errors import BadInput
from roundoff.graph.assembly import STANDARD_DOMAINS, opset_of
from roundoff.graph.load import Model

__all__ = ["check_arity"]

# Operators that onnx does not know.
_NEEDED = {
    "HzCalibration": 1,
    "FakeQuantize": 1,
    "Quant": 1,
    "AscendQuant": 1,
    "AscendQuantV2": 1,
    "AscendDequant": 1,
    "AscendAntiQuant": 1,
    "AscendWeightQuant": 1,
    "QuantizeLinear": 2,
    "DequantizeLinear": 2,
    "QGemm": 6,
    "DynamicQuantizeMatMul": 3,
    "MatMulIntegerToFloat": 4,
}
_OUTPUTS = {"DynamicQuantizeLinear": 3}


def check_arity(model: Model) -> None:
    """Refuse a damaged model.

    Raises:
        BadInput: Naming the first node that lacks something.
    """
    opset = opset_of(model.proto)
    for node in model.proto.graph.node:
        needed = _needed(node.op_type, node.domain, opset)
        missing = len(node.input) < needed or any(not name for name in node.input[: min(needed, 1)])
        if missing:
            _refuse(model, node, f"has {counted(len(node.input), 'input')}; it needs {needed}")
        outputs = _OUTPUTS.get(node.op_type, 1)
        if len(node.output) < outputs or not node.output[0]:
            _refuse(model, node, f"has {counted(len(node.output), 'output')}; it needs {outputs}")


@cache
def _needed(op_type: str, domain: str, opset: int) -> int:
    from onnx import defs

    if domain in STANDARD_DOMAINS:
        try:
            return int(defs.get_schema(op_type, opset, "").min_input)
        except defs.SchemaError:
            pass
    return _NEEDED.get(op_type, 0)


def _refuse(model: Model, node: Any, what: str) -> None:
    text = f"{model.path} is damaged: node {node.name!r} ({node.op_type}) {what}."
    raise BadInput(text, fix="check it with onnx.checker.check_model, and export it again")
