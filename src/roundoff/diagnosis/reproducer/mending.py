"""What would be right in the place of blamed quantizers: the remedy of a finding, or the best that is known."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from roundoff.core.findings import Change, Finding
from roundoff.diagnosis.case import Case, Fixes
from roundoff.diagnosis.edits import edit
from roundoff.diagnosis.ideal import options
from roundoff.diagnosis.registry import ENOUGH
from roundoff.diagnosis.suspects import Suspect

__all__ = ["Blame", "blame"]

_WIDE_DTYPE = "s16"


@dataclass(frozen=True, slots=True, eq=False)
class Blame:
    """Quantizers to blame, and what would be right instead.

    Attributes:
        quantizers: Their names.
        fixes: Quantizers in their place; None for float.
        what: The same in words.
    """

    quantizers: frozenset[str]
    fixes: Fixes
    what: str


def blame(case: Case, finding: Finding) -> Blame | None:
    """The quantizers of a finding, with the first mending that takes away most of what float would.

    Args:
        case: The network.
        finding: The finding; its tensors say which quantizers, or without any its nodes.

    Returns:
        None where no quantizer belongs to it.
    """
    suspects = _suspects(case, finding)
    names = frozenset(name for each in suspects for name in each.quantizers)
    if not names:
        return None
    in_float: Fixes = dict.fromkeys(names)
    before, best = case.loss().value, case.loss(in_float).value
    for what, fixes in _candidates(case, finding, suspects):
        kept = {name: each for name, each in fixes.items() if name in names}
        if kept and before - case.loss(kept).value >= ENOUGH * (before - best):
            return Blame(names, kept, what)
    return Blame(names, in_float, "in float")


def _suspects(case: Case, finding: Finding) -> list[Suspect]:
    tensors, nodes = set(finding.tensors), set(finding.nodes)
    found = [each for each in case.facts.suspects if tensors & set(each.tensors)]
    return found or [each for each in case.facts.suspects if each.node in nodes]


def _candidates(case: Case, finding: Finding, suspects: Sequence[Suspect]) -> Iterator[tuple[str, Fixes]]:
    remedy = finding.remedy
    for change in () if remedy is None else remedy.changes:
        fixes = edit(case, change)
        if any(each is not None for each in fixes.values()):
            yield ("with the remedy in place", fixes)
    best: dict[str, Fixes] = {}
    for suspect in suspects:
        better = min(options(case.facts, suspect)[1], key=lambda each: each.loss, default=None)
        if better is not None:
            best[suspect.name] = better.fixes
    if best:
        yield (
            "with the same bits at their best",
            {name: each for fixes in best.values() for name, each in fixes.items()},
        )
    tensors = tuple(tensor for each in suspects for tensor in each.tensors)
    yield "with 16 bits", edit(case, Change("bits", tensors=tensors, value=_WIDE_DTYPE))
