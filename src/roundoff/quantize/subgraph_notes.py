"""What a plan leaves in float inside of If, Loop and Scan, where no quantizer sits."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from roundoff.core.quant_plan import QuantPlan
from roundoff.core.wording import counted
from roundoff.graph.load import Model
from roundoff.graph.preparation.draft import named
from roundoff.graph.wiring import captured, subgraphs

__all__ = ["subgraph_notes"]

_TYPES = 3


def subgraph_notes(model: Model, plan: QuantPlan) -> tuple[str, ...]:
    """One note for each node with subgraphs that compute something.

    Args:
        model: The model that is quantized.
        plan: What is quantized of it.
    """
    quantized = {each.tensor for each in plan.quantizers}
    return tuple(_note(node, quantized) for node in model.proto.graph.node if any(_inside(node)))


def _note(node: Any, quantized: set[str]) -> str:
    types = Counter(each.op_type for each in _inside(node))
    most = sorted(types.items(), key=lambda each: (-each[1], each[0]))[:_TYPES]
    listed = ", ".join(f"{count} {op_type}" for op_type, count in most)
    more = ", ..." if len(types) > _TYPES else ""
    stay = "stays" if types.total() == 1 else "stay"
    text = (
        f"{counted(types.total(), 'node')} inside {node.name!r} ({node.op_type}) {stay} in float: {listed}{more}"
    )
    read = [name for name in captured(node) if name in quantized]
    return f"{text}; what they read there of {named(read)} is not quantized for them" if read else text


def _inside(node: Any) -> Iterator[Any]:
    """The nodes of all subgraphs, in all depths, without those that only hold constants."""
    for graph in subgraphs(node):
        for inner in graph.node:
            if inner.op_type != "Constant":
                yield inner
            yield from _inside(inner)
