"""How much of the difficulty of a product goes from its activations into its weights."""

from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["LARGEST_FACTOR", "Balance", "Reader", "best_alpha", "expected_noise", "smoothing_factors"]

LARGEST_FACTOR = 1e3
"""Factors stay between this and one over it, against their geometric mean: beyond, floats of 16 bits overflow."""

_STRENGTHS = tuple(np.arange(0.3, 0.86, 0.05).round(2).tolist())
# Values of a channel are taken for normal, with their largest at three times their spread.
_PEAK_TO_SPREAD = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """A layer that reads channels.

    Attributes:
        channels: Which channel each of its inputs is, int64 [K]; -1 for those that cannot be scaled.
        peaks: Largest magnitude of each input, float64 [K].
        reads: The channel that each place of the weight reads, int64 of the shape of its first two axes.
        matrix: Largest magnitude of the weight at each of these places, of the same shape.
        rows: The output channel of each place, of the same shape.
    """

    channels: Array
    peaks: Array
    reads: Array
    matrix: Array
    rows: Array


@dataclass(frozen=True, slots=True, eq=False)
class Balance:
    """Channels that are scaled together, and who reads them.

    Attributes:
        count: Number of channels, which are counted from 0.
        readers: Who reads them.
        per_channel: Whether weights have a scale for each output channel.
    """

    count: int
    readers: tuple[Reader, ...]
    per_channel: bool

    def largest(self, *, weights: bool) -> Array:
        """Largest magnitude of each channel in what is read, or in the weights of all who read it."""
        found = np.zeros(self.count + 1)
        for reader in self.readers:
            places, values = (reader.reads, reader.matrix) if weights else (reader.channels, reader.peaks)
            np.maximum.at(found, places.ravel(), values.ravel())
        return found[:-1]


def smoothing_factors(balance: Balance, alpha: float) -> Array:
    """What each channel is divided by: ``max|X|^alpha / max|W|^(1 - alpha)``, of geometric mean 1.

    Channels in which nothing happens, or which nobody weighs, have the factor 1.
    """
    activations, weights = balance.largest(weights=False), balance.largest(weights=True)
    alive = (activations > 0) & (weights > 0)
    factors = np.ones(balance.count)
    if not alive.any():
        return factors
    logarithms = alpha * np.log(activations[alive]) - (1 - alpha) * np.log(weights[alive])
    logarithms -= logarithms.mean()
    factors[alive] = np.exp(np.clip(logarithms, -np.log(LARGEST_FACTOR), np.log(LARGEST_FACTOR)))
    return factors


def best_alpha(balance: Balance) -> float:
    """The migration strength with the least noise in the results, as far as largest magnitudes tell."""
    return float(min(_STRENGTHS, key=lambda alpha: expected_noise(balance, smoothing_factors(balance, alpha))))


def expected_noise(balance: Balance, factors: Array) -> float:
    """Energy of rounding errors in what all readers compute, against the energy of what they compute.

    Rounding a value to steps leaves an error of variance step^2 / 12; steps are in proportion to the largest
    magnitude that has one scale. Activations have one scale.
    """
    scale = np.append(factors, 1.0)
    total = 0.0
    for reader in balance.readers:
        peaks = reader.peaks / scale[reader.channels]
        weight = reader.matrix * scale[reader.reads]
        # What each place of the weight is multiplied with, as a spread.
        table = np.zeros(scale.size)
        np.maximum.at(table, reader.channels, peaks)
        spread = table[reader.reads] / _PEAK_TO_SPREAD
        largest = np.full(int(reader.rows.max()) + 1, weight.max())
        if balance.per_channel:
            largest = np.zeros(largest.size)
            np.maximum.at(largest, reader.rows.ravel(), weight.ravel())
        signal = float(np.square(weight * spread).sum())
        by_activations = float(np.square(weight).sum()) * float(peaks.max(initial=0.0)) ** 2
        by_weights = float((np.square(largest)[reader.rows] * np.square(spread)).sum())
        total += (by_activations + by_weights) / signal if signal else 0.0
    return total
