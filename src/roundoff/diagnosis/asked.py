"""Where a model has fewer bits than were asked for it."""

from roundoff.core.quant_plan import FLOAT, NodePlan, QuantPlan
from roundoff.core.quantizer import Quantizer
from roundoff.graph.quantized_model import QuantizedModel

__all__ = ["asked_bits"]

# As good as float, for all that can be told.
_FLOAT_BITS = 16


def asked_bits(quantized: QuantizedModel, plan: QuantPlan | None) -> dict[str, int]:
    """Quantizers with fewer bits than their node was to have, with the bits that were asked for.

    Args:
        quantized: The network as it is.
        plan: What was asked for each node; None where nothing is known of it.
    """
    if plan is None:
        return {}
    nodes = {each.node: each for each in plan.nodes}
    producers = {name: node.name for node in quantized.float_model.proto.graph.node for name in node.output}
    found: dict[str, int] = {}
    for quantizer in quantized.quantizers:
        asked = [_bits(nodes[each.node], quantizer) for each in quantizer.consumers if each.node in nodes]
        writer = nodes.get(producers.get(quantizer.tensor, ""))
        asked += [] if writer is None else [_width(writer.requested.output, writer.effective.output)]
        if max(asked, default=0) > quantizer.spec.bits:
            found[quantizer.name] = max(asked)
    return found


def _bits(node: NodePlan, quantizer: Quantizer) -> int:
    """What a node asks of one of its inputs; nothing of a bias."""
    if quantizer.kind == "bias":
        return 0
    if quantizer.kind == "weight":
        return _width(node.requested.weight, node.effective.weight)
    return _width(node.requested.activation, node.effective.activation)


def _width(dtype: str, granted: str) -> int:
    """Bits that were asked for and not granted; a part that does not exist inside a unit was not refused."""
    if not granted or dtype == granted:
        return 0
    if dtype == FLOAT:
        return _FLOAT_BITS
    return int(dtype[1:]) if dtype[1:].isdigit() else 0
