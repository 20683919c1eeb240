"""The ten built-in algorithms as the vendor prints them, its treatment of zeros, scalars and booleans included."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import SupportsFloat

import numpy as np

from roundoff.vendors.ascend.passes import EPSILON, Pair

__all__ = ["ALL_ZERO", "BUILTIN", "NOT_COMPUTED", "SCALAR", "Algorithm", "Case", "compare_values", "failed"]

NOT_COMPUTED = "NaN"
"""What the vendor prints where nothing was computed; results that are no numbers are ``nan``."""

SCALAR = "This tensor is scalar."
"""What is said of a tensor with one element, whose cosine means nothing."""

ALL_ZERO = "All the data is zero in"
"""What is said where one side is nothing but zeros, so that there is no cosine."""

_BOOLEAN = ("CosineSimilarity", "RelativeEuclideanDistance")
_TINY = 0.001
"""Means and deviations below this are printed as zero."""

_EMPTY = "zero-size array to reduction operation maximum which has no identity"


@dataclass(frozen=True, slots=True)
class Case:
    """Two tensors to compare.

    Attributes:
        pair: Their values.
        scalar: Whether every axis has one element.
        mine: The file under test, for messages.
        golden: The golden file, for messages.
    """

    pair: Pair
    scalar: bool
    mine: str
    golden: str


Algorithm = Callable[[Case], tuple[str, str]]
"""Gives the printed value and a message, empty when there is nothing to say."""


def compare_values(
    case: Case, algorithms: dict[str, Algorithm], *, warn: Callable[[str], None]
) -> tuple[list[str], list[str]]:
    """Run algorithms on two tensors.

    Args:
        case: The tensors.
        algorithms: By name, in the order of the columns.
        warn: Told of what could not be computed.

    Returns:
        The printed values, and the messages for the column of reasons.
    """
    both_boolean = case.pair.mine.dtype == np.bool_ == case.pair.golden.dtype
    values: list[str] = []
    messages: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of complex numbers the vendor, too, takes the real part
        for name, algorithm in algorithms.items():
            if both_boolean and name not in _BOOLEAN:
                value, message = NOT_COMPUTED, f"Algorithm {name} does not support Boolean types."
            else:
                value, message = (_of_booleans(case, name) if both_boolean else None) or algorithm(case)
                if value == NOT_COMPUTED and message:
                    warn(message)
            values.append(value)
            if message:
                messages.append(message)
    case.pair.release()
    return values, messages


def failed(name: str, reason: object) -> tuple[str, str]:
    """The result of an algorithm that could not be run."""
    return NOT_COMPUTED, f"Failed to execute 'compare' in '{name}'. {reason}"


def _printed(value: SupportsFloat) -> str:
    return f"{float(value):.6f}"


def _mean(total: np.float32, count: int) -> np.float32:
    with np.errstate(all="ignore"):
        return np.float32(np.float64(total) / np.float64(count))


def _cosine(case: Case) -> tuple[str, str]:
    if case.scalar:
        return _printed(1), SCALAR
    mine, golden = (np.sqrt(total) for total in case.pair.sums[:2])
    return _cosine_of(case, mine, golden) or (_printed(min(float(case.pair.cosine), 1.0)), "")


def _cosine_of(case: Case, mine: float, golden: float) -> tuple[str, str] | None:
    """What is printed for vectors of these lengths, when one of them has none."""
    if mine <= EPSILON and golden < EPSILON:
        return "1.0", ""
    for length, file in ((mine, case.mine), (golden, case.golden)):
        if np.sqrt(length) <= EPSILON:
            return NOT_COMPUTED, f"Cannot compare by Cosine Similarity. {ALL_ZERO} {file}."
    return None


def _max_absolute(case: Case) -> tuple[str, str]:
    _ = case.pair.sums
    if not case.pair.count:
        return failed("MaxAbsoluteError", _EMPTY)
    return _printed(case.pair.largest_difference), ""


def _accumulated_relative(case: Case) -> tuple[str, str]:
    return _printed(case.pair.sums[4]), ""


def _relative_distance(case: Case) -> tuple[str, str]:
    golden, differences = case.pair.sums[1], case.pair.sums[3]
    with np.errstate(all="ignore"):
        share = np.float32(0) if np.sqrt(golden) <= EPSILON else differences / golden
        return _printed(np.sqrt(share)), ""


def _divergence(case: Case) -> tuple[str, str]:
    if not case.pair.count:
        return failed("KullbackLeiblerDivergence", _EMPTY)
    value = case.pair.divergence
    message = (
        f"Cannot compare by KL Divergence. The data contains 0 in {case.golden!r}." if value == np.inf else ""
    )
    return _printed(0.0 if abs(value) < EPSILON else value), message


def _spread(case: Case) -> tuple[str, str]:
    sides = (case.pair.spread(place) for place in range(2))
    texts = ("({:.3f};{:.3f})".format(*(0.0 if abs(part) < _TINY else part for part in side)) for side in sides)
    return ",".join(texts), ""


def _mean_absolute(case: Case) -> tuple[str, str]:
    return _printed(_mean(case.pair.sums[2], case.pair.count)), ""


def _root_mean_square(case: Case) -> tuple[str, str]:
    return _printed(np.sqrt(_mean(case.pair.sums[3], case.pair.count))), ""


def _max_relative(case: Case) -> tuple[str, str]:
    _ = case.pair.sums
    if not case.pair.count:
        return failed("MaxRelativeError", _EMPTY)
    return _printed(case.pair.largest_relative), ""


def _mean_relative(case: Case) -> tuple[str, str]:
    return _printed(_mean(case.pair.sums[4], case.pair.count)), ""


def _of_booleans(case: Case, name: str) -> tuple[str, str] | None:
    """What is printed for two boolean tensors, where that differs from numbers."""
    mine, golden = (float(np.count_nonzero(side)) for side in (case.pair.mine, case.pair.golden))
    if name == "CosineSimilarity" and not case.scalar:
        common = float(np.count_nonzero(np.logical_and(case.pair.mine, case.pair.golden)))
        special = _cosine_of(case, mine**0.5, golden**0.5)
        return special or (_printed(min(common / (mine * golden) ** 0.5, 1.0)), "")
    if name == "RelativeEuclideanDistance":
        if not golden:
            return _printed(0.0), ""
        try:
            np.subtract(np.zeros(1, np.bool_), np.zeros(1, np.bool_))
        except TypeError as error:
            return failed(name, error)
    return None


BUILTIN: dict[str, Algorithm] = {
    "CosineSimilarity": _cosine,
    "MaxAbsoluteError": _max_absolute,
    "AccumulatedRelativeError": _accumulated_relative,
    "RelativeEuclideanDistance": _relative_distance,
    "KullbackLeiblerDivergence": _divergence,
    "StandardDeviation": _spread,
    "MeanAbsoluteError": _mean_absolute,
    "RootMeanSquareError": _root_mean_square,
    "MaxRelativeError": _max_relative,
    "MeanRelativeError": _mean_relative,
}
"""By name, in the order of their numbers."""
