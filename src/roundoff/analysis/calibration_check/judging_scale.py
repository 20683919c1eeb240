"""Findings on how samples were prepared, by what the model itself expects."""

from collections.abc import Iterator, Mapping, Sequence

from roundoff.analysis.calibration_check.expected import FAR, slip_by_labels, slip_by_statistics
from roundoff.analysis.calibration_check.inputs import TWICE
from roundoff.analysis.calibration_check.rescaling import Rescaling
from roundoff.analysis.calibration_check.slips import not_told_apart
from roundoff.core.calibration_check import CheckFinding, InputFacts
from roundoff.core.tensors import Array
from roundoff.graph.load import Model

__all__ = ["preparation_findings"]


def preparation_findings(
    model: Model,
    feeds: Sequence[Mapping[str, Array]],
    facts: Sequence[InputFacts],
    *,
    labels: Sequence[int] | None,
    threads: int | None,
) -> Iterator[CheckFinding]:
    """Whether samples were prepared as in training.

    Args:
        model: The float model as it was exported.
        feeds: A few samples.
        facts: What all of them are like.
        labels: The right classes of these few, if known.
        threads: Threads to use.
    """
    if not feeds:
        return
    slip = slip_by_statistics(model, feeds, threads=threads)
    if slip is not None:
        known = slip.how is not None and slip.usual
        away = f"the first batch normalization ({slip.node}) sees other values than in training"
        how = "" if slip.how is None else f": {slip.how.words}"
        looks = "" if slip.how is None or not slip.how.seen else _looks(slip.how)
        better = "" if slip.how is None else f" (deviation {slip.before:.2g}, then {slip.after:.2g})"
        yield CheckFinding(
            "scaling",
            "fault" if known or slip.before > FAR else "remark",
            f"samples are not prepared as in training: {looks}{away}, deviation {slip.before:.2g}",
            f"prepare samples as in training{how}{better}{_also(slip.how)}",
            weight=slip.before,
        )
    right = None if labels is None else slip_by_labels(model, feeds, labels, threads=threads)
    if right is not None and right.how is not None:
        yield CheckFinding(
            "scaling",
            "fault",
            f"the float model is right on {100 * right.before:.0f} % of {len(feeds)} samples, and on "
            f"{100 * right.after:.0f} % when they are prepared in another way"
            + (f": {_looks(right.how).rstrip('; ')}" if right.how.seen else ""),
            f"{right.how.words}{_also(right.how)}",
            weight=right.after,
        )
    for each in facts:
        if each.looks_like == TWICE:
            yield CheckFinding(
                "scaling",
                "fault",
                f"input {each.name!r} goes from {each.low:.3g} to {each.high:.3g}: it looks like {TWICE}",
                "divide pixels by 255 once",
                weight=10.0,
            )


def _also(how: Rescaling | None) -> str:
    """What a proof by statistics, or by classes, is too coarse to tell from the way that it found."""
    return not_told_apart(how.also) if how is not None else ""


def _looks(how: Rescaling) -> str:
    return f"data look like {how.seen}, expected {how.wanted}; "
