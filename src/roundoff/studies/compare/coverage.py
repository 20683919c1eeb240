"""Which outputs of a network a comparison or a diagnosis has judged."""

import math
from collections.abc import Collection, Mapping, Sequence

from roundoff.align.pairing import Pairing
from roundoff.core.coverage import OutputCoverage, Unjudged, WhyUnjudged
from roundoff.core.tensors import TensorInfo, TensorSource, Topology
from roundoff.measure.metrics import Status
from roundoff.studies.compare.culprits import stand_ins
from roundoff.studies.compare.result import TensorComparison

__all__ = ["absent", "output_coverage"]

_WHY: dict[Status, WhyUnjudged] = {
    "nonfinite": "nonfinite",
    "shape": "shape",
    "missing": "unreadable",
    "unreadable": "unreadable",
}


def output_coverage(
    rows: Sequence[TensorComparison],
    sources: tuple[TensorSource, TensorSource],
    pairing: Pairing,
    topology: Topology | None,
) -> OutputCoverage:
    """Which outputs were judged.

    Without the network the last tensor of a reference that is in order is its output; in one that is not in order
    any tensor may be one.

    Args:
        rows: What was compared.
        sources: The reference and the candidate.
        pairing: Which tensor is which.
        topology: The reference network; None when it is unknown.
    """
    by_name = {row.reference: row for row in rows}
    ours = {info.name: info for info in sources[0].tensors}
    spare = [info for info in sources[1].tensors if info.name in set(pairing.unmatched_candidate)]
    known = topology is not None or sources[0].ordered
    if topology is not None:
        seen: Mapping[str, str | None] = stand_ins(topology, by_name)
    else:
        names = list(ours)[-1:] if known else list(ours)
        seen = {name: name if name in by_name else None for name in names}
    judged, not_judged = [], []
    for name, stand_in in seen.items():
        why = absent(name, ours.get(name), spare) if stand_in is None else _unjudged(name, by_name[stand_in])
        if why is None:
            judged.append(name)
        else:
            not_judged.append(why)
    return OutputCoverage(tuple(judged), tuple(not_judged), known)


def absent(name: str, info: TensorInfo | None, spare: Collection[TensorInfo]) -> Unjudged:
    """Why a tensor has no partner: there is none, or none of those without a partner is certain to be it.

    Args:
        name: The tensor.
        info: What is known of it.
        spare: Tensors of the other side without a partner.
    """
    sizes = {each.size for each in spare}
    could_be = bool(sizes) if info is None else info.size in sizes
    return Unjudged(name, "unmatched" if could_be else "missing")


def _unjudged(name: str, row: TensorComparison) -> Unjudged | None:
    """Why the scores of an output say nothing; None when they do."""
    scored = row.score
    if scored.status in _WHY:
        return Unjudged(name, _WHY[scored.status], scored.detail)
    if not scored.values or any(math.isnan(value) for value in scored.values.values()):
        return Unjudged(name, "nonfinite", scored.detail)
    return None
