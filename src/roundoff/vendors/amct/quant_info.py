"""The quantization information file: which nodes were inserted, and which of the user's nodes each stands for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roundoff.graph.load import Model
from roundoff.vendors.amct.layers import Layer

__all__ = ["Operation", "operations_info", "quantization_info"]

_INSERTED = (".quant", ".dequant", ".anti_quant", ".weight_quant")
_ENTERS, _LEAVES = ("AscendQuant", "AscendAntiQuant", "Quant", "AntiQuant"), ("AscendDequant", "DeQuant")


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a deploy model.

    Attributes:
        name: Its name.
        type: Its type.
        outputs: How many results it has.
        owner: The quantized layer that it is, or was inserted for; any other name when it is none.
    """

    name: str
    type: str
    outputs: int
    owner: str


def quantization_info(deployed: Model, layers: Mapping[str, Layer]) -> dict[str, Any]:
    """What Ascend's comparer reads to tell which tensors of both models belong together.

    Args:
        deployed: The deploy model.
        layers: The layers of the float model that are quantized.
    """
    graph = deployed.proto.graph
    operations = (Operation(node.name, node.op_type, len(node.output), _owner(node.name)) for node in graph.node)
    return operations_info(graph.name, operations, {name: layer.originals for name, layer in layers.items()})


def _owner(name: str) -> str:
    return next((name.removesuffix(end) for end in _INSERTED if name.endswith(end)), name)


def operations_info(
    name: str, operations: Iterable[Operation], originals: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """The same for operations of any framework.

    Args:
        name: Of the model.
        operations: Those of the deploy model, in order.
        originals: For each quantized layer the user's layers that it computes.
    """
    return {"name": name, "graph": [{"op": [_entry(each, originals.get(each.owner)) for each in operations]}]}


def _entry(operation: Operation, computed: Sequence[str] | None) -> dict[str, Any]:
    originals = [operation.name] if computed is None else list(computed)
    entry: dict[str, Any] = {
        "name": operation.name,
        "type": operation.type,
        "attr": [
            {
                "key": "_datadump_original_op_names",
                "value": {"list": {"s": originals, "val_type": "VT_LIST_STRING"}},
            }
        ],
    }
    stands_for_output = computed is not None and operation.type in _LEAVES
    if stands_for_output or (computed is None and operation.type not in _ENTERS):
        entry["output_desc"] = [_output(originals[-1], index) for index in range(operation.outputs)]
    return entry


def _output(name: str, index: int) -> dict[str, Any]:
    facts: dict[str, dict[str, Any]] = {
        "_datadump_origin_format": {"s": "NCHW"},
        "_datadump_data_type": {"s": "DT_FLOAT"},
        "_datadump_origin_output_index": {"i": index},
        "_datadump_origin_name": {"s": name},
    }
    return {"attr": [{"key": key, "value": value} for key, value in facts.items()]}
