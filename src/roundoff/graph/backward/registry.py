"""Rules by operation: how the gradient of what a node computes becomes that of what it reads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from roundoff.graph.assembly import STANDARD_DOMAINS
from roundoff.graph.backward.step import Step

__all__ = ["BLIND", "CODING", "STEPWISE", "Entry", "Rule", "find_rule", "rule", "rules"]

Rule: TypeAlias = Callable[[Step, int], str | None]
"""Gives the gradient of one input of a node (its position is the second argument), or None where that is zero;
raises `NoRule` where it cannot say."""

BLIND = frozenset({"ConstantOfShape", "EyeLike", "RandomNormalLike", "RandomUniformLike", "Shape", "Size"})
"""Operations that do not look at the values of what they read."""

CODING = frozenset({"DynamicQuantizeLinear", "QuantizeLinear"})
"""Operations that turn floats into integers that stand for values, not for a choice; they have no rule."""

STEPWISE = frozenset({"Ceil", "Floor", "Hardmax", "Round", "Sign"})
"""Operations that compute floats in steps: their derivative is zero wherever there is one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A rule as registered.

    Attributes:
        gradient: The rule.
        every_output: Whether it understands gradients of all outputs; otherwise only that of the first.
    """

    gradient: Rule
    every_output: bool = False


_RULES: dict[tuple[str, str], Entry] = {}


def rule(*op_types: str, domain: str = "", every_output: bool = False) -> Callable[[Rule], Rule]:
    """Make a function the rule of some operations; one that they had before is replaced.

    Args:
        op_types: The operations.
        domain: Where they are defined; the standard operators by default.
        every_output: Whether the rule understands gradients of all outputs; otherwise only that of the first.
    """

    def register(function: Rule) -> Rule:
        for op_type in op_types:
            _RULES[domain, op_type] = Entry(function, every_output)
        return function

    return register


def find_rule(node: Any) -> Entry | None:
    """The rule for a node, if there is one."""
    domain = "" if node.domain in STANDARD_DOMAINS else node.domain
    return _RULES.get((domain, node.op_type))


def rules() -> tuple[str, ...]:
    """The standard operations that have rules."""
    return tuple(sorted(op_type for domain, op_type in _RULES if not domain))
