"""From measured sensitivities to a report: what stands out, what cannot be told apart."""

import math
from collections.abc import Sequence

import numpy as np

from roundoff.core.names import shown
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.measure.metrics import Metric, get_metric
from roundoff.studies.sensitivity.result import (
    KindVerdict,
    RankedSubject,
    Sensitivity,
    SensitivityReport,
    SensitivityRow,
    SubjectKind,
)

__all__ = ["report_sensitivity"]

# At most so many can stand out, and never more than half of all.
_MOST_STANDING_OUT = 10
# The last one that stands out does at least this many times the harm of the next; 3 dB.
_CLEAR = 2.0


def report_sensitivity(found: Sensitivity, quantized: QuantizedModel) -> SensitivityReport:
    """Rankings in plain numbers, with a verdict for each.

    Args:
        found: What was measured.
        quantized: On what.
    """
    metric = get_metric(found.metrics[0])
    rankings: dict[SubjectKind, tuple[SensitivityRow, ...]] = {
        kind: tuple(_row(row, found, metric) for row in rows) for kind, rows in found.rankings.items()
    }
    base = None if found.quantized is None else dict(found.quantized.scores)
    harm_of_all = None if base is None or found.mode == "alone" else _distance(base[metric.name], metric)
    return SensitivityReport(
        reference=shown(quantized.float_model.path),
        mode=found.mode,
        metrics=found.metrics,
        outputs=found.outputs,
        samples=found.samples,
        rankings=rankings,
        verdicts=tuple(judge(kind, rows, metric, harm_of_all) for kind, rows in rankings.items()),
        quantized=base,
        unreached=tuple(subject.name for subject in found.unreached),
        complete=found.complete,
        effort=found.effort,
        notes=(*quantized.notes, *found.notes),
        preparation=quantized.preparation,
    )


def _row(row: RankedSubject, found: Sensitivity, metric: Metric) -> SensitivityRow:
    score, subject = row.score, row.score.subject
    values = score.values[:, :, 0]
    return SensitivityRow(
        rank=row.rank,
        name=subject.name,
        node=subject.node,
        op_type=subject.op_type,
        tensor=subject.tensor,
        quantizers=subject.quantizers,
        scores=dict(score.scores),
        intervals=dict(score.interval),
        per_output=dict(score.per_output),
        samples=len(score.samples),
        per_sample=tuple(tuple(line) for line in values.tolist()),
        worst_sample=_worst_sample(values, [found.samples[index] for index in score.samples], metric),
        differs_from_next=row.differs_from_next,
        means=dict(score.mean),
    )


def _worst_sample(values: np.ndarray, names: Sequence[str], metric: Metric) -> str:
    known = np.where(np.isnan(values), np.inf if metric.direction == "higher" else -np.inf, values)
    if not names or np.isnan(values).all():
        return ""
    worst = known.min(axis=1).argmin() if metric.direction == "higher" else known.max(axis=1).argmax()
    return names[int(worst)]


def judge(
    kind: SubjectKind, rows: Sequence[SensitivityRow], metric: Metric, harm_of_all: float | None
) -> KindVerdict:
    """Say whether a few stand out.

    Those stand out whose harm is at least twice that of the next one, which chance does not explain; of several
    such steps the largest counts. Harm is the energy of the error for signal to noise, else the distance from a
    perfect score; where subjects were left out, by how much that made it smaller.
    """
    if rows and all(math.isnan(row.scores[metric.name]) for row in rows):
        return KindVerdict(kind, "no_score", len(rows), (), None, None)
    harms = [_distance(row.scores[metric.name], metric) for row in rows]
    if harm_of_all is not None:
        harms = [max(0.0, harm_of_all - harm) for harm in harms]
    total = sum(harm for harm in harms if math.isfinite(harm))
    if not any(harms):
        return KindVerdict(kind, "nothing_lost", len(rows), (), None, None)
    count = _standing_out(rows, harms)
    if count:
        return KindVerdict(kind, "stand_out", len(rows), *_named(rows, harms, count, total))
    tied = 1
    while tied < len(rows) and rows[tied - 1].told_apart is False:
        tied += 1
    if tied > 1:
        return KindVerdict(kind, "tied", len(rows), *_named(rows, harms, tied, total))
    return KindVerdict(kind, "spread", len(rows), (), None, rows[0].told_apart if rows else None)


def _named(
    rows: Sequence[SensitivityRow], harms: Sequence[float], count: int, total: float
) -> tuple[tuple[str, ...], float | None, bool | None]:
    share = sum(harms[:count]) / total if total > 0 and all(map(math.isfinite, harms[:count])) else None
    last = rows[count - 1].told_apart if count < len(rows) else None
    return tuple(row.name for row in rows[:count]), share, last


def _standing_out(rows: Sequence[SensitivityRow], harms: Sequence[float]) -> int:
    steps = {}
    for count in range(1, min(_MOST_STANDING_OUT, len(rows) // 2) + 1):
        before, after = harms[count - 1], harms[count]
        if before > 0 and rows[count - 1].told_apart is not False:
            steps[count] = before / after if after > 0 else math.inf
    best = max(steps, key=lambda count: steps[count], default=0)
    return best if best and steps[best] >= _CLEAR else 0


def _distance(value: float, metric: Metric) -> float:
    """How far a score is from perfect; 0 where there is no score."""
    if math.isnan(value):
        return 0.0
    if metric.unit == "dB":
        return math.inf if value == -math.inf else 10.0 ** (-value / 10)
    return abs(value - (metric.perfect or 0.0))
