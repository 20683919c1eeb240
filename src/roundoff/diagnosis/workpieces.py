"""What can be repaired: the quantizers of a model that was given, or the recipe of one that is made here."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from roundoff.core.findings import Change
from roundoff.core.quant_plan import FLOAT, Precision, Rule
from roundoff.core.quantizer import QuantSpec
from roundoff.core.recipe import Recipe, Step
from roundoff.diagnosis.case import Case, Fixes
from roundoff.diagnosis.edits import edit, retied
from roundoff.errors import BadInput
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.quantize.recipes import Built, RecipeBuilder
from roundoff.quantize.variations import PER_CHANNEL

__all__ = ["EditedModel", "RecipeModel"]

_WIDE = 16
_EXACT_RANGE = "minmax"


@dataclass(frozen=True, slots=True, eq=False)
class EditedModel:
    """A quantized model whose quantizers are changed one by one.

    Attributes:
        case: The network as it was given.
        fixes: What is changed.
    """

    case: Case
    fixes: Fixes = field(default_factory=dict)

    def changed(self, changes: Sequence[Change]) -> Self | None:
        """The same with changes; None where none of them can be made in quantizers."""
        found = {name: each for change in changes for name, each in edit(self.case, change).items()}
        return replace(self, fixes={**self.fixes, **found}) if found else None

    def quantized(self) -> QuantizedModel:
        """The network; biases follow the scales of inputs and weights."""
        quantizers = tuple(self.case.quantizers(retied(self.case, self.fixes)))
        return replace(self.case.facts.quantized, quantizers=quantizers)


@dataclass(frozen=True, slots=True, eq=False)
class RecipeModel:
    """A model that is quantized for a target, whose recipe is changed.

    Attributes:
        builder: Makes the model.
        recipe: How.
    """

    builder: RecipeBuilder
    recipe: Recipe

    def changed(self, changes: Sequence[Change]) -> Self | None:
        """The same with changes; None where the target does not have what they ask for."""
        recipe: Recipe | None = self.recipe
        for change in changes:
            recipe = None if recipe is None else self._with(recipe, change)
        if recipe is None or recipe == self.recipe:
            return None
        try:
            self.builder.build(recipe)
        except BadInput:
            return None
        return replace(self, recipe=recipe)

    def _with(self, recipe: Recipe, change: Change) -> Recipe | None:
        target = self.builder.target
        match change.kind:
            case "variation" | "per_channel":
                name = change.value or PER_CHANNEL
                if name not in self.builder.variations():
                    return None
                return replace(recipe, variations=tuple(sorted({*recipe.variations, name})))
            case "transform" if change.step is not None:
                return self._transformed(recipe, change.step)
            case "bits" | "float":
                return _with_rules(recipe, change, {**target.activations}, {**target.weights}, self.builder)
            case "range" | "recalibrate":
                return _with_range_method(recipe, change, self.builder)
        return None

    def _transformed(self, recipe: Recipe, step: Step) -> Recipe | None:
        if step.name not in self.builder.workshop.transforms() or step in recipe.transforms:
            return None
        return replace(recipe, transforms=(*recipe.transforms, step), tensor_methods=())

    def built(self) -> Built:
        """The network with its plan."""
        return self.builder.build(self.recipe)

    def quantized(self) -> QuantizedModel:
        """The network."""
        return self.built().quantized


def _with_rules(
    recipe: Recipe,
    change: Change,
    activations: dict[str, QuantSpec],
    weights: dict[str, QuantSpec],
    builder: RecipeBuilder,
) -> Recipe | None:
    """Other precisions for tensors, where the target has them."""
    constants = {each.name for each in builder.prepared.model.proto.graph.initializer}
    rules = []
    for tensor in change.tensors:
        offered = weights if tensor in constants else activations
        wide = next((dtype for dtype, spec in offered.items() if spec.bits >= _WIDE), "")
        dtype = FLOAT if change.kind == "float" else wide
        if not dtype:
            return None
        rules.append(Rule("tensor", (tensor,), Precision(dtype, "", dtype)))
    return replace(recipe, rules=(*recipe.rules, *rules)) if rules else None


def _with_range_method(recipe: Recipe, change: Change, builder: RecipeBuilder) -> Recipe | None:
    """Ranges that leave nothing out, for some tensors or all of them."""
    constants = {each.name for each in builder.prepared.model.proto.graph.initializer}
    if not change.tensors:
        return replace(recipe, method=_EXACT_RANGE, tensor_methods=())
    if set(change.tensors) & constants:
        return replace(recipe, weight_method=_EXACT_RANGE)
    methods = {**dict(recipe.tensor_methods), **dict.fromkeys(change.tensors, _EXACT_RANGE)}
    return replace(recipe, tensor_methods=tuple(sorted(methods.items())))
