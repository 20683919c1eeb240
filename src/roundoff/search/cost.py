"""What a quantized model costs to run, how much of it is still quantized, and the options that cost nothing."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, Literal

from roundoff.core.plan import FLOAT, NodePlan, QuantPlan, Recipe, Step
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
from roundoff.quantize.calibration.methods import all_methods
from roundoff.quantize.recipes import BIAS_CORRECTION, EXPLICIT_BIAS, PER_CHANNEL, RecipeBuilder
from roundoff.run.capture import complete_values
from roundoff.search.result import Remaining

# What a quantized model costs to run, and how much of it is still quantized.

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


# Options that cost nothing on the chip, in the order of what they take to build.

OptionKind = Literal["method", "weight_method", "tensor_methods", "variation", "transform", "correction"]

_WEIGHT_METHOD = "mse"
_QUICK = (PER_CHANNEL, BIAS_CORRECTION)
_TRANSFORMS, _LAST_CORRECTION = ("equalize", "smooth"), "round_weights"


@dataclass(frozen=True, slots=True)
class FreeOption:
    """One change of a recipe.

    Attributes:
        kind: What it changes.
        name: To what; empty where a builder finds that out.
    """

    kind: OptionKind
    name: str = ""

    @property
    def quick(self) -> bool:
        """Whether a model with it is made in little time: no other float model, no weight rounded anew."""
        return self.kind in ("method", "tensor_methods", "weight_method") or self.name in _QUICK

    @property
    def shares_scales(self) -> bool:
        """Whether it changes which values get along with one scale; others only place that scale better."""
        return self.kind == "transform" or self.name == PER_CHANNEL


def free_options(builder: RecipeBuilder) -> tuple[FreeOption, ...]:
    """The options that a network, a target and an installation have."""
    return tuple(_options(builder))


def _options(builder: RecipeBuilder) -> Iterator[FreeOption]:
    defaults, variations = builder.target.calibration, builder.variations()
    corrections, transforms = builder.library.corrections(), builder.library.transforms()
    for method in all_methods():
        if method.name != defaults.method:
            yield FreeOption("method", method.name)
    yield FreeOption("tensor_methods")
    if defaults.weight_method != _WEIGHT_METHOD:
        yield FreeOption("weight_method", _WEIGHT_METHOD)
    if PER_CHANNEL in variations:
        yield FreeOption("variation", PER_CHANNEL)
    if BIAS_CORRECTION in corrections and EXPLICIT_BIAS in transforms:
        yield FreeOption("correction", BIAS_CORRECTION)
    yield from (FreeOption("transform", name) for name in _TRANSFORMS if name in transforms)
    yield from (FreeOption("variation", name) for name in variations if name != PER_CHANNEL)
    if _LAST_CORRECTION in corrections:
        yield FreeOption("correction", _LAST_CORRECTION)


def with_option(recipe: Recipe, option: FreeOption, builder: RecipeBuilder) -> Recipe:
    """A recipe with a free option taken; the same recipe when that changes nothing."""
    match option.kind:
        case "method":
            return replace(recipe, method=option.name, tensor_methods=())
        case "weight_method":
            return replace(recipe, weight_method=option.name)
        case "tensor_methods":
            return replace(recipe, tensor_methods=builder.best_methods(recipe))
        case "variation":
            # Tensors that share a scale have one method.
            return replace(recipe, variations=tuple(sorted({*recipe.variations, option.name})), tensor_methods=())
        case "transform":
            return replace(recipe, transforms=_transforms(recipe.transforms, option.name), tensor_methods=())
        case "correction":
            steps = recipe.transforms
            if option.name == BIAS_CORRECTION and Step(EXPLICIT_BIAS) not in steps:
                steps = (*steps, Step(EXPLICIT_BIAS))
            corrections = tuple(step for step in recipe.corrections if step.name != option.name)
            # The mean error is what rounding leaves, so that its correction comes behind it.
            corrections = (*corrections, Step(option.name))
            ordered = tuple(sorted(corrections, key=lambda step: step.name == BIAS_CORRECTION))
            return replace(recipe, transforms=steps, corrections=ordered)


def _transforms(steps: tuple[Step, ...], name: str) -> tuple[Step, ...]:
    """Transforms with one more; the place for bias corrections is made last."""
    others = tuple(step for step in steps if step.name not in (name, EXPLICIT_BIAS))
    last = tuple(step for step in steps if step.name == EXPLICIT_BIAS)
    return (*others, Step(name), *last)


def without_options(recipe: Recipe, base: Recipe, nodes: Collection[str]) -> Iterator[Recipe]:
    """Recipes with one free option less, the one that takes most to build first.

    Args:
        recipe: What they are made of.
        base: Whose options stay.
        nodes: Those of the network; a transform that goes takes what is said of its own nodes along.
    """
    yield from _fewer_corrections(recipe, base)
    for name in reversed(recipe.variations):
        if name not in base.variations:
            yield replace(recipe, variations=tuple(each for each in recipe.variations if each != name))
    for step in reversed(recipe.transforms):
        if step not in base.transforms and step.name != EXPLICIT_BIAS:
            rules = tuple(rule for rule in recipe.rules if rule.kind != "node" or rule.selector[0] in nodes)
            transforms = tuple(each for each in recipe.transforms if each != step)
            yield replace(recipe, transforms=transforms, rules=rules)
    if recipe.weight_method != base.weight_method:
        yield replace(recipe, weight_method=base.weight_method)
    if recipe.tensor_methods != base.tensor_methods:
        yield replace(recipe, tensor_methods=base.tensor_methods)
    if recipe.method != base.method:
        yield replace(recipe, method=base.method, tensor_methods=base.tensor_methods)


def _fewer_corrections(recipe: Recipe, base: Recipe) -> Iterator[Recipe]:
    for step in reversed(recipe.corrections):
        if step in base.corrections:
            continue
        transforms = recipe.transforms
        if step.name == BIAS_CORRECTION and Step(EXPLICIT_BIAS) not in base.transforms:
            transforms = tuple(each for each in transforms if each.name != EXPLICIT_BIAS)
        left = tuple(each for each in recipe.corrections if each != step)
        yield replace(recipe, corrections=left, transforms=transforms)
