"""Remedies tried from cheapest to dearest: what helps is kept."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self, TypeVar

from roundoff.core.findings import COSTS, Change, CostClass, Finding, Measure, Repair, RepairStep
from roundoff.errors import reason
from roundoff.graph.quantized_model import QuantizedModel

__all__ = ["Attempt", "Judged", "Workpiece", "attempts", "repair"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One change to try.

    Attributes:
        finding: Number of the finding it is for.
        title: What it is, in words.
        cost: What it costs on the chip.
        changes: The same as data.
    """

    finding: int
    title: str
    cost: CostClass
    changes: tuple[Change, ...]


class Workpiece(Protocol):
    """A quantized network that can be changed."""

    def changed(self, changes: Sequence[Change]) -> Self | None:
        """The same with changes; None where they cannot be made in it."""
        ...

    def quantized(self) -> QuantizedModel:
        """The network."""
        ...


PieceT = TypeVar("PieceT", bound=Workpiece)

Judged = Callable[[QuantizedModel], float]
"""Scores a network, higher being better."""

_BITS_COST: CostClass = "16 bit"
_TITLES = {
    "bits": "16 bits for {}",
    "float": "float for {}",
    "transform": "{step} before it",
    "variation": "a scale per channel for all weights",
    "per_channel": "a scale per channel for the weight of {}",
}


def attempts(findings: Sequence[Finding]) -> list[Attempt]:
    """All changes that proven findings ask for, cheapest first; one after the other where a remedy has several."""
    found = [each for finding in findings if finding.proven for each in _of(finding)]
    return sorted(found, key=lambda each: COSTS.index(each.cost))


def _of(finding: Finding) -> Iterator[Attempt]:
    remedy = finding.remedy
    if remedy is None:
        return
    name = finding.tensors[0] if finding.tensors else finding.nodes[0] if finding.nodes else "all"
    for change in remedy.changes:
        if change.kind in ("search", "report", "per_slice", "accumulator", "input"):
            continue
        cost: CostClass = _BITS_COST if change.kind == "bits" and change.value.endswith("16") else remedy.cost
        cost = "float" if change.kind == "float" else cost
        step = "" if change.step is None else change.step.name
        others = len(change.tensors) - 1
        where = f"{name!r} and {others} more" if others > 0 else repr(name)
        title = _TITLES.get(change.kind, remedy.title).format(where, step=step)
        yield Attempt(finding.number, title, cost, (change,))


def repair(
    piece: PieceT,
    findings: Sequence[Finding],
    judged: Judged,
    *,
    measure: Measure,
    goal: float,
    out_of_time: Callable[[], bool],
) -> tuple[PieceT, Repair]:
    """Try remedies and keep what helps; one that fails is listed with its reason, and the next is tried.

    Args:
        piece: The network as it was given.
        findings: With their remedies.
        judged: Scores a network, higher being better.
        measure: What is scored: its name, unit and direction.
        goal: A score that is good enough, so that nothing dearer is tried.
        out_of_time: Whether to stop trying.

    Returns:
        The repaired network, and what was tried.
    """
    first = best = judged(piece.quantized())
    sign = 1 if measure.higher_is_better else -1
    steps: list[RepairStep] = []
    for attempt in attempts(findings):
        told = replace(measure, before=sign * best, after=sign * best)
        step = RepairStep(attempt.title, attempt.cost, attempt.finding, told, kept=False)
        if best >= goal:
            break
        if out_of_time():
            steps.append(replace(step, why="no time was left"))
            continue
        try:
            changed = piece.changed(attempt.changes)
            if changed is None:
                steps.append(replace(step, why="not possible here"))
                continue
            score = judged(changed.quantized())
        except Exception as error:  # noqa: BLE001 - whatever it is, the next remedy may do
            steps.append(replace(step, why=f"failed: {reason(error)}"))
            continue
        told = replace(told, after=sign * score)
        if score > best:
            piece, best = changed, score
            steps.append(replace(step, measure=told, kept=True))
        else:
            steps.append(replace(step, measure=told, why="no better"))
    told = replace(measure, before=sign * first, after=sign * best)
    return piece, Repair(tuple(steps), (told,), reached=best >= goal)
