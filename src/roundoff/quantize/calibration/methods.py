"""Calibration methods: the range of values that codes cover, found from a distribution; one function each."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from roundoff.core.quantizers import QuantSpec, Rounding, round_values
from roundoff.core.table import Table, summary_of
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english
from roundoff.quantize.calibration.density import FEW_ELEMENTS, NEGLIGIBLE, Density, Loss, find_range, levels_of
from roundoff.quantize.calibration.distribution import FIRST_LOOK_BITS, HistogramPieces, ObservedDistribution

Detail = Literal["range", "histogram"]
Options = Mapping[str, float]
Compute = Callable[[ObservedDistribution, QuantSpec, Options], tuple[Array, Array]]


@dataclass(frozen=True, slots=True)
class MethodOption:
    """A number that changes what a method does.

    Attributes:
        default: Its value when nothing is said.
        least: Smallest value allowed.
        most: Largest value allowed.
        meaning: What it says, as the end of a sentence.
    """

    default: float
    least: float
    most: float
    meaning: str


@dataclass(frozen=True, slots=True)
class Method:
    """A way to choose the range of values that codes cover.

    Attributes:
        name: As users write it.
        needs: What must have been observed.
        summary: What it does, in one sentence.
        options: What can be changed; no two methods have options of the same name.
        compute: The range of each row: smallest and largest value to cover. Made into a scale by
            `roundoff.core.quantizers.parameters_from_range`.
    """

    name: str
    needs: Detail
    summary: str
    options: Mapping[str, MethodOption]
    compute: Compute


_METHODS: Table[Method] = Table("calibration method")


def method(name: str, *, needs: Detail = "histogram", **options: MethodOption) -> Callable[[Compute], Compute]:
    """Register a function as a calibration method; its docstring's first line is the summary."""

    def made(compute: Compute) -> Method:
        # One name of an option means one thing, whichever methods are tried together.
        taken = {option for other in _METHODS.values() for option in other.options}
        if taken & set(options):
            raise ValueError(f"an option of the calibration method {name!r} is registered twice")
        return Method(name, needs, summary_of(compute), options, compute)

    return _METHODS.register(name, make=made)


def all_methods() -> Iterator[Method]:
    """Every method, simple ones first."""
    yield from _METHODS.values()


def get_method(name: str) -> Method:
    """Look a method up by name.

    Raises:
        BadInput: There is none.
    """
    return _METHODS.find(name)


def options_of(chosen: Method, given: Options | None) -> dict[str, float]:
    """The options of a method: what was given, and defaults for the rest.

    Args:
        chosen: The method.
        given: Options by name. Those of other methods are allowed, since several methods may be tried together.

    Raises:
        BadInput: No method has an option of that name, or the value is not allowed.
    """
    known = {name: option for each in _METHODS.values() for name, option in each.options.items()}
    for name, value in (given or {}).items():
        if name not in known:
            raise BadInput(
                english("No calibration method has an option {name!r}.", name=name), fix=nearest(name, known)
            )
        option = known[name]
        if math.isnan(value) or not option.least <= value <= option.most:
            what = english(
                "The option {name} is {value:g}; it is {meaning}.", name=name, value=value, meaning=option.meaning
            )
            raise BadInput(
                what, fix=english("give a number from {least:g} to {most:g}", least=option.least, most=option.most)
            )
    return {name: float((given or {}).get(name, option.default)) for name, option in chosen.options.items()}


@method("minmax", needs="range")
def minmax(distribution: ObservedDistribution, spec: QuantSpec, options: Options) -> tuple[Array, Array]:
    """From the smallest to the largest value."""
    return distribution.low, distribution.high


# Products of shares and counts are a little off; an element is dropped only when the share allows it whole.
_TOLERANCE = 1e-9


