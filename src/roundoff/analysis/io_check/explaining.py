"""Naming the transformation that maps one side's values onto the other's."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from roundoff.analysis.io_check.colours import colour_claim
from roundoff.analysis.io_check.conventions import MeanStd
from roundoff.analysis.io_check.matching import Claim, better
from roundoff.analysis.io_check.readings import picture_of, readings
from roundoff.analysis.io_check.searching import PictureSearch
from roundoff.analysis.io_check.vectors import vector_claims
from roundoff.core.io_check import Explanation
from roundoff.core.tensors import Array

__all__ = ["EXCLUDED", "differences", "explain_difference"]

EXCLUDED = (
    "order of channels",
    "layout, transposed or mirrored pictures, shifts of up to 6 pixels",
    "range, mean and std (missing, doubled, in a wrong order or unit), any gain and offset per channel",
    "int8 against uint8, byte order, element type, padded rows",
    "borders of letterboxed pictures",
    "matrix and range of YUV, U and V exchanged",
)
"""What the search covers without an original, in words."""


def explain_difference(
    training: Array | Sequence[Array],
    deployed: Array | Sequence[Array],
    *,
    tolerance: float = 1e-4,
    known: Iterable[MeanStd] = (),
) -> Explanation | None:
    """Find what maps the deployed side onto training's.

    Args:
        training: One array, or one for each sample.
        deployed: The same of the deployed side, in the same order.
        tolerance: Largest absolute difference that does not count.
        known: Means and stds of values from 0 to 1 that training may have used, beside the well-known ones.

    Returns:
        The transformation of fewest steps that leaves no difference beyond the tolerance on any sample, or next to
        none; None when both sides agree, and when nothing explains the difference.
    """
    first, second = _as_list(training), _as_list(deployed)
    if not first or len(first) != len(second) or 0 in (first[0].size, second[0].size):
        return None
    worst, rms = differences(first, second)
    if worst <= tolerance:
        return None
    accepted: list[Claim] = []
    for claim in _claims(first, second, tolerance=tolerance, rms=rms, known=tuple(known)):
        if claim.accepted:
            accepted.append(claim)
            if claim.exact and not claim.plain:
                break
    if not accepted:
        return None
    accepted.sort(key=better)
    best = accepted[0]
    others = [
        "; ".join(change.text for change in claim.changes)
        for claim in accepted[1:]
        if (claim.exact, len(claim.changes), claim.plain) == (best.exact, len(best.changes), best.plain)
    ]
    return Explanation(
        changes=best.changes,
        exact=best.exact,
        before=worst,
        residual=best.residual,
        residual_rms=best.rms,
        samples=len(first),
        alternatives=tuple(dict.fromkeys((*best.alternatives, *others))),
        notes=best.notes,
    )


def differences(training: Sequence[Array], deployed: Sequence[Array]) -> tuple[float, float | None]:
    """Largest absolute difference and root mean square over all samples; infinite and None where shapes differ.

    Values that are not finite are equal when both sides have the same.
    """
    worst, square, count = 0.0, 0.0, 0
    for one, other in zip(training, deployed, strict=True):
        if one.shape != other.shape:
            return np.inf, None
        with np.errstate(invalid="ignore", over="ignore"):
            wanted, had = one.astype(np.float64), other.astype(np.float64)
            error = np.abs(wanted - had)
        same = (wanted == had) | (np.isnan(wanted) & np.isnan(had))
        error = np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))
        worst = max(worst, float(error.max(initial=0)))
        finite = error[np.isfinite(error)]
        square += float(np.square(finite).sum())
        count += finite.size
    return worst, float(np.sqrt(square / max(count, 1)))


def _claims(
    training: Sequence[Array],
    deployed: Sequence[Array],
    *,
    tolerance: float,
    rms: float | None,
    known: tuple[MeanStd, ...],
) -> Iterator[Claim]:
    pictures = picture_of(training[0].shape)
    if pictures:
        search = PictureSearch(training, deployed, tolerance, rms, known)
        yield from search.claims()
        yield from _colour_claims(training, deployed, tolerance=tolerance)
    else:
        yield from vector_claims(training, deployed, tolerance=tolerance, before_rms=rms)


def _colour_claims(training: Sequence[Array], deployed: Sequence[Array], *, tolerance: float) -> Iterator[Claim]:
    for layout, view in picture_of(training[0].shape):
        picture = view(training[0])
        if picture.shape[2] != 3:
            continue
        for reading in readings(layout, (picture.shape[0], picture.shape[1], 3), deployed[0].shape):
            if len(reading.changes) > 1 or reading.view(deployed[0]).shape != picture.shape:
                continue
            pairs = [
                (view(one).reshape(-1, 3), reading.view(other).reshape(-1, 3))
                for one, other in zip(training, deployed, strict=True)
            ]
            claim = colour_claim(pairs, tolerance=tolerance)
            if claim is not None:
                from dataclasses import replace

                yield replace(claim, changes=(*reading.changes, *claim.changes))


def _as_list(arrays: Array | Sequence[Array]) -> list[Array]:
    return [arrays] if isinstance(arrays, np.ndarray) else list(arrays)
