"""Gains and offsets between two pictures: which channel is which, and what no straight line explains."""

import itertools
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["ChannelFit", "LinearFit", "best_order", "fit_channels", "fit_colours"]

# A channel that varies less than this part of its size is constant.
_CONSTANT = 1e-6
# Robust fitting drops what is off by more than this many times the median error, and looks again this often.
_OUTLYING, _ROUNDS = 6.0, 4
_MOST_EXHAUSTIVE = 4
# Values beyond this come from bytes of another type.
_ABSURD = 1e30


@dataclass(frozen=True, slots=True)
class ChannelFit:
    """Which channel of the one side each channel of the other is, and how well.

    Attributes:
        order: For each channel of training, the channel of the deployed side.
        unexplained: Share of training's variance that the best straight line per channel leaves.
        ties: Other orders that do equally well.
    """

    order: tuple[int, ...]
    unexplained: float
    ties: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class LinearFit:
    """Training is `matrix` times the deployed side plus `offset`, both over channels.

    Attributes:
        matrix: float64 [training's channels, deployed channels].
        offset: float64 [training's channels].
    """

    matrix: Array
    offset: Array

    def apply(self, pixels: Array) -> Array:
        """Map [..., deployed channels] to float64 [..., training's channels]."""
        mapped: Array = pixels.astype(np.float64) @ self.matrix.T + self.offset
        return mapped


def best_order(training: Array, deployed: Array) -> ChannelFit | None:
    """Pair channels by correlation.

    Args:
        training: float64 [pixels, channels].
        deployed: float64 [pixels, channels], maybe of another number.

    Returns:
        None when training's values do not vary, or the deployed side's do not.
    """
    if np.abs(deployed).max(initial=0) > _ABSURD:
        return None
    spread_a, spread_b = training.var(axis=0), deployed.var(axis=0)
    varying = spread_a > (_CONSTANT * np.abs(training).max(axis=0, initial=0)) ** 2
    if not varying.any() or not (spread_b > 0).any():
        return None
    centred_a, centred_b = training - training.mean(axis=0), deployed - deployed.mean(axis=0)
    shared = centred_a.T @ centred_b / len(training)
    with np.errstate(divide="ignore", invalid="ignore"):
        explained = np.where(spread_b > 0, shared**2 / np.where(spread_b > 0, spread_b, 1), 0)
    left = np.where(varying[:, None], np.maximum(spread_a[:, None] - explained, 0), 0)
    total = spread_a[varying].sum()
    scores = {order: float(sum(left[i, j] for i, j in enumerate(order))) / total for order in _orders(left.shape)}
    if not scores:
        return None
    best = min(scores.values())
    # Rounding of sums of squares is about this large.
    equal = [order for order, score in scores.items() if score <= 1.5 * best + 1e-12]
    return ChannelFit(equal[0], scores[equal[0]], tuple(equal[1:]))


def _orders(shape: tuple[int, int]) -> list[tuple[int, ...]]:
    """Assignments to try, the plainest first."""
    wanted, had = shape
    if had == 1:
        return [(0,) * wanted]
    plain = tuple(range(wanted)) if wanted <= had else ()
    if wanted > had:
        return []
    if had > _MOST_EXHAUSTIVE:
        return [plain, plain[::-1]] if wanted == had else [plain]
    turned = plain[:3][::-1] + plain[3:]
    first = list(dict.fromkeys((plain, turned)))
    return first + [order for order in itertools.permutations(range(had), wanted) if order not in first]


def fit_channels(training: Array, deployed: Array, order: tuple[int, ...]) -> LinearFit:
    """The best gain and offset of each channel, in the order given; float64 [pixels, channels] both."""
    matrix = np.zeros((training.shape[1], deployed.shape[1]))
    offset = np.zeros(training.shape[1])
    for channel, source in enumerate(order):
        values, wanted = deployed[:, source], training[:, channel]
        spread = values.var()
        if spread == 0 or wanted.var() == 0:
            gain = 1.0
        else:
            gain = float(((values - values.mean()) * (wanted - wanted.mean())).mean() / spread)
        matrix[channel, source] = gain
        offset[channel] = wanted.mean() - gain * values.mean()
    return LinearFit(matrix, offset)


def fit_colours(training: Array, deployed: Array) -> tuple[LinearFit, Array]:
    """The best mixture of all channels, with pixels left out that were cut off at a limit.

    Returns:
        The fit, and which pixels it holds for.
    """
    kept = np.ones(len(training), bool)
    for side in (training, deployed):
        for channel in side.T:
            kept &= (channel > channel.min()) & (channel < channel.max())
    design = np.column_stack([deployed, np.ones(len(deployed))])
    solution = np.zeros((design.shape[1], training.shape[1]))
    for _ in range(_ROUNDS):
        if kept.sum() < 4 * design.shape[1]:
            break
        solution = np.linalg.lstsq(design[kept], training[kept], rcond=None)[0]
        error = np.abs(training - design @ solution).max(axis=1)
        limit = _OUTLYING * np.median(error[kept]) + 1e-9
        if (kept & (error > limit)).sum() == 0:
            break
        kept &= error <= limit
    return LinearFit(solution[:-1].T, solution[-1]), kept
