"""What a quantized model costs to run, and how much of it is still quantized."""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from roundoff.core.plan import FLOAT, NodePlan, QuantPlan
from roundoff.core.target import Costs
from roundoff.core.tensors import Array
from roundoff.core.untrusted import read_toml
from roundoff.errors import BadInput
from roundoff.graph.blocks import node_products
from roundoff.graph.load import Model
from roundoff.graph.nodes import captured, subgraphs
from roundoff.graph.shapes import values
from roundoff.graph.units import derived_constants
from roundoff.graph.weights import Weights
from roundoff.messages.message import english
from roundoff.run.capture import complete_values
from roundoff.search.result import Remaining

_NARROW, _WIDE, _FLOAT_BITS = 8, 16, 32


class CostModel:
    """Weighs plans of one network.

    Args:
        model: The float network, prepared.
        feed: One sample, which decides the shapes.
        costs: What work costs.
    """

    def __init__(self, model: Model, feed: Mapping[str, Array], costs: Costs) -> None:
        self._costs, self._feed = costs, feed
        self._others: dict[int, tuple[Model, CostModel]] = {}
        graph, weights = model.proto.graph, Weights(model)
        given = {name: array.shape for name, array in feed.items()}
        known = {value.name: value.shape for value in complete_values(model, values(model, given), feed)}
        shapes = {name: shape for name, shape in known.items() if shape is not None}
        shapes |= {name: weights.shape(name) for name in weights.protos}
        constant = derived_constants(graph)
        self._products: dict[str, int] = {}
        self._moved: dict[str, tuple[int, int]] = {}
        for node in graph.node:
            self._products[node.name] = node_products(node, shapes)
            touched = {name for name in (*node.input, *node.output) if name in shapes}
            elements = {name: prod(shapes[name]) for name in touched}
            held = sum(count for name, count in elements.items() if name in constant)
            moved = sum(elements.values()) - held
            inside = [name for name in captured(node) if name in weights.protos and name not in touched]
            held += sum(prod(shapes[name]) for name in inside) + sum(map(_held_inside, subgraphs(node)))
            self._moved[node.name] = held, moved

    def of(self, model: Model) -> "CostModel":
        """The same for the network as a transform left it: nodes that it added cost something, too."""
        if id(model) not in self._others:
            self._others[id(model)] = model, CostModel(model, self._feed, self._costs)
        return self._others[id(model)][1]

    def cost(self, plan: QuantPlan) -> float:
        """What a network with this plan costs, in the unit of the costs."""
        return sum(self._of_node(node) for node in plan.nodes)

    def remaining(self, plan: QuantPlan) -> Remaining:
        """How much of a network is quantized."""
        counted = [node for node in plan.nodes if node.seen.arithmetic != "none"]
        whole = [node for node in counted if node.seen.arithmetic == "integer"]
        weights = [(node, self._moved.get(node.node, (0, 0))[0]) for node in plan.nodes]
        return Remaining(
            nodes=len(whole),
            all_nodes=len(counted),
            wide_nodes=sum(max(_bits(node)) > _NARROW for node in whole),
            products=sum(self._products.get(node.node, 0) for node in whole),
            all_products=sum(self._products.get(node.node, 0) for node in counted),
            weight_bytes=sum(held * _bits(node)[1] // 8 for node, held in weights),
            float_bytes=sum(held * _FLOAT_BITS // 8 for _, held in weights),
        )

    def _of_node(self, node: NodePlan) -> float:
        activation, weight = _bits(node)
        held, moved = self._moved.get(node.node, (0, 0))
        costs = self._costs
        if node.seen.arithmetic == "float":
            product = costs.product_float
        else:
            wide = (activation > _NARROW) + (weight > _NARROW)
            product = (costs.product_8x8, costs.product_16x8, costs.product_16x16)[wide]
        return product * self._products.get(node.node, 0) + costs.byte * (held * weight + moved * activation) / 8


def _held_inside(graph: Any) -> int:
    """Elements of the constants that a subgraph brings along."""
    own = sum(int(prod(tensor.dims)) for tensor in graph.initializer)
    return own + sum(_held_inside(inner) for node in graph.node for inner in subgraphs(node))


def _bits(node: NodePlan) -> tuple[int, int]:
    """Bits of the widest activation and of the weight; a node in float has 32 of each it computes with."""
    in_float = node.seen.arithmetic == "float"
    activation = max(map(_dtype_bits, (node.seen.activation or node.seen.output).split("/")))
    weight = max(map(_dtype_bits, node.seen.weight.split("/")))
    return _FLOAT_BITS if in_float else activation, weight or (_FLOAT_BITS if in_float else activation)


def _dtype_bits(dtype: str) -> int:
    return 0 if not dtype else _FLOAT_BITS if dtype == FLOAT else int(dtype[1:])


def load_costs(path: Path) -> Costs:
    """Read a table of costs: a TOML file with the keys of a target's ``[cost]``, at its top or in such a table.

    Raises:
        BadInput: It cannot be read, or holds something else.
    """
    from pydantic import ValidationError

    from roundoff.quantize.targets.schema import CostTable

    content = read_toml(path, what=english("The table of costs"))
    try:
        return CostTable.model_validate(content.get("cost", content)).costs()
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        keys = ", ".join(CostTable.model_fields)
        raise BadInput(
            english("{path}: {place}: {first}.", path=path, place=place, first=first["msg"]),
            fix=english("it may hold numbers for: {keys}", keys=keys),
        ) from error
