"""The two snapshots at the end of a quantization: of the network and of its quantizations."""

from collections.abc import Mapping
from typing import Any

from roundoff.core.quant_plan import QuantPlan
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.vendors.pulsar2.building.axmodel_json import state_counts

__all__ = ["snapshot"]

_LABEL = 30


def snapshot(quantized: QuantizedModel, plan: QuantPlan, document: Mapping[str, Any]) -> str:
    """The figures as the vendor lays them out.

    Args:
        quantized: The quantized model.
        plan: What every node became.
        document: The content of quant_axmodel.json.
    """
    graph = quantized.float_model.proto.graph
    tensors = {name for node in graph.node for name in (*node.input, *node.output) if name}
    coded = {each.tensor for each in quantized.quantizers}
    states = state_counts(document)
    integer = sum(node.seen.arithmetic == "integer" for node in plan.nodes) if quantized.quantizers else 0
    network = {
        "Num of Op": len(plan.nodes),
        "Num of Quantized Op": integer,
        "Num of Variable": len(tensors),
        "Num of Quantized Var": len(coded),
    }
    quantization = {"Num of Quant Config": sum(states.values()), **states}
    lines = ["--------- Network Snapshot ---------", *_figures(network)]
    lines += ["------- Quantization Snapshot ------", *_figures(quantization)]
    return "\n".join(lines)


def _figures(counts: Mapping[str, int]) -> list[str]:
    return [f"{f'{name}:':<{_LABEL}}[{count}]" for name, count in counts.items()]
