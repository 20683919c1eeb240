"""Recipes in words for people, and as text by which equal ones are known."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from roundoff.core.plan import Recipe, Rule, inputs_text
from roundoff.messages.numbers import counted

__all__ = [
    "describe",
    "recipe_json",
    "recipe_key",
]


_MOST_NAMED = 3
_STEPS = {"explicit_bias": ""}


def recipe_json(recipe: Recipe) -> str:
    """A recipe as JSON; equal recipes give equal texts."""
    return json.dumps(asdict(recipe), sort_keys=True, ensure_ascii=False)


def recipe_key(recipe: Recipe) -> str:
    """A hash of a recipe."""
    return hashlib.sha256(recipe_json(recipe).encode("utf-8", "surrogatepass")).hexdigest()


def describe(recipe: Recipe, base: Recipe) -> str:
    """What a recipe does otherwise than another, in a few words."""
    return "; ".join(filter(None, _parts(recipe, base))) or "plain"


def _parts(recipe: Recipe, base: Recipe) -> Iterator[str]:
    if recipe.method != base.method:
        yield f"ranges by {recipe.method or 'default'}"
    if recipe.weight_method != base.weight_method:
        yield f"weights by {recipe.weight_method or 'default'}"
    if recipe.tensor_methods and recipe.tensor_methods != base.tensor_methods:
        yield f"other ranges for {counted(len(recipe.tensor_methods), 'tensor')}"
    for name in recipe.variations:
        if name not in base.variations:
            yield name.replace("_", " ").replace(":", " at ")
    for step in (*recipe.transforms, *recipe.corrections):
        if step not in (*base.transforms, *base.corrections):
            yield _STEPS.get(step.name, step.name.replace("_", " "))
    # Tensors follow the nodes that read them.
    added = [rule for rule in recipe.rules if rule not in base.rules and rule.kind == "node"]
    for precision in dict.fromkeys(inputs_text(rule.precision) for rule in added):
        yield _nodes([rule for rule in added if inputs_text(rule.precision) == precision], precision)


def _nodes(rules: Sequence[Rule], precision: str) -> str:
    names = [name for rule in rules for name in rule.selector]
    few = ", ".join(names[:_MOST_NAMED]) + (" ..." if len(names) > _MOST_NAMED else "")
    return f"{counted(len(names), 'node')} at {precision}: {few}"
