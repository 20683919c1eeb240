"""Random combinations of outputs, and what errors they show.

For a vector v of independent standard normal numbers, v . e is normal with the variance |e|^2, whatever the error
e is. The mean of P such squares is |e|^2 times a chi-squared number of P degrees over P: right on average itself,
while its logarithm and its root are off by amounts that are known, and taken out here.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from roundoff.core.moments import PairMoments, SideMoments
from roundoff.core.tensors import Array
from roundoff.metrics.registry import Metric

__all__ = [
    "ESTIMATED",
    "OutputProbes",
    "ProbedOutput",
    "estimated_score",
    "logarithm_offset",
    "probed_output",
    "probes_of",
    "root_factor",
]

ESTIMATED = ("sqnr_db", "mse", "rmse", "relative_euclidean", "cosine")
"""Metrics that can be estimated: functions of the energy of the error; the cosine also of its direction."""

_EULER = 0.5772156649015329
_ROOTS = frozenset({"rmse", "relative_euclidean"})


@dataclass(frozen=True, slots=True)
class OutputProbes:
    """How one output is probed.

    Attributes:
        size: Elements in one sample.
        count: Vectors.
        basis: They pick single elements, all of them, so that nothing is left to chance.
        direction: One more probe is the output itself: the part of the error along it.
    """

    size: int
    count: int
    basis: bool
    direction: bool

    def draw(self, rng: np.random.Generator) -> Array:
        """Vectors for one sample, of shape (vectors, elements), float32."""
        if self.basis:
            return np.eye(self.size, dtype=np.float32)
        return rng.standard_normal((self.count, self.size), dtype=np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class ProbedOutput:
    """What scores need to know of an output in one sample.

    Attributes:
        probes: How it was probed.
        square: The energy of the output.
        crossed: The product of each vector with the output.
    """

    probes: OutputProbes
    square: float
    crossed: Array


def probed_output(probes: OutputProbes, output: Array, vectors: Array) -> ProbedOutput:
    """What to keep of an output, given its elements and the vectors."""
    with np.errstate(over="ignore", invalid="ignore"):
        wide = output.astype(np.float64)
        return ProbedOutput(probes, float(wide @ wide), vectors @ wide)


def probes_of(size: int, wanted: int, *, direction: bool) -> OutputProbes:
    """How to probe an output of so many elements with about so many vectors."""
    basis = size <= wanted + direction
    return OutputProbes(size, size if basis else wanted, basis, direction and not basis)


@lru_cache
def logarithm_offset(count: int) -> float:
    """Mean of the natural logarithm of a chi-squared number of so many degrees over that many."""
    half = count / 2
    # The digamma function of a whole or half number.
    if count % 2:
        digamma = -_EULER - 2 * math.log(2) + sum(2 / (2 * step - 1) for step in range(1, count // 2 + 1))
    else:
        digamma = -_EULER + sum(1 / step for step in range(1, count // 2))
    return digamma - math.log(half)


@lru_cache
def root_factor(count: int) -> float:
    """Mean of the root of a chi-squared number of so many degrees over that many."""
    return math.sqrt(2 / count) * math.exp(math.lgamma((count + 1) / 2) - math.lgamma(count / 2))


def estimated_score(metric: Metric, output: ProbedOutput, *, seen: Array, along: float) -> float:
    """A metric in one sample, from what probes saw of the error.

    Args:
        metric: One of `ESTIMATED`.
        output: The output.
        seen: The product of each vector with the error.
        along: The product of the output itself with the error; unused where the vectors pick single elements.
    """
    probes, square = output.probes, output.square
    energy = float(seen @ seen) / (1 if probes.basis else probes.count)
    if probes.basis:
        # The vectors see the output, element by element, and the error alike.
        along = float(output.crossed @ seen)
    elif metric.name == "cosine":
        # The part along the output is known; the vectors tell what is left.
        share = along / square if square else 0.0
        across = seen - output.crossed * share
        energy = float(across @ across) / probes.count + along * share
    elif metric.name == "sqnr_db":
        energy /= math.exp(logarithm_offset(probes.count))
    elif metric.name in _ROOTS:
        energy /= root_factor(probes.count) ** 2
    if not (math.isfinite(energy) and math.isfinite(square)):
        return math.nan
    product = square + along
    return metric.compute(
        PairMoments(
            count=probes.size,
            reference=SideMoments(square=square),
            candidate=SideMoments(square=max(0.0, 2 * product - square + energy)),
            product=product,
            square_error=energy,
        )
    )