@method(
    "percentile",
    percentile=MethodOption(
        0.9999, 0.5, 100, "the share of elements that the range keeps, as 0.9999 or 99.99 percent"
    ),
)
def percentile(distribution: ObservedDistribution, spec: QuantSpec, options: Options) -> tuple[Array, Array]:
    """The range that keeps a given share of all elements of all samples.

    Symmetric quantizers drop the largest magnitudes. Others drop the same number on both sides, but where all
    elements lie on one side of zero only the far end: the range goes on to zero anyway.
    """
    dropped = (1 - _share(options["percentile"])) * distribution.total
    if spec.symmetric:
        magnitudes = distribution.magnitudes()
        largest = magnitudes.smallest(magnitudes.total - 1 - np.floor(dropped + _TOLERANCE))
        return np.maximum(distribution.low, -largest), np.minimum(distribution.high, largest)
    one_sided = (distribution.low >= 0) | (distribution.high <= 0)
    each = np.floor(np.where(one_sided, dropped, dropped / 2) + _TOLERANCE)
    low = distribution.smallest(np.where(distribution.low >= 0, 0, each))
    high = distribution.smallest(distribution.total - 1 - np.where(distribution.high <= 0, 0, each))
    return low, high


def _share(value: float) -> float:
    if 1 < value < 50:
        what = english(
            "The option percentile is {value:g}, which is neither a share nor a percentage that makes sense.",
            value=value,
        )
        raise BadInput(
            what, fix=english("give the share of elements to keep, as in percentile=0.9999 or percentile=99.99")
        )
    return value if value <= 1 else value / 100


@method("mse")
def mse(distribution: ObservedDistribution, spec: QuantSpec, options: Options) -> tuple[Array, Array]:
    """The range with the smallest mean squared error after quantizing and back.

    The error is that of the very quantizer the range leads to: its levels, its rounding, its saturation. Within a
    bin of a histogram it is integrated, so that steps far smaller than a bin are judged rightly too.
    """
    return find_range(
        distribution,
        _error(distribution, spec),
        first_look=_error(distribution.coarser(), spec),
        symmetric=spec.symmetric,
    )


def _error(distribution: ObservedDistribution, spec: QuantSpec) -> Loss:
    return lambda low, high: distribution.squared_error(levels_of(low, high, spec))


# So few elements may be clipped whatever that does to the squared error: a share of those other than zero.
_STRAY = 1e-5
# Squared errors that differ by less are the same.
_SAME = 1e-6


@method("entropy")
def entropy(distribution: ObservedDistribution, spec: QuantSpec, options: Options) -> tuple[Array, Array]:
    """The range with the smallest Kullback-Leibler divergence between original and quantized distribution.

    Zero is always a level, so zeros are left out. Rounding to levels finer than the histogram loses nothing: many
    bits lead to the whole range. Divergence alone would ruin tensors whose few large values are what matters, such
    as probabilities, for the sake of the many small ones. So a range is considered only if its squared error is
    not larger than that of the whole range, or if it clips no more than stray elements.
    """
    rows = [_entropy_row(distribution.row(index), spec) for index in range(distribution.low.size)]
    low, high = (np.concatenate([np.empty(0), *(row[end] for row in rows)]) for end in (0, 1))
    return low, high


def _entropy_row(distribution: ObservedDistribution, spec: QuantSpec) -> tuple[Array, Array]:
    whole = np.minimum(distribution.low, 0.0), np.maximum(distribution.high, 0.0)
    if distribution.total[0] < FEW_ELEMENTS:
        return whole
    histogram = distribution.histogram()
    density = Density(histogram, float(distribution.low[0]), float(distribution.high[0]))
    pieces = HistogramPieces(histogram.coarser(FIRST_LOOK_BITS), distribution.low, distribution.high)
    most = pieces.squared_error(levels_of(whole[0][:, None], whole[1][:, None], spec))

    # The smallest loss so far: a range is not taken when its own is larger by more than what is negligible.
    least = math.inf

    def loss(low: Array, high: Array) -> Array:
        nonlocal least
        levels = levels_of(low, high, spec)
        losses, clipped = density.divergence(levels.of_row(0), at_most=least * (1 + NEGLIGIBLE))
        stray = clipped <= _STRAY
        least = min(least, float(losses[stray].min(initial=np.inf)))
        # Squared errors cost most, so they are asked for last.
        asked = np.flatnonzero(~stray & (losses <= least * (1 + NEGLIGIBLE)))
        if asked.size:
            too_large = pieces.squared_error(levels.some(asked))[0] > most[0] * (1 + _SAME)
            losses[asked[too_large]] = np.inf
            least = min(least, float(losses[asked].min()))
        losses[~stray & (losses > least * (1 + NEGLIGIBLE))] = np.inf
        return losses[None]

    loss(whole[0][:, None], whole[1][:, None])
    return find_range(distribution, loss, symmetric=spec.symmetric)


