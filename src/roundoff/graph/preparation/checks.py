"""What cannot be prepared is said before anything is tried."""

from collections import Counter
from typing import Any

from roundoff.errors import BadInput
from roundoff.graph.assembly import STANDARD_DOMAINS, opset_of
from roundoff.graph.build import DEFAULT_OPSET
from roundoff.graph.load import Model

__all__ = ["check_float", "check_supported", "unknown_operations"]

_OLDEST_OPSET = 7
"""Before this, operators did not broadcast and carried their test mode as attributes."""

_QUANTIZED = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"}
)
_QUANTIZED_PREFIX = "QLinear"


def check_supported(model: Model) -> None:
    """Refuse models that are quantized already, or in a version of ONNX that is too old or too new.

    Raises:
        BadInput: Saying which, and what to do.
    """
    from onnx.defs import onnx_opset_version

    opset, newest = opset_of(model.proto), onnx_opset_version()
    if opset < _OLDEST_OPSET:
        raise BadInput(
            f"{model.path} is of opset {opset}; models are prepared from opset {_OLDEST_OPSET} on.",
            fix=f"onnx.save(onnx.version_converter.convert_version(onnx.load(path), {DEFAULT_OPSET}), new_path), "
            "or export the model again",
        )
    if opset > newest:
        raise BadInput(
            f"{model.path} is of opset {opset}; the installed onnx knows opsets up to {newest}.",
            fix="pip install -U onnx onnxruntime, or export the model with an older opset",
        )
    check_float(model)
    _check_standard(model, opset)


def check_float(model: Model) -> None:
    """Refuse models that are quantized already.

    Raises:
        BadInput: Saying what in it is quantized.
    """
    quantized = Counter(node.op_type for node in model.proto.graph.node if _is_quantized(node.op_type))
    if quantized:
        found = ", ".join(f"{count} {op_type}" for op_type, count in quantized.most_common())
        raise BadInput(
            f"{model.path} is quantized already: it has {found}.",
            fix="give the float model; 'roundoff audit' and 'roundoff layers --quantized' read this one",
        )


def _is_quantized(op_type: str) -> bool:
    return op_type in _QUANTIZED or op_type.startswith(_QUANTIZED_PREFIX)


def _check_standard(model: Model, opset: int) -> None:
    own = {(function.domain, function.name) for function in model.proto.functions}
    for node in model.proto.graph.node:
        if node.domain in STANDARD_DOMAINS and (node.domain, node.op_type) not in own and not _known(node, opset):
            raise BadInput(
                f"Node {node.name!r} of {model.path} is a {node.op_type!r}, which opset {opset} does not have.",
                fix="export the model with standard operators; check it with onnx.checker.check_model",
            )


def unknown_operations(model: Model) -> dict[str, list[str]]:
    """Operations that onnx does not know, with the nodes that have them; functions of the model are known."""
    own = {(function.domain, function.name) for function in model.proto.functions}
    found: dict[str, list[str]] = {}
    for node in model.proto.graph.node:
        if node.domain not in STANDARD_DOMAINS and (node.domain, node.op_type) not in own:
            found.setdefault(f"{node.domain}::{node.op_type}", []).append(node.name)
    return found


def _known(node: Any, opset: int) -> bool:
    from onnx.defs import SchemaError, get_schema

    try:
        return not get_schema(node.op_type, opset, "").deprecated
    except SchemaError:
        return False
