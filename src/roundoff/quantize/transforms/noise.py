"""How much noise rounding puts into a network, as a function of the factors of its channels.

Rounding to steps leaves an error of variance step^2 / 12, and a step is in proportion to the largest magnitude
that shares it. In the logarithms of the factors the noise of all scales together is convex (a sum of products of
powers), so that its least value is found by walking downhill. The largest magnitude is replaced by a power mean,
which has a slope everywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["DenseNoise", "NoiseTerm", "PairedNoise", "least_noise"]

_POWER = 16
"""Of the mean that stands for the largest magnitude: at 16, thousands of equal ones count as 1.7 of them."""

# Adam, with steps that become shorter to the end.
_FIRST_STEP, _DECAY, _SQUARE_DECAY = 0.3, 0.9, 0.99
# The search ends when so many steps together have brought less than this share.
_PATIENCE, _WORTHWHILE = 25, 1e-3
_TINY = float(np.finfo(np.float64).tiny)


class NoiseTerm(Protocol):
    """The noise of one scale."""

    def add_to(self, logarithms: Array, slope: Array) -> float:
        """The noise at factors whose logarithms are given; adds its slope to another array."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PairedNoise:
    """Noise of values that share one scale, each of which arises between one channel and one other.

    Attributes:
        magnitudes: Magnitudes of the values.
        times: Channels by whose factors they are multiplied, of the same shape.
        over: Channels by whose factors they are divided.
        cost: What a squared unit of the step costs at each of them, before anything is scaled.
    """

    magnitudes: Array
    times: Array
    over: Array
    cost: Array

    def add_to(self, logarithms: Array, slope: Array) -> float:
        """See `NoiseTerm`."""
        ratio = np.exp(logarithms[self.times] - logarithms[self.over])
        scaled = self.magnitudes * ratio
        top = float(scaled.max(initial=0.0))
        if not top:
            return 0.0
        shares = (scaled / top) ** _POWER
        total = float(shares.sum())
        costs = self.cost / ratio**2
        cost = float(costs.sum())
        value = (top * total ** (1 / _POWER)) ** 2 * cost
        if value:
            push = 2 * value * (shares / total - costs / cost)
            slope += np.bincount(self.times.ravel(), push.ravel(), slope.size)
            slope -= np.bincount(self.over.ravel(), push.ravel(), slope.size)
        return float(value)


@dataclass(frozen=True, slots=True, eq=False)
class DenseNoise:
    """Noise of a weight through which every input channel reaches every output channel.

    Attributes:
        powers: Magnitudes over their largest, to the power of the mean, [outputs, inputs].
        largest: The largest magnitude.
        inputs: Channels it reads, [inputs].
        outputs: Channels it writes, [outputs].
        energy: What a squared unit of the step costs by each input, [inputs].
        gain: How much a unit of noise in each output counts, [outputs].
        per_output: Whether each output has a scale of its own.
    """

    powers: Array
    largest: float
    inputs: Array
    outputs: Array
    energy: Array
    gain: Array
    per_output: bool

    @staticmethod
    def of(
        magnitudes: Array, *, inputs: Array, outputs: Array, energy: Array, gain: Array, per_output: bool
    ) -> "DenseNoise":
        """The noise of a weight with these magnitudes, [outputs, inputs]."""
        largest = float(magnitudes.max(initial=0.0))
        # Half the memory of float64; what is too small for float32 at this power is no largest magnitude.
        powers = ((magnitudes / (largest or 1.0)) ** _POWER).astype(np.float32)
        return DenseNoise(powers, largest, inputs, outputs, energy, gain, per_output)

    def add_to(self, logarithms: Array, slope: Array) -> float:
        """See `NoiseTerm`."""
        into, out = np.exp(logarithms[self.inputs]), np.exp(logarithms[self.outputs])
        energies, gains = self.energy / into**2, self.gain * out**2
        energy = float(energies.sum())
        by_output = (self.powers @ into**_POWER) / out**_POWER
        shared = by_output if self.per_output else np.full(by_output.shape, by_output.sum())
        alive = shared > 0
        # Squared steps of each output, and what they cost.
        squares = np.where(alive, shared, 0.0) ** (2 / _POWER) * self.largest**2
        costs = squares * gains
        value = float(costs.sum()) * energy
        if not value:
            return 0.0
        shares = np.where(alive, costs if self.per_output else costs.sum(), 0.0) / np.where(alive, shared, 1.0)
        towards = 2 * energy * (self.powers.T @ (shares / out**_POWER)) * into**_POWER
        slope += np.bincount(self.inputs, towards - 2 * value / energy * energies, slope.size)
        slope += np.bincount(self.outputs, 2 * energy * (costs - shares * by_output), slope.size)
        return value


def least_noise(
    terms: Sequence[NoiseTerm], *, free: Array, low: Array, high: Array, iterations: int
) -> tuple[Array, float, float]:
    """Find the factors that leave the least noise.

    Args:
        terms: The noise of all scales.
        free: Which channels may be scaled, bool of all that there are.
        low: Least logarithm of the factor of each.
        high: Largest logarithm of each.
        iterations: Steps at most.

    Returns:
        Logarithms of the factors, the noise when all are 1, and the least noise.
    """
    now = np.zeros(free.size)
    best, first, least = now, 0.0, np.inf
    mean, square = np.zeros(free.size), np.zeros(free.size)
    record = []
    for step in range(1, iterations + 1):
        slope = np.zeros(free.size)
        noise = sum(term.add_to(now, slope) for term in terms)
        if step == 1:
            first = noise
        if noise < least:
            best, least = now, noise
        record.append(least)
        if len(record) > _PATIENCE and least > (1 - _WORTHWHILE) * record[-_PATIENCE - 1]:
            break
        # Of the logarithm of the noise: then it does not matter how loud the network is.
        slope = np.where(free, slope / max(noise, _TINY), 0.0)
        mean = _DECAY * mean + (1 - _DECAY) * slope
        square = _SQUARE_DECAY * square + (1 - _SQUARE_DECAY) * slope**2
        length = np.sqrt(square / (1 - _SQUARE_DECAY**step)) + _TINY
        rate = _FIRST_STEP * (1 - step / (iterations + 1)) / (1 - _DECAY**step)
        now = np.where(free, np.clip(now - rate * mean / length, low, high), 0.0)
    return best, first, least