@method(
    "ifmr",
    max_percentile=MethodOption(0.999999, 0.5, 1, "the share of elements below the largest value to start from"),
    min_percentile=MethodOption(0.999999, 0.5, 1, "the share of elements above the smallest value to start from"),
    search_range_start=MethodOption(0.7, 0.01, 10, "the first candidate as a part of the largest value"),
    search_range_end=MethodOption(1.3, 0.01, 10, "the last candidate as a part of the largest value"),
    search_step=MethodOption(0.01, 1e-4, 10, "the distance of two candidates as a part of the largest value"),
    include_end=MethodOption(0, 0, 1, "1 when the end of the search range is a candidate too, as in older tools"),
    half_away=MethodOption(0, 0, 1, "1 to round halves away from zero, as older tools do, instead of to even"),
)
def ifmr(distribution: ObservedDistribution, spec: QuantSpec, options: Options) -> tuple[Array, Array]:
    """The best of some multiples of the largest value by squared error, the smallest value staying as it is.

    Symmetric quantizers have both sides multiplied. The error is as the vendor defines it: values are clipped to
    the candidate range and rounded to multiples of the scale; codes do not limit them.
    """
    low, high = _start(distribution, options)
    factors = _factors(options)
    tops = high[:, None] * factors
    bottoms = low[:, None] * (factors if spec.symmetric else np.ones_like(factors))
    levels = levels_of(bottoms, tops, spec)
    if spec.symmetric:
        tops = np.maximum(tops, -bottoms)
        bottoms = -tops
    rounding: Rounding = "half_away" if options["half_away"] else "half_even"
    first, last = (round_values(end / levels.step, rounding) for end in (bottoms, tops))
    chosen = np.argmin(distribution.squared_error(replace(levels, first=first, last=last)), axis=1)
    return (low * factors[chosen] if spec.symmetric else low), high * factors[chosen]


def _start(distribution: ObservedDistribution, options: Options) -> tuple[Array, Array]:
    """The outermost elements, without a share of them, and zero."""
    total = distribution.total
    above = np.maximum(total - (options["max_percentile"] * total).astype(np.int64), 1)
    below = np.maximum(total - (options["min_percentile"] * total).astype(np.int64), 1)
    high = np.maximum(distribution.smallest(total - above), 0.0)
    low = np.minimum(distribution.smallest(below - 1), 0.0)
    return low, high


def _factors(options: Options) -> Array:
    start, end, step = (options[name] for name in ("search_range_start", "search_range_end", "search_step"))
    if end <= start or step > end - start:
        raise BadInput(
            english(
                "The search range from {start:g} to {end:g} has no room for steps of {step:g}.",
                start=start,
                end=end,
                step=step,
            ),
            fix=english("give search_range_start < search_range_end and a search_step that fits in between"),
        )
    if options["include_end"]:
        return start + step * np.arange(int((end - start) / step + 1))
    return np.arange(start, end, step)


# As the vendor has it: one step gives up this part of all elements, and a quarter of the bins is always kept.
_STEP_PART = 100_000
_KEPT_PART = 4
# Candidates looked at before looking closer; up to twice as many are all looked at.
_LOOKED_AT = 256


