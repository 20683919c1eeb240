"""What a difference looks like: each kind is tested by undoing it and seeing whether the error goes away."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.measure.metrics import linear_fit, sqnr_db
from roundoff.measure.pairs import PairSums, channel_axis_of, measure_pair
from roundoff.messages.message import Message, message
from roundoff.messages.numbers import share_text
from roundoff.studies.compare.result import DifferenceKind, TensorComparison

# A kind explains a difference when undoing it removes at least this share of the error's energy.
_EXPLAINS = 0.9
# "Few" outliers: at most this share of the elements.
_FEW = 1e-3
# Smaller tensors have no "few" elements, and no order to speak of.
_FEWEST = 16
# Elements are in another order when ... the error is at least this part of the spread of the values,
_OUT_OF_PLACE = 0.2
# sorted, this part of it is left at most,
_SORTED_AGREE = 2e-3
# and this part of what sorting leaves of noise of the same size,
_BETTER_THAN_NOISE = 0.01
# and elements that have more of it than this part of the mean
_MOVED = 0.01
# are correlated no more than this;
_UNRELATED = 0.3
# or when, sorted, next to nothing is left.
_SORTED_EQUAL = 1e-5
# The second look at larger tensors is at their first elements: it sorts, and must stay small in memory.
_MOST_ELEMENTS = 1 << 20


@dataclass(frozen=True, slots=True)
class Difference:
    """A kind of difference and what was seen, in words."""

    kind: DifferenceKind
    text: Message


def describe_from_moments(moments: PairSums) -> Difference:
    """What can be said without looking at the values again."""
    for test in (_nonfinite, _zeroed, _linear, _concentrated, _channel):
        found = test(moments)
        if found is not None:
            return found
    return Difference("noise", message("compare.is_noise" if sqnr_db(moments) >= 0 else "compare.is_loud_noise"))


def describe(moments: PairSums, reference: Array, candidate: Array) -> Difference:
    """What a difference looks like, with a second look at the values.

    Args:
        moments: Of the whole pair, all samples.
        reference: Values of one sample.
        candidate: Values of the same sample, in the reference's layout.
    """
    coarse = describe_from_moments(moments)
    if coarse.kind not in ("one channel", "noise"):
        return coarse
    x, y = (np.asarray(side).flat[:_MOST_ELEMENTS].astype(np.float64) for side in (reference, candidate))
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    energy = np.square(x - y)
    if energy.sum() == 0:
        return coarse
    tests: tuple[Callable[[Array, Array, Array], Difference | None], ...] = (_saturation, _outliers, _permutation)
    for test in tests:
        found = test(x, y, energy)
        if found is not None:
            return found
    return _channel_line(moments, reference, candidate, coarse) if coarse.kind == "one channel" else coarse


def describe_codes(moments: PairSums) -> Difference | None:
    """Integer codes in place of the values they stand for: related by a scale and a zero point, but not alike."""
    if moments.count < _FEWEST or moments.error_energy == 0:
        return None
    slope, offset = linear_fit(moments)
    n, side = moments.count, moments.candidate
    variance = side.energy / n - (side.total / n) ** 2
    explained = slope * slope * (moments.reference.energy / n - (moments.reference.total / n) ** 2)
    if slope == 0 or variance <= 0 or explained < _EXPLAINS * variance:
        return None
    return Difference("codes", message("compare.is_codes", scale=f"{1 / slope:.2g}", zero=f"{offset:.0f}"))


def _nonfinite(moments: PairSums) -> Difference | None:
    only_candidate = moments.excluded - moments.reference.nonfinite
    only_reference = moments.excluded - moments.candidate.nonfinite
    if only_candidate:
        total = moments.count + moments.excluded
        text = message("compare.nonfinite_candidate", count=only_candidate, all=total)
        return Difference("nonfinite", text)
    if only_reference:
        return Difference("nonfinite", message("compare.nonfinite_reference", count=only_reference))
    return None


def _zeroed(moments: PairSums) -> Difference | None:
    if moments.candidate.is_zero and not moments.reference.is_zero:
        return Difference("zeroed", message("compare.all_zero"))
    return None


def _linear(moments: PairSums) -> Difference | None:
    """The simplest of offset, gain, and both that explains the difference."""
    n, error = moments.count, moments.error_energy
    if n < 2 or error == 0:
        return None
    shift = (moments.candidate.total - moments.reference.total) / n
    if n * shift * shift >= _EXPLAINS * error:
        return Difference("offset", message("compare.is_offset", offset=f"{shift:+.4g}"))
    if moments.reference.energy > 0:
        gain = moments.product / moments.reference.energy
        # Least squares through the origin removes (gain - 1)^2 |x|^2 of the error.
        if (gain - 1) ** 2 * moments.reference.energy >= _EXPLAINS * error and gain != 0:
            return Difference("gain", message("compare.is_gain", gain=f"{gain:.4g}"))
    slope, offset = linear_fit(moments)
    residual = (
        moments.candidate.energy
        + slope * slope * moments.reference.energy
        + n * offset * offset
        - 2 * slope * moments.product
        - 2 * offset * moments.candidate.total
        + 2 * slope * offset * moments.reference.total
    )
    # A line through almost unrelated values also removes error; a slope near zero means it explains nothing.
    related = slope * slope * moments.reference.energy > 0.5 * moments.candidate.energy
    if residual <= (1 - _EXPLAINS) * error and related:
        text = message("compare.gain_and_offset", gain=f"{slope:.4g}", offset=f"{offset:+.4g}")
        return Difference("gain and offset", text)
    return None


def _concentrated(moments: PairSums) -> Difference | None:
    """Few elements carry the error: as many, at most, as would give these sums if all were equally wrong."""
    if moments.error_energy == 0 or moments.count < _FEWEST:
        return None
    carriers = moments.abs_error**2 / moments.error_energy
    if carriers <= max(1.5, _FEW * moments.count):
        text = message("compare.about_few", count=round(carriers), all=moments.count)
        return Difference("few outliers", text)
    return None


def _channel(moments: PairSums) -> Difference | None:
    channels = moments.channels
    if channels is None or channels.error.size < 3:
        return None
    total = float(channels.error.sum())
    if total == 0:
        return None
    index = int(np.argmax(channels.error))
    share = float(channels.error[index]) / total
    if share >= _EXPLAINS:
        return Difference("one channel", message("compare.one_channel", channel=index, share=share_text(share, 0)))
    return None


def _channel_line(moments: PairSums, reference: Array, candidate: Array, coarse: Difference) -> Difference:
    """What one channel that carries the error is, where a gain or an offset explains it."""
    channels, axis = moments.channels, channel_axis_of(reference.shape)
    if channels is None or axis is None or reference.shape[axis] != channels.error.size:
        return coarse
    index = int(np.argmax(channels.error))
    x, y = (np.take(side, index, axis=axis) for side in (reference, candidate))
    line = _linear(measure_pair(x, y, channel_axis=None))
    if line is None:
        return coarse
    share = dict(coarse.text.arguments)["share"]
    text = message("compare.one_channel_line", channel=index, share=share, what=line.text)
    return Difference("one channel", text)


def _saturation(x: Array, y: Array, energy: Array) -> Difference | None:
    """The candidate stops at a value that the reference goes beyond."""
    low, high = y.min(), y.max()
    clipped = ((y == high) & (x > high)) | ((y == low) & (x < low))
    if np.count_nonzero(clipped) > 1 and energy[clipped].sum() >= _EXPLAINS * energy.sum():
        share = np.count_nonzero(clipped) / x.size
        text = message("compare.cut_off", share=share_text(share), low=f"{low:.4g}", high=f"{high:.4g}")
        return Difference("saturation", text)
    return None


def _outliers(x: Array, _y: Array, energy: Array) -> Difference | None:
    if x.size < _FEWEST:
        return None
    few = max(1, int(x.size * _FEW))
    largest = np.partition(energy, x.size - few)[-few:]
    if largest.sum() >= _EXPLAINS * energy.sum():
        count = int(np.searchsorted(np.cumsum(np.sort(largest)[::-1]), _EXPLAINS * energy.sum())) + 1
        return Difference("few outliers", message("compare.few", count=count, all=x.size))
    return None


def _permutation(x: Array, y: Array, energy: Array) -> Difference | None:
    """The same values in another order; as far as values can tell, or another tensor of the same distribution."""
    if x.size < _FEWEST or energy.sum() < _OUT_OF_PLACE * np.square(x - x.mean()).sum():
        return None
    ordered = np.sort(x)
    rest = np.square(ordered - np.sort(y)).sum()
    if rest > _SORTED_AGREE * energy.sum():
        return None
    # Elements in their place agree, and those out of place are unrelated: noise is on all of them, and leaves a
    # part of each as it was. What agrees better than codes of 8 bits can needs no such proof.
    moved = energy > _MOVED * energy.mean()
    if rest > _SORTED_EQUAL * energy.sum() and _correlation(x[moved], y[moved]) > _UNRELATED:
        return None
    # Sorting makes any noise small. The same errors at other elements tell how small.
    shuffled = np.random.default_rng(0).permutation(y - x)
    by_sorting = np.square(ordered - np.sort(x + shuffled)).sum()
    if rest <= _BETTER_THAN_NOISE * by_sorting:
        return Difference("permutation", message("compare.permuted"))
    return None


def _correlation(x: Array, y: Array) -> float:
    x, y = x - x.mean(), y - y.mean()
    size = float(np.sqrt(np.square(x).sum() * np.square(y).sum()))
    return float((x * y).sum()) / size if size else 0.0


# Tensors that keep the thresholds and still agree far less than those around them.

# So much less than its neighbours ...
_FAR_DB = 40.0
# and less than this: what agrees better differs by rounding.
_ROUNDING_DB = 60.0
_FEWEST_NEIGHBOURS = 2


def local_outliers(rows: Sequence[TensorComparison], *, ordered: bool) -> list[int]:
    """Places of the rows that pass, or are not judged, and stand out from their neighbours.

    Where an error goes on, those behind it are no better: what stands out is wrong by itself, as a dump that was
    written or read wrongly is.

    Args:
        rows: All rows.
        ordered: Whether they are in execution order; if not, all other rows are neighbours.
    """
    return [
        place
        for place, row in enumerate(rows)
        if row.passed is not False
        and (own := _db(row)) is not None
        and own < _ROUNDING_DB
        and (around := neighbour_sqnr_db(rows, place, ordered=ordered)) is not None
        and around - own > _FAR_DB
    ]


def neighbour_sqnr_db(rows: Sequence[TensorComparison], place: int, *, ordered: bool) -> float | None:
    """SQNR of the worst neighbour; None with too few of them.

    Neighbours are the one before and the one behind, at the ends the two next to it; without an order all others.
    """
    before = [db for row in reversed(rows[:place]) if (db := _db(row)) is not None]
    behind = [db for row in rows[place + 1 :] if (db := _db(row)) is not None]
    if not ordered:
        near = [*before, *behind]
    elif before and behind:
        near = [before[0], behind[0]]
    else:
        near = (before or behind)[:_FEWEST_NEIGHBOURS]
    return min(near) if len(near) >= _FEWEST_NEIGHBOURS else None


def _db(row: TensorComparison) -> float | None:
    return row.score.values.get("sqnr_db")
