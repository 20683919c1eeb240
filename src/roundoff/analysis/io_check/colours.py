"""Pictures that were converted from YUV with another matrix, another range, or U and V exchanged."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from roundoff.analysis.io_check.fitting import LinearFit, fit_colours
from roundoff.analysis.io_check.matching import Claim, PixelPairs, sample_pixels
from roundoff.core.io_check import Correction, InputChange
from roundoff.core.tensors import Array
from roundoff.data.processing.csc import MATRICES
from roundoff.preprocessing.conventions import Convention, conventions

__all__ = ["colour_claim"]

_MOST_FITTED = 60_000
# At least so much of the pixels must not be cut off at black or white.
_LEAST_KEPT, _NEARLY_ALL = 0.3, 0.995
# The mixture must explain all but this of the variance, and the named one all but little more than the fitted one.
_MOST_UNEXPLAINED, _SLACK = 2e-3, 1.3
_PROBES = 64
# Only usual ways to make numbers of pixels are tried on top.
_USUAL_COST = 0.45
# These are what the deployed side may have left undone.
_PLAIN = ("x", "x / 255")


@dataclass(frozen=True, slots=True)
class _Decoding:
    matrix: str
    exchanged: bool

    @property
    def text(self) -> str:
        return self.matrix + (" with U and V exchanged" if self.exchanged else "")


def colour_claim(pairs: PixelPairs, *, tolerance: float) -> Claim | None:
    """See whether two decodings of the same YUV differ by their matrix.

    Args:
        pairs: Pixels of both sides, three channels each.
        tolerance: Differences up to this do not count.
    """
    first, second = sample_pixels(pairs, _MOST_FITTED)
    if first.shape[1] != 3 or second.shape[1] != 3 or len(first) < 100:
        return None
    fit, kept = fit_colours(first, second)
    left, spread = first[kept] - fit.apply(second[kept]), first.std()
    if kept.mean() < _LEAST_KEPT or not spread or np.square(left).mean() > _MOST_UNEXPLAINED * spread**2:
        return None
    rms = float(np.sqrt(np.square(left).mean()))
    named = _best(fit, second[kept], max(_SLACK * rms, tolerance))
    if named is None:
        return None
    changes, linear = named
    error = np.abs(first[kept] - linear.apply(second[kept]))
    notes: tuple[str, ...] = ()
    if kept.mean() < _NEARLY_ALL:
        notes = (f"{1 - kept.mean():.0%} of the pixels are cut off at black or white and were left out",)
    residual = float(error.max())
    exact = residual <= tolerance
    return Claim(
        changes, linear, exact, True, False, residual, float(np.sqrt(np.square(error).mean())), spread, notes
    )


_REVERSED = InputChange("channel-order", "channels are in the opposite order (RGB against BGR)")


def _best(fit: LinearFit, pixels: Array, slack: float) -> tuple[tuple[InputChange, ...], LinearFit] | None:
    probes = pixels[:: max(1, len(pixels) // _PROBES)]
    wanted = fit.apply(probes)
    best: tuple[float, tuple[InputChange, ...], LinearFit] | None = None
    for cost, changes, linear in _candidates():
        if best is not None and cost >= best[0]:
            continue
        if np.sqrt(np.square(linear.apply(probes) - wanted).mean()) <= slack:
            best = (cost, changes, linear)
    return None if best is None else best[1:]


def _candidates() -> Iterator[tuple[float, tuple[InputChange, ...], LinearFit]]:
    """All pairs of decodings, with usual ways to make numbers of them; equal decodings are no difference."""
    for (one, other), reverse, (first, second) in itertools.product(_decodings(), (False, True), _numberings()):
        matrix, offset = _between(one, other)
        linear = _normalized(matrix, offset, first, second)
        if reverse:
            linear = LinearFit(linear.matrix[:, ::-1], linear.offset)
        text = f"training decodes YUV by {one.text}, the deployed side by {other.text}"
        facts = (("YUV matrix", one.matrix), *((("order of U and V", "exchanged"),) if other.exchanged else ()))
        change = InputChange("colour-matrix", text, Correction("conversion from YUV", one.text, facts))
        cost = first.cost + 0.1 * reverse + 0.1 * (one.exchanged + other.exchanged) + (first is not second)
        changes = (change, *((_REVERSED,) if reverse else ()))
        if first is not second:
            text = f"training has {first.text}, the deployed side {second.text}"
            changes = (*changes, InputChange("normalization", text))
        yield cost, changes, linear


def _numberings() -> list[tuple[Convention, Convention]]:
    """The same way to make numbers of pixels on both sides, or pixels as they are on the deployed one."""
    usual = [each for each in conventions(3) if each.cost <= _USUAL_COST and each.form in ("plain", "right")]
    plain = [each for each in usual if each.name in _PLAIN]
    return [(each, each) for each in usual] + [
        (one, other) for one in usual for other in plain if one is not other
    ]


def _decodings() -> Iterator[tuple[_Decoding, _Decoding]]:
    for one, other in itertools.product(MATRICES, repeat=2):
        for exchanged in (False, True):
            if one != other or exchanged:
                yield _Decoding(one, False), _Decoding(other, exchanged)


def _between(one: _Decoding, other: _Decoding) -> tuple[Array, Array]:
    """Training's colours from the deployed side's, as a matrix and an offset."""
    first, second = (np.array(MATRICES[each.matrix]).reshape(3, 4) for each in (one, other))
    if other.exchanged:
        second = second[:, [0, 2, 1, 3]]
    matrix = first[:, :3] @ np.linalg.inv(second[:, :3])
    return matrix, first[:, 3] - matrix @ second[:, 3]


def _normalized(matrix: Array, offset: Array, first: Convention, second: Convention) -> LinearFit:
    scaled = first.gain[:, None] * matrix / second.gain
    return LinearFit(scaled, first.gain * offset + first.offset - scaled @ second.offset)
