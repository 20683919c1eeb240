"""From moments to scores, with one policy for values that are not numbers, zero or absent."""

from roundoff.core.moments import PairMoments
from roundoff.core.scores import Status, TensorScore
from roundoff.metrics.registry import all_metrics

__all__ = ["score", "status_of"]


def score(moments: PairMoments) -> TensorScore:
    """All metrics of one pair.

    Non-finite elements are left out and counted; both sides zero, or an empty tensor, is perfect; one side zero is
    the worst a metric can say. The status tells when one of these applies.
    """
    status, detail = status_of(moments)
    if moments.count == 0 and moments.excluded:
        return TensorScore(status, {}, detail)
    if moments.count == 0:
        perfect = {m.name: m.perfect for m in all_metrics() if m.perfect is not None}
        return TensorScore(status, perfect, detail)
    return TensorScore(status, {m.name: m.compute(moments) for m in all_metrics()}, detail)


def status_of(moments: PairMoments) -> tuple[Status, str]:
    """The status of a pair, and in words what was left out or is not there."""
    if moments.excluded:
        total = moments.count + moments.excluded
        sides = f"{moments.reference.nonfinite} in the reference, {moments.candidate.nonfinite} in the candidate"
        return "nonfinite", f"{moments.excluded} of {total} elements are NaN or infinite ({sides})"
    if moments.count == 0:
        return "degenerate", "the tensor is empty"
    zero = (moments.reference.is_zero, moments.candidate.is_zero)
    if all(zero):
        return "degenerate", "both sides are all zero"
    if any(zero):
        return "degenerate", f"the {'reference' if zero[0] else 'candidate'} is all zero"
    return "ok", ""
