"""The quantization information file: which nodes were inserted, and which of the user's nodes each stands for."""

from collections.abc import Mapping
from typing import Any

from roundoff.graph.load import Model
from roundoff.vendors.amct.layers import Layer

__all__ = ["quantization_info"]

_INSERTED = (".quant", ".dequant", ".anti_quant", ".weight_quant")


def quantization_info(deployed: Model, layers: Mapping[str, Layer]) -> dict[str, Any]:
    """What Ascend's comparer reads to tell which tensors of both models belong together.

    Args:
        deployed: The deploy model.
        layers: The layers of the float model that are quantized.
    """
    graph = deployed.proto.graph
    return {"name": graph.name, "graph": [{"op": [_entry(node, layers) for node in graph.node]}]}


def _entry(node: Any, layers: Mapping[str, Layer]) -> dict[str, Any]:
    owner = next((node.name.removesuffix(end) for end in _INSERTED if node.name.endswith(end)), node.name)
    layer = layers.get(owner)
    originals = list(layer.originals) if layer is not None else [node.name]
    entry: dict[str, Any] = {
        "name": node.name,
        "type": node.op_type,
        "attr": [
            {
                "key": "_datadump_original_op_names",
                "value": {"list": {"s": originals, "val_type": "VT_LIST_STRING"}},
            }
        ],
    }
    stands_for_output = layer is not None and node.op_type == "AscendDequant"
    if stands_for_output or (layer is None and node.op_type not in ("AscendQuant", "AscendAntiQuant")):
        entry["output_desc"] = [_output(originals[-1], index) for index in range(len(node.output))]
    return entry


def _output(name: str, index: int) -> dict[str, Any]:
    facts: dict[str, dict[str, Any]] = {
        "_datadump_origin_format": {"s": "NCHW"},
        "_datadump_data_type": {"s": "DT_FLOAT"},
        "_datadump_origin_output_index": {"i": index},
        "_datadump_origin_name": {"s": name},
    }
    return {"attr": [{"key": key, "value": value} for key, value in facts.items()]}
