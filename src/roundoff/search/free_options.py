"""Options that cost nothing on the chip, in the order of what they take to build."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from roundoff.core.plan import Recipe, Step
from roundoff.quantize.calibration.methods import all_methods
from roundoff.quantize.recipes import BIAS_CORRECTION, EXPLICIT_BIAS, PER_CHANNEL, RecipeBuilder

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


def without_options(recipe: Recipe, base: Recipe) -> Iterator[Recipe]:
    """Recipes with one free option less, the one that takes most to build first."""
    yield from _fewer_corrections(recipe, base)
    for name in reversed(recipe.variations):
        if name not in base.variations:
            yield replace(recipe, variations=tuple(each for each in recipe.variations if each != name))
    for step in reversed(recipe.transforms):
        if step not in base.transforms and step.name != EXPLICIT_BIAS:
            yield replace(recipe, transforms=tuple(each for each in recipe.transforms if each != step))
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
