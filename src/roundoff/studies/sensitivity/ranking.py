"""From the sums of single samples to scores, intervals and ranks."""

import math
from collections.abc import Collection, Sequence

import numpy as np

from roundoff.core.tensors import Array
from roundoff.measure.inference import mean_interval, paired_probability
from roundoff.measure.metrics import Metric, get_metric
from roundoff.measure.rows import mean_of_scores, merged_rows, sample_scores
from roundoff.studies.sensitivity.result import Mode, RankedSubject, Subject, SubjectScore

__all__ = ["leading", "means", "pooled_sqnr_db", "rank", "sample_values", "summarize", "worst_first"]

# Two of the first samples' ranks count as exchangeable unless a difference like theirs is rarer than this.
_DOUBT = 0.05


def summarize(subject: Subject, samples: Sequence[int], sums: Array, metrics: Sequence[Metric]) -> SubjectScore:
    """Scores and intervals of what was measured.

    Args:
        subject: What was switched.
        samples: Indices of the samples.
        sums: Of shape (samples, outputs, numbers); see `roundoff.measure.rows`.
        metrics: The metrics.
    """
    names = [metric.name for metric in metrics]
    values = sample_scores(sums, metrics)
    # Two figures: all samples as one tensor, which is what every command calls by the metric's name, and the mean
    # of samples scored alone, which alone has an interval.
    mean_by_output, by_sample = (means(values, metrics, axis=axis) for axis in (0, 1))
    by_output = mean_by_output.copy()
    for place, metric in enumerate(metrics):
        if not metric.per_sample:
            by_output[:, place] = [_pooled(sums[:, output], metric) for output in range(sums.shape[1])]
    taken = _kept(by_sample, metrics, axis=0)
    scores, mean = (means(each, metrics, axis=0).tolist() for each in (by_output, mean_by_output))
    return SubjectScore(
        subject,
        tuple(samples),
        sums,
        values,
        scores=dict(zip(names, scores, strict=True)),
        mean=dict(zip(names, mean, strict=True)),
        interval={name: mean_interval(by_sample[taken[:, place], place]) for place, name in enumerate(names)},
        per_output={name: tuple(by_output[:, place].tolist()) for place, name in enumerate(names)},
    )


def _pooled(table: Array, metric: Metric) -> float:
    """A metric of all samples as one tensor; NaN where there is none."""
    sums = merged_rows(table)
    return math.nan if sums is None else metric.value(sums)


def pooled_sqnr_db(score: SubjectScore) -> float:
    """SQNR of all samples together, mean over outputs, whatever was asked for."""
    metric = get_metric("sqnr_db")
    by_output = [_pooled(score.sums[:, output], metric) for output in range(score.sums.shape[1])]
    found = mean_of_scores(by_output, metric.perfect)
    return math.nan if found is None else found


def sample_values(score: SubjectScore, metric: Metric, place: int) -> Array:
    """A metric's value in each sample, mean over outputs."""
    return means(score.values[:, :, place : place + 1], [metric], axis=1)[:, 0]


def rank(
    scores: Sequence[SubjectScore], metrics: Sequence[Metric], *, mode: Mode, leaders: Collection[Subject] = ()
) -> tuple[RankedSubject, ...]:
    """Order by the first metric, what hurts most first.

    Those measured on all samples because they led on the first ones stay ahead of the rest: scores of different
    samples are not compared. Equal ones keep their order.
    """
    metric = metrics[0]
    ahead = frozenset(leaders)
    ordered = sorted(worst_first(scores, metric, mode=mode), key=lambda score: score.subject not in ahead)
    rows = []
    for place, score in enumerate(ordered):
        following = ordered[place + 1] if place + 1 < len(ordered) else None
        chance = None if following is None else _chance(score, following, metric)
        rows.append(RankedSubject(place + 1, score, chance))
    return tuple(rows)


def worst_first(scores: Sequence[SubjectScore], metric: Metric, *, mode: Mode) -> list[SubjectScore]:
    """In the order of a metric, what hurts most first; equal ones keep their order."""
    return sorted(scores, key=lambda score: _harm(score, metric, mode))


def leading(
    scores: Sequence[SubjectScore], metrics: Sequence[Metric], *, mode: Mode, top: int
) -> tuple[Subject, ...]:
    """The first so many, and as many again at most of those that cannot be told apart from the last of them."""
    ordered = worst_first(scores, metrics[0], mode=mode)
    if len(ordered) <= top:
        return tuple(score.subject for score in ordered)
    last = ordered[top - 1]
    doubtful = [score for score in ordered[top : 2 * top] if (_chance(last, score, metrics[0]) or 0.0) >= _DOUBT]
    return tuple(score.subject for score in (*ordered[:top], *doubtful))


def _harm(score: SubjectScore, metric: Metric, mode: Mode) -> tuple[bool, float]:
    """Sorts what hurts most first; what has no score last."""
    value = score.scores[metric.name]
    # Alone, the one with the worst outputs hurts most; left out, the one without which they are best.
    worst_is_low = (metric.direction == "higher") == (mode == "alone")
    return math.isnan(value), value if worst_is_low else -value


def _chance(left: SubjectScore, right: SubjectScore, metric: Metric) -> float | None:
    """The probability of such a difference by chance, over the samples both were measured on."""
    shared = sorted(set(left.samples) & set(right.samples))
    sides = []
    for score in (left, right):
        rows = {sample: row for row, sample in enumerate(score.samples)}
        sides.append(sample_values(score, metric, 0)[[rows[sample] for sample in shared]])
    return paired_probability(sides[0], sides[1])


def _kept(values: Array, metrics: Sequence[Metric], *, axis: int) -> Array:
    """What a mean along an axis takes in: all but NaN, and infinite values that are perfect only when all are.

    Args:
        values: Its last axis is that of the metrics.
        metrics: The metrics.
        axis: Along which axis.
    """
    known = ~np.isnan(values)
    perfect = np.array([math.nan if metric.perfect is None else metric.perfect for metric in metrics])
    imperfect = known & ~(np.isinf(perfect) & (values == perfect))
    return np.where(imperfect.any(axis=axis, keepdims=True), imperfect, known)


def means(values: Array, metrics: Sequence[Metric], *, axis: int) -> Array:
    """Means along an axis, as scores are averaged; NaN where there is nothing to take in."""
    kept = _kept(values, metrics, axis=axis)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(kept, values, 0.0).sum(axis=axis) / kept.sum(axis=axis))
