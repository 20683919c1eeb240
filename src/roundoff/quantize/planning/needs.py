"""What nodes of an operation must fulfil to have an integer version on a target, by name."""

from collections.abc import Callable
from dataclasses import dataclass

from roundoff.quantize.planning.view import GraphView, NodeView

__all__ = ["NEEDS", "missing_need"]


@dataclass(frozen=True, slots=True)
class _Need:
    """One condition.

    Attributes:
        holds: Whether a node fulfils it; what cannot be known counts as fulfilled.
        otherwise: What is wrong when it does not, as the end of "it stays in float because ...".
    """

    holds: Callable[[NodeView, GraphView], bool]
    otherwise: str


def _rank(*allowed: int) -> Callable[[NodeView, GraphView], bool]:
    def holds(node: NodeView, view: GraphView) -> bool:
        rank = view.rank(node.inputs[0])
        return rank is None or rank in allowed

    return holds


def _attribute(name: str, default: float, wanted: float) -> Callable[[NodeView, GraphView], bool]:
    return lambda node, _: bool(node.attribute(name, default) == wanted)


NEEDS = {
    "constant_weight": _Need(
        lambda node, view: len(node.inputs) > 1 and view.is_constant(node.inputs[1]), "its weight is not constant"
    ),
    "rank_4": _Need(_rank(4), "its input does not have 4 axes"),
    "rank_4_or_5": _Need(_rank(4, 5), "its input does not have 4 or 5 axes"),
    "not_transposed": _Need(_attribute("transA", 0, 0), "its input is transposed (transA)"),
    "alpha_1": _Need(_attribute("alpha", 1.0, 1.0), "its alpha is not 1"),
    "beta_1": _Need(_attribute("beta", 1.0, 1.0), "its beta is not 1"),
}
"""Conditions that target files can name."""


def missing_need(node: NodeView, view: GraphView, needs: tuple[str, ...]) -> str:
    """The first condition a node does not fulfil, as a reason to stay in float; empty when there is none."""
    return next((NEEDS[name].otherwise for name in needs if not NEEDS[name].holds(node, view)), "")
