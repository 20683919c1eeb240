"""What a metric is, and the table of all of them.

A metric is one function of the sums of a pair, registered with what it needs of them. Every command asks this
table; one that gathers fewer sums than a metric needs refuses it (`require`).
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from roundoff.errors import BadInput, nearest
from roundoff.measure.pairs import ALL_FIELDS, Field, PairSums, SideSums
from roundoff.messages.message import english

Direction = Literal["higher", "lower", "none"]

MEAN = "mean_"
"""Before the name of a metric: its mean over samples, each scored alone, instead of all samples as one tensor."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number that says how alike two tensors are.

    Attributes:
        name: As users write it.
        unit: ``""`` for a plain number, ``dB``, ``share`` (0 to 1) or ``value`` (the tensor's own unit).
        direction: Which way is better; ``none`` for numbers that describe rather than judge.
        perfect: Its value for equal tensors; None where that depends on the tensor.
        summary: What it tells, in one sentence.
        compute: Its value from the sums of a pair that is not empty.
        needs: The sums it is a function of.
        quadratic: Whether its distance from perfect grows with the energy of the error, not with its size.
        per_sample: Whether several samples are scored each alone and their scores averaged; otherwise their sums
            are merged, as if all samples were one tensor.
    """

    name: str
    unit: str
    direction: Direction
    perfect: float | None
    summary: str
    compute: Callable[[PairSums], float]
    needs: frozenset[Field]
    quadratic: bool = False
    per_sample: bool = False

    def value(self, sums: PairSums) -> float:
        """Its value for any pair: an empty one is perfect; NaN where nothing is finite.

        Raises:
            ValueError: The sums do not hold what it needs; `require` refuses that before anything is measured.
        """
        if not self.needs <= sums.offers:
            missing = ", ".join(sorted(self.needs - sums.offers))
            raise ValueError(f"{self.name} needs {missing}, which was not gathered")
        if sums.count:
            return self.compute(sums)
        return math.nan if sums.excluded or self.perfect is None else self.perfect


_METRICS: dict[str, Metric] = {}


def metric(
    name: str,
    *,
    needs: Collection[Field],
    unit: str = "",
    direction: Direction,
    perfect: float | None,
    quadratic: bool = False,
) -> Callable[[Callable[[PairSums], float]], Callable[[PairSums], float]]:
    """Register a function of the sums as a metric; its docstring's first line is the summary.

    Args:
        name: As users write it.
        needs: The sums it reads; commands that gather fewer refuse it.
        unit: See `Metric`.
        direction: Which way is better.
        perfect: Its value for equal tensors.
        quadratic: Whether its distance from that grows with the energy of the error, not with its size.
    """
    if not frozenset(needs) <= ALL_FIELDS:
        raise ValueError(f"metric {name!r} needs {sorted(frozenset(needs) - ALL_FIELDS)}, which nobody gathers")

    def register(compute: Callable[[PairSums], float]) -> Callable[[PairSums], float]:
        if name in _METRICS:
            raise ValueError(f"metric {name!r} is registered twice")
        summary = (compute.__doc__ or "").strip().partition("\n")[0]
        if not summary:
            raise ValueError(f"metric {name!r} has no docstring to say what it tells")
        _METRICS[name] = Metric(name, unit, direction, perfect, summary, compute, frozenset(needs), quadratic)
        return compute

    return register


# What people rank by most; they are named first where a metric is unknown.
_USUAL = ("sqnr_db", "cosine", "mse", "relative_euclidean", "mean_relative_error", "chebyshev")


ALIASES: Mapping[str, str] = {
    "sqnr": "sqnr_db",
    "snr": "sqnr_db",
    "cosine_similarity": "cosine",
    "cos": "cosine",
    "kl": "kl_divergence",
    "kld": "kl_divergence",
    "l2": "relative_euclidean",
    "max_error": "max_abs_error",
}
"""What people and other tools call a metric; explained, and not written."""


def all_metrics() -> Iterator[Metric]:
    """Every metric, in the order of the tables; means over samples are not listed."""
    yield from _METRICS.values()


def get_metric(name: str) -> Metric:
    """Look a metric up by name; ``mean_sqnr_db`` is the mean over samples of ``sqnr_db``, and so for all."""
    if name in _METRICS:
        return _METRICS[name]
    base = _METRICS.get(name.removeprefix(MEAN)) if name.startswith(MEAN) else None
    if base is None or base.direction == "none":
        listed = dict.fromkeys((*_USUAL, *judging()))
        raise BadInput(
            english("There is no metric {name!r}.", name=name), fix=nearest(name, _METRICS, listed=tuple(listed))
        )
    summary = f"Mean over samples, each scored alone. {base.summary}"
    return replace(base, name=name, summary=summary, per_sample=True)


def is_metric(name: str) -> bool:
    """Whether there is a metric of that name; evaluators and labels give scores that are none."""
    base = _METRICS.get(name) or _METRICS.get(name.removeprefix(MEAN))
    return base is not None and (base.name == name or base.direction != "none")


def summary_of(name: str) -> str:
    """What a metric tells, in one sentence; empty for scores that are no metric."""
    return get_metric(name).summary if is_metric(name) else ""


def mean_of(name: str) -> str:
    """The name of a metric's mean over samples."""
    return name if get_metric(name).per_sample else f"{MEAN}{name}"


def judging(offers: frozenset[Field] = ALL_FIELDS) -> tuple[str, ...]:
    """Names of the metrics that judge and can be served by what is gathered."""
    return tuple(each.name for each in all_metrics() if each.direction != "none" and each.needs <= offers)


def require(
    names: Collection[str], *, command: str, offers: frozenset[Field] = ALL_FIELDS, judge: bool = True
) -> tuple[Metric, ...]:
    """Look metrics up that a command is to measure, before it measures anything.

    Args:
        names: The metrics; repeated ones count once.
        command: Who measures, for messages.
        offers: What it gathers.
        judge: Whether the first one decides something.

    Raises:
        BadInput: There is none, or one does not exist, does not judge, or needs what is not gathered.
    """
    fix = english("choose from: {judging}", judging=", ".join(judging(offers)))
    if not names:
        raise BadInput(english("No metric was given."), fix=fix)
    found = tuple(get_metric(name) for name in dict.fromkeys(names))
    for each in found:
        missing = sorted(each.needs - offers)
        if missing:
            words = ", ".join(field.replace("_", " ") for field in missing)
            raise BadInput(
                english(
                    "{command} cannot measure {name!r}: it does not gather {words}.",
                    command=command,
                    name=each.name,
                    words=words,
                ),
                fix=fix,
            )
    if judge and found[0].direction == "none":
        raise BadInput(
            english(
                "{command} cannot go by {name!r}, which describes and does not judge.",
                command=command,
                name=found[0].name,
            ),
            fix=fix,
        )
    return found


# The scores of one tensor, as data.

Status = Literal["ok", "nonfinite", "degenerate", "shape", "missing", "unreadable"]


@dataclass(frozen=True, slots=True)
class TensorScore:
    """How one tensor of the candidate agrees with the reference.

    Attributes:
        status: ``ok``; ``nonfinite``: some elements were NaN or infinite and left out; ``degenerate``: one side or
            both are all zero, or the tensor is empty; ``shape``, ``missing``, ``unreadable``: there is no score.
        values: Metric name to value; empty when there is no score.
        detail: Why there is no score, or what was left out; empty when all is well.
    """

    status: Status
    values: dict[str, float] = field(default_factory=dict)
    detail: str = ""


@dataclass(frozen=True, slots=True)
class OutputAgreement:
    """How one output of two models agrees over the samples both were fed.

    Attributes:
        output: Its name.
        samples: How many samples that is.
        score: All metrics; without values when the shapes differ or nothing is a number.
        same_top1: Share of rows whose largest element is at the same place; None for outputs that are
            no vector of scores.
    """

    output: str
    samples: int
    score: TensorScore
    same_top1: float | None


# Direction and distribution: are the two tensors the same up to size?

_ENERGIES: tuple[Field, ...] = ("reference_energy", "error_energy")

# Counts are smoothed by this much, so that a bin the candidate never hits costs much, but not infinitely much.
_SMOOTHING = 0.5


@metric(
    "cosine", needs=[*_ENERGIES, "candidate_energy", "product"], direction="higher", perfect=1.0, quadratic=True
)
def cosine(sums: PairSums) -> float:
    """Cosine of the angle between the tensors; blind to gain."""
    if sums.error_energy == 0:
        return 1.0
    norms = math.sqrt(sums.reference.energy) * math.sqrt(sums.candidate.energy)
    if norms == 0:
        return 0.0
    return min(1.0, max(-1.0, sums.product / norms))


@metric("kl_divergence", needs=["histograms"], direction="lower", perfect=0.0)
def kl_divergence(sums: PairSums) -> float:
    """How far the candidate's distribution of values is from the reference's, in nats; blind to order."""
    merged = sums.reference.histogram.merge(sums.candidate.histogram)
    used = np.flatnonzero(merged.counts)
    sides = (sums.reference.histogram, sums.candidate.histogram)
    p, q = (side.at(merged.exponent)[used] + _SMOOTHING for side in sides)
    p, q = p / p.sum(), q / q.sum()
    return max(0.0, float(np.sum(p * np.log(p / q))))


# Size of the error, absolute and against the size of the reference.


@metric("sqnr_db", needs=_ENERGIES, unit="dB", direction="higher", perfect=math.inf)
def sqnr_db(sums: PairSums) -> float:
    """Energy of the reference over energy of the error, in decibels."""
    return ratio_db(sums.reference.energy, sums.error_energy)


@metric("relative_euclidean", needs=_ENERGIES, direction="lower", perfect=0.0)
def relative_euclidean(sums: PairSums) -> float:
    """Length of the error over length of the reference."""
    if sums.error_energy == 0:
        return 0.0
    if sums.reference.energy == 0:
        return math.inf
    return math.sqrt(sums.error_energy / sums.reference.energy)


@metric("norm_error", needs=[*_ENERGIES, "candidate_energy"], direction="lower", perfect=0.0)
def norm_error(sums: PairSums) -> float:
    """Share by which the candidate's length differs from the reference's; sees the gain that cosine misses."""
    if sums.error_energy == 0:
        return 0.0
    if sums.reference.energy == 0:
        return math.inf
    return abs(math.sqrt(sums.candidate.energy / sums.reference.energy) - 1)


@metric("mse", needs=["error_energy"], unit="value", direction="lower", perfect=0.0, quadratic=True)
def mse(sums: PairSums) -> float:
    """Mean of the squared errors."""
    return sums.error_energy / sums.count


@metric("rmse", needs=["error_energy"], unit="value", direction="lower", perfect=0.0)
def rmse(sums: PairSums) -> float:
    """Root of the mean squared error; far above mae when few elements carry the error."""
    return math.sqrt(mse(sums))


@metric("mae", needs=["abs_error"], unit="value", direction="lower", perfect=0.0)
def mae(sums: PairSums) -> float:
    """Mean of the absolute errors."""
    return sums.abs_error / sums.count


@metric("max_abs_error", needs=["max_abs_error"], unit="value", direction="lower", perfect=0.0)
def max_abs_error(sums: PairSums) -> float:
    """Largest absolute error."""
    return sums.max_abs_error


@metric("chebyshev", needs=["max_abs_error"], unit="value", direction="lower", perfect=0.0)
def chebyshev(sums: PairSums) -> float:
    """Largest absolute error, under the name some tools give it."""
    return sums.max_abs_error


def sample_sqnr_db(sums: PairSums) -> float:
    """SQNR of one sample: NaN where the reference is silent, -inf where only the candidate is not finite."""
    if sums.reference.energy == 0:
        return math.nan
    return -math.inf if sums.candidate.nonfinite > sums.reference.nonfinite else sqnr_db(sums)


def ratio_db(signal: float, noise: float) -> float:
    """Ratio of two energies in decibels: +inf without noise, -inf without signal, NaN where one is NaN.

    The only place where energies become decibels. Logarithms are subtracted: a ratio of energies that are far
    apart may be too small or too large for a float.
    """
    if noise == 0:
        return math.inf
    if signal == 0:
        return -math.inf
    return 10 * (math.log10(signal) - math.log10(noise))


# Errors against each element of the reference; elements whose reference is zero have none.


@metric("mean_relative_error", needs=["relative_errors", "error_energy"], direction="lower", perfect=0.0)
def mean_relative_error(sums: PairSums) -> float:
    """Mean of |error| / |reference| where the reference is not zero."""
    if sums.relative_count == 0:
        return _without_reference(sums)
    return sums.relative_error / sums.relative_count


@metric("max_relative_error", needs=["relative_errors", "error_energy"], direction="lower", perfect=0.0)
def max_relative_error(sums: PairSums) -> float:
    """Largest |error| / |reference| where the reference is not zero."""
    return sums.max_relative_error if sums.relative_count else _without_reference(sums)


@metric("accumulated_relative_error", needs=["relative_errors", "error_energy"], direction="lower", perfect=0.0)
def accumulated_relative_error(sums: PairSums) -> float:
    """Sum of |error| / |reference| where the reference is not zero; grows with the size of the tensor."""
    return sums.relative_error if sums.relative_count else _without_reference(sums)


@metric("within_1e3", needs=["near_counts"], unit="share", direction="higher", perfect=1.0, quadratic=True)
def within_1e3(sums: PairSums) -> float:
    """Share of elements whose relative error is below 1e-3 (zero for zero counts)."""
    return sums.within_1e3 / sums.count


@metric("within_5e3", needs=["near_counts"], unit="share", direction="higher", perfect=1.0, quadratic=True)
def within_5e3(sums: PairSums) -> float:
    """Share of elements whose relative error is below 5e-3 (zero for zero counts)."""
    return sums.within_5e3 / sums.count


def _without_reference(sums: PairSums) -> float:
    """Relative to nothing: no error is perfect, any error is worst."""
    return 0.0 if sums.error_energy == 0 else math.inf


# What the error looks like: a gain, an offset, saturation, dead values, one bad channel.

# Channels with less than this share of the mean channel's energy carry no signal to lose.
_QUIET_CHANNEL = 1e-6


def linear_fit(sums: PairSums) -> tuple[float, float]:
    """Slope and offset of the line through (reference, candidate) with the least squared error."""
    n = sums.count
    mean_x, mean_y = sums.reference.total / n, sums.candidate.total / n
    variance = sums.reference.energy / n - mean_x * mean_x
    # A constant reference fixes no slope; what is left of its variance is rounding.
    if variance <= 1e-12 * sums.reference.energy / n:
        return 1.0, mean_y - mean_x
    slope = (sums.product / n - mean_x * mean_y) / variance
    return slope, mean_y - slope * mean_x


@metric("fit_slope", needs=[*_ENERGIES, "product", "totals"], direction="none", perfect=1.0)
def fit_slope(sums: PairSums) -> float:
    """Gain of the candidate: slope of the best line through it."""
    return 1.0 if sums.error_energy == 0 else linear_fit(sums)[0]


@metric(
    "fit_offset",
    needs=[*_ENERGIES, "product", "totals"],
    unit="value",
    direction="none",
    perfect=0.0,
)
def fit_offset(sums: PairSums) -> float:
    """Shift of the candidate: offset of the best line through it."""
    return 0.0 if sums.error_energy == 0 else linear_fit(sums)[1]


@metric("saturated", needs=["extremes"], unit="share", direction="none", perfect=None)
def saturated(sums: PairSums) -> float:
    """Share of the candidate's elements that sit exactly at its largest or smallest value, zeros aside."""
    return saturated_share(sums.candidate, sums.count)


@metric("reference_saturated", needs=["extremes"], unit="share", direction="none", perfect=None)
def reference_saturated(sums: PairSums) -> float:
    """The same share in the reference: what saturation is meant to be there (ReLU6, sigmoid)."""
    return saturated_share(sums.reference, sums.count)


@metric("zeros", needs=["zeros"], unit="share", direction="none", perfect=None)
def zeros(sums: PairSums) -> float:
    """Share of the candidate's elements that are zero."""
    return sums.candidate.zeros / sums.count


@metric("reference_zeros", needs=["zeros"], unit="share", direction="none", perfect=None)
def reference_zeros(sums: PairSums) -> float:
    """Share of the reference's elements that are zero."""
    return sums.reference.zeros / sums.count


@metric("worst_channel", needs=[*_ENERGIES, "channels"], direction="none", perfect=None)
def worst_channel(sums: PairSums) -> float:
    """Index of the channel with the lowest SQNR; -1 where there are no channels or no error."""
    return float(_worst_channel(sums)[0])


@metric(
    "worst_channel_sqnr_db",
    needs=[*_ENERGIES, "channels"],
    unit="dB",
    direction="higher",
    perfect=float("inf"),
)
def worst_channel_sqnr_db(sums: PairSums) -> float:
    """SQNR of the worst channel; the whole tensor's where there are no channels."""
    return _worst_channel(sums)[1]


def saturated_share(side: SideSums, count: int) -> float:
    """Share of elements at the extremes; a single element at an extreme is just the extreme."""
    extremes = ((side.low, side.at_low), (side.high, side.at_high))
    if side.low == side.high:
        return 0.0
    return sum(hits for value, hits in extremes if value != 0 and hits > 1) / count


def _worst_channel(sums: PairSums) -> tuple[int, float]:
    whole = ratio_db(sums.reference.energy, sums.error_energy)
    channels = sums.channels
    if channels is None or sums.error_energy == 0:
        return -1, whole
    loud = channels.reference > _QUIET_CHANNEL * channels.reference.mean()
    noisy = channels.error > 0
    # A channel that should be silent and is loud is as bad as can be.
    invented = ~loud & (channels.error > _QUIET_CHANNEL * channels.reference.mean())
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(noisy & (loud | invented), channels.error / channels.reference, 0.0)
    index = int(np.argmax(ratio))
    if ratio[index] == 0:
        return -1, whole
    return index, ratio_db(float(channels.reference[index]), float(channels.error[index]))


# From sums to scores, with one policy for values that are not numbers, zero or absent.


def score(sums: PairSums) -> TensorScore:
    """All metrics of one pair that its sums serve.

    Non-finite elements are left out and counted; both sides zero, or an empty tensor, is perfect; one side zero is
    the worst a metric can say. The status tells when one of these applies.
    """
    status, detail = status_of(sums)
    if sums.count == 0 and sums.excluded:
        return TensorScore(status, {}, detail)
    if sums.count == 0:
        perfect = {m.name: m.perfect for m in all_metrics() if m.perfect is not None}
        return TensorScore(status, perfect, detail)
    served = (m for m in all_metrics() if m.needs <= sums.offers)
    return TensorScore(status, {m.name: m.compute(sums) for m in served}, detail)


def status_of(sums: PairSums) -> tuple[Status, str]:
    """The status of a pair, and in words what was left out or is not there."""
    if sums.excluded:
        total = sums.count + sums.excluded
        text = english(
            "{excluded} of {total} elements are NaN or infinite ({reference} in the reference, {candidate} in the "
            "candidate)",
            excluded=sums.excluded,
            total=total,
            reference=sums.reference.nonfinite,
            candidate=sums.candidate.nonfinite,
        )
        return "nonfinite", text
    if sums.count == 0:
        return "degenerate", english("the tensor is empty")
    zero = (sums.reference.is_zero, sums.candidate.is_zero)
    if all(zero):
        return "degenerate", english("both sides are all zero")
    if any(zero):
        side = english("the reference is all zero") if zero[0] else english("the candidate is all zero")
        return "degenerate", side
    return "ok", ""
