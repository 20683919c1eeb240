"""What a quantized model costs on the chip beyond another one, counted in the models themselves."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from roundoff.core.tensors import Array
from roundoff.graph.cutting import node_products
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import values
from roundoff.graph.weights import Weights
from roundoff.messages.message import Message, joined, message

__all__ = ["AddedCost", "CostKind", "added_cost"]

CostKind = Literal["free", "nodes", "16 bit", "float"]
# Nodes that no chip computes.
_FREE_NODES = frozenset({"Constant", "Identity"})


@dataclass(frozen=True, slots=True)
class AddedCost:
    """What one quantized model has that another has not.

    Attributes:
        nodes: Nodes more.
        node_types: Their op types, the most frequent first.
        quantizers: Quantizers of activations more; each is a requantization.
        bits: The most bits that a tensor has of those that have more than before; 0 where none has.
        wide: Tensors with more bits than before.
        in_float: Tensors that were quantized and are not any more.
        products: Share of all products of activations and weights that these two concern.
    """

    nodes: int = 0
    node_types: tuple[str, ...] = ()
    quantizers: int = 0
    bits: int = 0
    wide: int = 0
    in_float: int = 0
    products: float = 0.0

    @property
    def kind(self) -> CostKind:
        """The dearest of it."""
        if self.in_float:
            return "float"
        if self.wide:
            return "16 bit"
        return "nodes" if self.nodes > 0 or self.quantizers > 0 else "free"

    @property
    def text(self) -> Message | None:
        """In words; None where it costs nothing."""
        parts = []
        if self.in_float:
            parts.append(message("quantize.cost_float", count=self.in_float))
        if self.wide:
            parts.append(message("quantize.cost_wide", count=self.wide, bits=self.bits))
        if parts and self.products:
            parts.append(message("quantize.cost_products", percent=f"{100 * self.products:.3g}"))
        if self.nodes > 0:
            parts.append(message("quantize.cost_nodes", count=self.nodes, types=self.node_types))
        if self.quantizers > 0:
            parts.append(message("quantize.cost_quantizers", count=self.quantizers))
        return joined(parts, key="terminal.comma") if parts else None


def added_cost(plain: QuantizedModel, model: QuantizedModel, feed: Mapping[str, Array] | None = None) -> AddedCost:
    """What a model costs beyond another one of the same network.

    Args:
        plain: The other one: plain int8, or the model before a repair.
        model: The model.
        feed: One sample, which decides how many products nodes compute; None to leave these out.
    """
    before, after = (_node_types(each) for each in (plain, model))
    more = after - before
    widths, ours = _widths(plain), _widths(model)
    usual = max(widths.values(), default=0)
    wide = {name for name, bits in ours.items() if bits > widths.get(name, usual)}
    reads = {name for node in model.float_model.proto.graph.node for name in (*node.input, *node.output)}
    dropped = {name for name in widths if name not in ours and name in reads}
    sums = [sum(each.kind == "activation" for each in side.quantizers) for side in (plain, model)]
    return AddedCost(
        nodes=max(0, after.total() - before.total()),
        node_types=tuple(name for name, _ in more.most_common()),
        quantizers=max(0, sums[1] - sums[0] + len(dropped)),
        bits=max((ours[name] for name in wide), default=0),
        wide=len(wide),
        in_float=len(dropped),
        products=0.0 if feed is None or not wide | dropped else _share(model, wide | dropped, feed),
    )


def _node_types(model: QuantizedModel) -> "Counter[str]":
    nodes = model.float_model.proto.graph.node
    return Counter(node.op_type for node in nodes if node.op_type not in _FREE_NODES)


def _widths(model: QuantizedModel) -> dict[str, int]:
    """Bits of each tensor, biases left out: they are as wide as sums."""
    found: dict[str, int] = {}
    for each in model.quantizers:
        if each.kind != "bias":
            found[each.tensor] = max(each.spec.bits, found.get(each.tensor, 0))
    return found


def _share(model: QuantizedModel, tensors: set[str], feed: Mapping[str, Array]) -> float:
    """Share of the products that are computed with some of these tensors."""
    float_model, weights = model.float_model, Weights(model.float_model)
    known = values(float_model, {name: array.shape for name, array in feed.items()})
    shapes: dict[str, Any] = {each.name: each.shape for each in known if each.shape is not None}
    shapes |= {name: weights.shape(name) for name in weights.protos}
    counted = [(node, node_products(node, shapes)) for node in float_model.proto.graph.node]
    whole = sum(products for _, products in counted)
    concerned = sum(products for node, products in counted if tensors & set(node.input))
    return concerned / whole if whole else 0.0
