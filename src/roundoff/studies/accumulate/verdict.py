"""What curves say: whose quantization makes the error, where it begins, and where it jumps.

Everything is judged by signal to noise, whatever metric the curves are drawn in: it is comparable between nodes,
and what weights and activations do alone adds up to about what they do together.
"""

import math
from collections.abc import Mapping, Sequence

from roundoff.core.tensors import Topology
from roundoff.studies.accumulate.result import (
    AccumulationVerdict,
    CurveNode,
    Dominance,
    Jump,
    MeasuredCurve,
    Split,
)

__all__ = ["FALL_DB", "judge"]

FALL_DB = 20.0
"""The base line has fallen where the error is a tenth of the signal; a cosine of about 0.995."""

# One side dominates that makes four fifths of the error, 6 dB, unless the other alone spoils the outputs as well:
# an error of a third of the signal does, and errors do not grow much beyond the signal itself.
_DOMINATES_DB, _SPOILT_DB = 6.0, 10.0
# Above this nothing is lost that anyone could find.
_NOTHING_LOST_DB = 60.0
# A jump is an error four times what comes in; errors that were below this level before do not count as less.
_JUMP_DB, _USUAL_DB = 6.0, 40.0
# Places near the outputs: a tenth of them all, but not fewer than three.
_NEAR_SHARE, _LEAST_NEAR = 0.1, 3
# Weights and activations together lose so much more than the sum of both alone: their errors meet somewhere.
_TOGETHER_DB = 6.0
_MOST_JUMPS = 5
# Stands for the absence of any error where a finite number is needed.
_PERFECT_DB = 200.0


def judge(
    nodes: Sequence[CurveNode],
    curves: Sequence[MeasuredCurve],
    network: Topology,
    kinds: tuple[MeasuredCurve, MeasuredCurve] | None,
) -> AccumulationVerdict:
    """Judge curves.

    Args:
        nodes: The places.
        curves: All curves, the base line first.
        network: How nodes hang together.
        kinds: The curves of weights alone and of activations alone; None when they were not both measured.
    """
    base = curves[0].sqnr_db
    outputs = [node for node in nodes if node.output and base[node.order] is not None]
    worst = min(outputs, key=lambda node: _level(base[node.order]), default=None)
    near = _near(nodes, base)
    at_output = None if kinds is None or worst is None else _split(curves[0], kinds, [worst.order])
    near_output = None if kinds is None or not near else _split(curves[0], kinds, near)
    falls_at = next((node.order for node in nodes if _level(base[node.order]) < FALL_DB), None)
    exact = kinds is not None and all(_level(value) == math.inf for value in kinds[0].sqnr_db)
    return AccumulationVerdict(
        dominance=None if exact and _lost(at_output) else _dominance(at_output, near_output),
        exact_weights=exact,
        output="" if worst is None else worst.tensor,
        at_output=at_output,
        near_output=near_output,
        near_places=len(near),
        together=at_output is not None and _is_more_than_sum(at_output),
        falls_at=falls_at,
        fall_db=FALL_DB,
        recovers=falls_at is not None and all(_level(base[node.order]) >= FALL_DB for node in outputs),
        jumps=_jumps(nodes, base, network),
    )


def _level(value: float | None) -> float:
    return math.inf if value is None else value


def _near(nodes: Sequence[CurveNode], base: Sequence[float | None]) -> list[int]:
    """The last places that are no outputs; the outputs themselves when there are no others."""
    measured = [node.order for node in nodes if base[node.order] is not None and not node.output]
    measured = measured or [node.order for node in nodes if base[node.order] is not None]
    return measured[-max(_LEAST_NEAR, round(_NEAR_SHARE * len(nodes))) :]


def _split(base: MeasuredCurve, kinds: tuple[MeasuredCurve, MeasuredCurve], places: Sequence[int]) -> Split:
    levels = [_median([_level(curve.sqnr_db[at]) for at in places]) for curve in (*kinds, base)]
    return Split(*levels)


def _median(values: Sequence[float]) -> float:
    """The middle value, of two the lower: a mean with infinity would be infinity."""
    return sorted(values)[(len(values) - 1) // 2]


def _dominance(at_output: Split | None, near_output: Split | None) -> Dominance | None:
    if at_output is None:
        return None
    if not _lost(at_output):
        return "neither"
    at, near = _leads(at_output), _leads(near_output or at_output)
    # Where the places before the outputs say the opposite, neither of both can be called the culprit.
    contradiction = abs(near) >= _DOMINATES_DB and (near > 0) != (at > 0)
    spoilt = max(at_output.weights, at_output.activations) < _SPOILT_DB
    if abs(at) < _DOMINATES_DB or contradiction or spoilt:
        return "both"
    return "weights" if at > 0 else "activations"


def _lost(split: Split | None) -> bool:
    """Whether anything is lost at all."""
    return split is not None and split.everything < _NOTHING_LOST_DB


def _leads(split: Split) -> float:
    """By how many decibels weights lose more than activations do."""
    weights, activations = (min(value, _PERFECT_DB) for value in (split.weights, split.activations))
    return 0.0 if weights == activations else activations - weights


def _is_more_than_sum(split: Split) -> bool:
    alone = sum(_noise(value) for value in (split.weights, split.activations))
    return _lost(split) and _noise(split.everything) > alone * 10 ** (_TOGETHER_DB / 10)


def _noise(level: float) -> float:
    return 10 ** (-min(level, _PERFECT_DB) / 10) if level > -math.inf else math.inf


def _jumps(nodes: Sequence[CurveNode], base: Sequence[float | None], network: Topology) -> tuple[Jump, ...]:
    known = {node.tensor: _level(base[node.order]) for node in nodes if base[node.order] is not None}
    before = _levels_before(network, known)
    found = []
    for node in nodes:
        if node.tensor not in known:
            continue
        level, earlier = known[node.tensor], before.get(node.tensor)
        if level <= min(_USUAL_DB, _level(earlier)) - _JUMP_DB and level < FALL_DB + _JUMP_DB:
            found.append(Jump(node.order, earlier, level))
    found.sort(key=lambda jump: jump.after_db - min(_USUAL_DB, _level(jump.before_db)))
    return tuple(found[:_MOST_JUMPS])


def _levels_before(network: Topology, known: Mapping[str, float]) -> dict[str, float | None]:
    """The worst level among the places that each tensor is computed from, looking through nodes that are none."""
    passed: dict[str, float] = {}
    found: dict[str, float | None] = {}
    for node in network.nodes:
        levels = [passed[name] for name in node.inputs if name in passed]
        worst = min(levels, default=None)
        for tensor in node.outputs:
            found[tensor] = worst
            if tensor in known:
                passed[tensor] = known[tensor]
            elif worst is not None:
                passed[tensor] = worst
    return found