@method("hfmg", num_of_bins=MethodOption(4096, 16, 65536, "the number of bins of the histogram"))
def hfmg(distribution: ObservedDistribution, spec: QuantSpec, options: Options) -> tuple[Array, Array]:
    """The best by squared error of ever narrower ranges, each giving up the more sparsely populated end.

    As the vendor defines it, the error is that of as many equal cells as there are codes between both ends,
    whether zero is a level or not. The bins are those of all samples together: their order does not matter.
    """
    bins = int(options["num_of_bins"])
    ranges = [_hfmg_row(distribution, row, bins, 2**spec.bits) for row in range(distribution.low.size)]
    low, high = np.array(ranges, dtype=np.float64).reshape(-1, 2).T
    return low, high


def _hfmg_row(distribution: ObservedDistribution, row: int, bins: int, codes: int) -> tuple[float, float]:
    low, high = float(distribution.low[row]), float(distribution.high[row])
    if low == high:
        return low, high
    counts = distribution.binned(row, bins)
    first, last = _best(_Histogram(counts), _candidates(counts), codes)
    width = (high - low) / bins
    # From both ends, so that an end that was not moved stays exactly what it is.
    return low + first * width, high - (bins - 1 - last) * width


def _candidates(counts: Array) -> list[tuple[int, int]]:
    """First and last bin of ever narrower ranges; the whole range is not among them."""
    below = np.concatenate([[0.0], np.cumsum(counts)]).tolist()
    step = max(1, math.ceil(below[-1] / _STEP_PART))
    first, last = 0, counts.size - 1
    found = []
    while last - first > math.ceil(counts.size / _KEPT_PART):
        after = min(last, bisect_left(below, below[first] + step))
        before = max(after, min(last, bisect_right(below, below[last + 1] - step) - 2))
        if after - first > last - before:
            first = after
        else:
            last = before
        found.append((first, last))
    return found


def _best(histogram: "_Histogram", candidates: list[tuple[int, int]], codes: int) -> tuple[int, int]:
    """The candidate with the smallest loss: among many, the best of every few and then of its neighbours."""
    stride = max(1, len(candidates) // _LOOKED_AT)
    best, chosen = math.inf, 0
    for index in range(0, len(candidates), stride):
        if histogram.least_loss(*candidates[index]) > best:
            break  # the ranges that follow lie within this one, and lose at least as much
        loss = histogram.loss(*candidates[index], codes)
        if loss < best:
            best, chosen = loss, index
    for index in range(max(0, chosen - stride + 1), min(len(candidates), chosen + stride)):
        loss = histogram.loss(*candidates[index], codes) if index != chosen else math.inf
        if loss < best or (loss == best and index < chosen):
            best, chosen = loss, index
    return candidates[chosen]


class _Histogram:
    """Equal bins, in whose width all positions are measured."""

    def __init__(self, counts: Array) -> None:
        used = np.flatnonzero(counts)
        self._counts = counts[used]
        self._begins = used.astype(np.float64)
        places = np.arange(counts.size)
        self._sums = [np.concatenate([[0.0], np.cumsum(counts * places**power)]).tolist() for power in range(3)]

    def least_loss(self, first: int, last: int) -> float:
        """What elements outside a range lose at least: their squared distance from it."""
        zeroth, once, twice = (sums[first] for sums in self._sums)
        left = (first - 1) ** 2 * zeroth - 2 * (first - 1) * once + twice
        zeroth, once, twice = (sums[-1] - sums[last + 1] for sums in self._sums)
        right = twice - 2 * (last + 1) * once + (last + 1) ** 2 * zeroth
        return float(left + right)

    def loss(self, first: int, last: int, codes: int) -> float:
        """Sum of squared distances from the centres of equal cells between the ends of a range."""
        cell = (last - first + 1) / codes
        begins = (self._begins - first) / cell
        growth = _integral(begins + 1 / cell, codes) - _integral(begins, codes)
        return float(np.add.reduce(self._counts * growth)) * cell**3


def _integral(positions: Array, cells: int) -> Array:
    """Integral of the squared distance from the centre of a position's cell, in units of cells."""
    cell = np.clip(np.floor(positions), 0, cells - 1)
    return np.asarray(cell / 12 + (positions - cell - 0.5) ** 3 / 3)
