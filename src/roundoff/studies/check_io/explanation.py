"""Naming the transformation that maps one side's values onto the other's."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.tensors import Array
from roundoff.measure.statistics import release_pages, split_blocks
from roundoff.messages.message import NOTHING, Message, joined, message, verbatim
from roundoff.preprocessing.conventions import MeanStd
from roundoff.studies.check_io.candidates import (
    Candidate,
    Claim,
    ClaimCriteria,
    best_order,
    better,
    fit_channels,
    sample_pixels,
    verify,
)
from roundoff.studies.check_io.colours import colour_claims, colours_tried, left_in_place
from roundoff.studies.check_io.layouts import Box, is_padding, layout_change, picture_of, readings
from roundoff.studies.check_io.origins import find_origin
from roundoff.studies.check_io.result import Correction, Explanation, IoChange
from roundoff.studies.check_io.search import PictureSearch, vector_claims, vector_tried

RESIZED_OTHERWISE = "check_io.same_thing"
"""The key of what is said of pictures that nothing explains and that look alike."""

# Pictures of so many values or more that correlate so much show the same.
_ALIKE, _FEWEST = 0.6, 64
# Values that are looked at for that.
_MOST_LOOKED_AT = 1 << 20
# What leaves no more than this part of a difference is worth a word.
_NEAR = 0.25
# Under noise a change must leave no more than this part of what is left without it, and of the values themselves;
# changes that leave nearly as little are not told apart.
_CLEARLY, _STILL_SEEN, _TIED = 0.5, 0.25, 1.1
# Changes of numbers that leave every value where it is.
_NUMBERS = frozenset({"range", "normalization"})
_MOST_LINE = 100_000
# So many places of a smaller picture in a larger one are all looked at, at so many pixels; of more only corners
# and middle.
_MOST_OFFSETS, _PROBED = 2000, 256


def excluded(
    training: Sequence[Array], deployed: Sequence[Array], *, pictures: bool = True
) -> tuple[Message, ...]:
    """What the search tried between two sides: no more than these arrays allow."""
    one, other = training[0], deployed[0]
    if not _consistent(training) or not _consistent(deployed) or 0 in (one.size, other.size):
        return ()
    if pictures and picture_of(one.shape):
        tried = [*PictureSearch(training, deployed, ClaimCriteria(0.0)).tried()]
        for pairs, _ in _colour_pairs(training, deployed):
            tried += colours_tried(pairs)
        views = [view for _, view in picture_of(other.shape)]
        sizes = {view(other).shape[:2] for view in views} - {picture_of(one.shape)[0][1](one).shape[:2]}
        tried += ["size"] if sizes else []
    else:
        tried = [*vector_tried(one, other)]
    tried += ["digits"] if one.shape == other.shape else []
    return tuple(message(f"check_io.excluded_{each}") for each in dict.fromkeys(tried))


def explain_difference(
    training: Array | Sequence[Array],
    deployed: Array | Sequence[Array],
    *,
    tolerance: float = 1e-4,
    known: Iterable[MeanStd] = (),
    pictures: bool = True,
) -> Explanation | None:
    """Find what maps the deployed side onto training's.

    Args:
        training: One array, or one for each sample.
        deployed: The same of the deployed side, in the same order.
        tolerance: Largest absolute difference that does not count.
        known: Means and stds of values from 0 to 1 that training may have used, beside the well-known ones.
        pictures: Whether arrays that could be pictures are.

    Returns:
        The transformation of fewest steps that leaves no difference beyond the tolerance on any sample, or next to
        none; None when both sides agree, and when nothing explains the difference.
    """
    return search_difference(training, deployed, tolerance=tolerance, known=known, pictures=pictures)[0]


def search_difference(
    training: Array | Sequence[Array],
    deployed: Array | Sequence[Array],
    *,
    tolerance: float,
    known: Iterable[MeanStd] = (),
    pictures: bool = True,
) -> tuple[Explanation | None, Message]:
    """As `explain_difference`, with a word on what comes nearest where nothing explains the difference."""
    first, second = rows_of(training, deployed)
    if not first or 0 in (first[0].size, second[0].size) or not _consistent(first) or not _consistent(second):
        return None, NOTHING
    worst, rms = differences(first, second)
    if worst <= tolerance:
        return None, NOTHING
    judging = ClaimCriteria(tolerance, rms, tuple(known))
    # Bytes that are read as another type may be any number, or none.
    with np.errstate(all="ignore"):
        claims = _sorted(_claims(first, second, judging, pictures=pictures))
        accepted = [claim for claim in claims if claim.accepted]
        if accepted:
            return _explanation(accepted[0], accepted[1:], worst, samples=len(first)), NOTHING
        explanation = (
            _by_precision(first, second, worst, rms)
            or _by_cropping(first, second, judging)
            or _by_size(first, second, judging)
            or _under_noise(claims, first, second, before=(worst, rms))
        )
    return explanation, NOTHING if explanation is not None else _nearest(claims, rms)


def _under_noise(
    claims: Sequence[Claim],
    training: Sequence[Array],
    deployed: Sequence[Array],
    *,
    before: tuple[float, float | None],
) -> Explanation | None:
    """A change with noise, JPEG or resampling on top: it leaves far less than all that is no such change.

    Only claims without fitted numbers count. What moves values about has to beat every line and small filter in
    place, what only makes other numbers of them has to beat no change: noise alone is beaten by neither.
    """
    worst, rms = before
    named = [each for each in claims if each.changes and not each.guessed]
    if not named:
        return None
    least = min(each.rms for each in named)
    tied = [each for each in named if each.rms <= _TIED * least]
    best = min(tied, key=lambda each: (len(each.changes), each.rms))
    control = best.spread if rms is None else min(rms, best.spread)
    if rms is not None and not {change.kind for change in best.changes} <= _NUMBERS:
        control = min(control, _in_place(training, deployed, control))
    if best.rms > _CLEARLY * control or best.rms > _STILL_SEEN * best.spread:
        return None
    note = message("check_io.left_is_noise", control=f"{control:.3g}", after=f"{best.rms:.3g}")
    others = [each for each in tied if each is not best and len(each.changes) == len(best.changes)]
    told = replace(best, notes=(*best.notes, note), exact=False)
    return _explanation(told, [replace(each, exact=False) for each in others], worst, samples=len(training))


def _in_place(training: Sequence[Array], deployed: Sequence[Array], most: float) -> float:
    """What values of one shape leave that stay where they are, by lines and small filters."""
    pairs = list(zip(training, deployed, strict=True))
    for _, view in picture_of(training[0].shape):
        left = left_in_place((view(one), view(other)) for one, other in pairs)
        if left is not None:
            return left
    first, second = sample_pixels(((one.reshape(-1, 1), other.reshape(-1, 1)) for one, other in pairs), _MOST_LINE)
    line = fit_channels(first, second, (0,)) if len(first) else None
    return most if line is None else float(np.sqrt(np.square(first - line.apply(second)).mean()))


def _nearest(claims: Sequence[Claim], before: float | None) -> Message:
    """What takes most of the difference away without explaining it."""
    if before is None:
        return NOTHING
    near = [
        claim
        for claim in claims
        if claim.changes and not claim.plain and claim.rms <= _NEAR * min(before, claim.spread)
    ]
    if not near:
        return NOTHING
    best = min(near, key=lambda claim: claim.rms)
    changes = joined(change.text for change in best.changes)
    return message("check_io.nearest", changes=changes, before=f"{before:.3g}", after=f"{best.rms:.3g}")


def _sorted(claims: Iterator[Claim]) -> list[Claim]:
    """Claims, the best first; the search ends with one that leaves nothing and has a name."""
    found: list[Claim] = []
    for claim in claims:
        found.append(claim)
        # Of functions all are tried: several may give the same.
        if claim.accepted and claim.exact and not claim.plain and claim.changes[-1].kind != "activation":
            break
    return sorted(found, key=better)


def rows_of(
    training: Array | Sequence[Array], deployed: Array | Sequence[Array]
) -> tuple[list[Array], list[Array]]:
    """Both sides as lists of samples; batches of the same size are taken apart.

    Raises:
        ValueError: There are not equally many on both sides.
    """
    first, second = _as_list(training), _as_list(deployed)
    if len(first) != len(second):
        raise ValueError(f"{len(first)} arrays of training, {len(second)} of the deployed side")
    ones: list[Array] = []
    others: list[Array] = []
    for one, other in zip(first, second, strict=True):
        if one.ndim >= 4 and other.ndim == one.ndim and one.shape[0] == other.shape[0] > 1:
            ones += [row[np.newaxis] for row in one]
            others += [row[np.newaxis] for row in other]
        else:
            ones.append(one)
            others.append(other)
    return ones, others


def similarity_note(training: Sequence[Array], deployed: Sequence[Array]) -> Message:
    """What can be said of pictures that nothing explains; empty when nothing can."""
    one, other = training[0], deployed[0]
    if one.shape != other.shape or one.size < _FEWEST:
        return NOTHING
    step = -(-one.size // _MOST_LOOKED_AT) | 1
    first, second = (each.reshape(-1)[::step].astype(np.float64) for each in (one, other))
    if not (np.ptp(first) and np.ptp(second)):
        return NOTHING
    with np.errstate(invalid="ignore", over="ignore"):
        related = float(np.corrcoef(first, second)[0, 1])
    return message(RESIZED_OTHERWISE, value=f"{related:.4f}") if related > _ALIKE else NOTHING


def _claims(
    training: Sequence[Array], deployed: Sequence[Array], judging: ClaimCriteria, *, pictures: bool
) -> Iterator[Claim]:
    if pictures and picture_of(training[0].shape):
        yield from PictureSearch(training, deployed, judging).claims()
        yield from _colour_claims(training, deployed, judging)
    else:
        yield from vector_claims(training, deployed, judging)


def _colour_claims(
    training: Sequence[Array], deployed: Sequence[Array], judging: ClaimCriteria
) -> Iterator[Claim]:
    for pairs, changes in _colour_pairs(training, deployed):
        for claim in colour_claims(pairs, tolerance=judging.tolerance, known=judging.known):
            yield replace(claim, changes=(*changes, *claim.changes))


def _colour_pairs(
    training: Sequence[Array], deployed: Sequence[Array]
) -> Iterator[tuple[list[tuple[Array, Array]], tuple[IoChange, ...]]]:
    """Pictures of both sides that lie pixel on pixel, in each layout, and what differs when they are read so."""
    for layout, view in picture_of(training[0].shape):
        height, width, count = view(training[0]).shape
        for channels in dict.fromkeys((count, 1, 3)):
            for reading in readings(layout, (height, width, channels), deployed[0].shape):
                seen = reading.view(deployed[0])
                if len(reading.changes) <= 1 and seen.shape == (height, width, channels):
                    both = zip(training, deployed, strict=True)
                    yield [(view(one), reading.view(other)) for one, other in both], reading.changes


def _explanation(best: Claim, others: Sequence[Claim], before: float, *, samples: int) -> Explanation:
    equal = [
        joined(change.text for change in claim.changes)
        for claim in others
        if (claim.exact, len(claim.changes), claim.plain) == (best.exact, len(best.changes), best.plain)
        and claim.changes != best.changes
    ]
    return Explanation(
        changes=best.changes,
        exact=best.exact,
        before=before,
        residual=best.residual,
        residual_rms=best.rms,
        samples=samples,
        alternatives=tuple(dict.fromkeys((*best.alternatives, *equal))),
        notes=best.notes,
    )


def _by_precision(
    training: Sequence[Array], deployed: Sequence[Array], worst: float, rms: float | None
) -> Explanation | None:
    """Values that were only rounded; nothing can be undone, so all of the difference is left."""
    change = precision_change(training, deployed)
    if change is None or rms is None:
        return None
    note = message("check_io.rounding_left")
    return Explanation((change,), False, worst, worst, rms, len(training), notes=(note,))


def _by_cropping(
    training: Sequence[Array], deployed: Sequence[Array], judging: ClaimCriteria
) -> Explanation | None:
    """Pictures of different sizes: those of one side are a part of the other's."""
    for (wanted, view), (had, seen) in itertools.product(
        picture_of(training[0].shape), picture_of(deployed[0].shape)
    ):
        ours, theirs = [view(each) for each in training], [seen(each) for each in deployed]
        fewer = "deployed" if ours[0].size > theirs[0].size else "training"
        large, small = (ours[0], theirs[0]) if fewer == "deployed" else (theirs[0], ours[0])
        box = _place_in(large, small)
        if box is None or (fewer == "deployed" and is_padding(large, box)):
            continue  # a letterbox, which is found by the size
        cut = (box.cut, _whole) if fewer == "deployed" else (_whole, box.cut)
        pairs = [(_lines(cut[0](one)), _lines(cut[1](other))) for one, other in zip(ours, theirs, strict=True)]
        fit = best_order(*sample_pixels(pairs, _MOST_LINE))
        claim = None if fit is None else verify(Candidate((), lambda pairs=pairs: pairs, fit), judging)  # type: ignore[misc]
        if claim is None or not claim.proven:
            continue
        size, part = f"{large.shape[0]}x{large.shape[1]}", _part(large.shape, box)
        value = message("check_io.set_no_crop", size=size) if fewer == "deployed" else part
        text = message(f"check_io.cropped_{fewer}", part=part, size=size)
        change = IoChange("placement", text, Correction(message("check_io.set_crop"), value))
        layout = () if wanted == had else (layout_change(wanted, had),)
        told = replace(claim, changes=(*layout, change, *claim.changes))
        return _explanation(told, (), np.inf, samples=len(training))
    return None


def _whole(pixels: Array) -> Array:
    return pixels


def _lines(pixels: Array) -> Array:
    return pixels.reshape(-1, pixels.shape[2])


def _place_in(large: Array, small: Array) -> Box | None:
    """Where a picture most likely lies in a larger one; None where it cannot."""
    height, width = small.shape[:2]
    down, right = large.shape[0] - height, large.shape[1] - width
    if min(down, right) < 0 or not down + right or height * width < _FEWEST:
        return None
    places: Iterable[tuple[int, int]] = itertools.product(range(down + 1), range(right + 1))
    if (down + 1) * (right + 1) > _MOST_OFFSETS:
        places = itertools.product({0, down // 2, down}, {0, right // 2, right})
    chosen = np.random.default_rng(0).integers(0, height * width, _PROBED)
    rows, columns = np.divmod(chosen, width)
    pixels = small[rows, columns].astype(np.float64)
    best: tuple[float, Box | None] = math.inf, None
    for top, left in places:
        fit = best_order(large[rows + top, columns + left].astype(np.float64), pixels)
        if fit is not None and fit.unexplained < best[0]:
            best = fit.unexplained, Box(top, top + height, left, left + width)
    return best[1]


def _part(shape: tuple[int, ...], box: Box) -> Message:
    """Rows and columns of a picture, by their numbers from 0."""
    ends = (("rows", box.top, box.bottom, shape[0]), ("columns", box.left, box.right, shape[1]))
    told = [
        message(f"check_io.part_{what}", first=first, last=behind - 1)
        for what, first, behind, size in ends
        if behind - first < size
    ]
    return joined(told, key="check_io.lies_and")


def _by_size(training: Sequence[Array], deployed: Sequence[Array], judging: ClaimCriteria) -> Explanation | None:
    """Pictures of different sizes: training's are made from the deployed side's."""
    wanted, had = picture_of(training[0].shape), picture_of(deployed[0].shape)
    if not wanted or not had:
        return None
    for _, view in had:
        sources = [view(each) for each in deployed]
        if view(deployed[0]).shape[:2] == wanted[0][1](training[0]).shape[:2]:
            continue
        origin = find_origin(sources, training, judging)
        if origin is None or not origin.claim.proven or not origin.pipeline.words():
            continue
        height, width = sources[0].shape[:2]
        steps = joined(origin.pipeline.words(), key="terminal.comma")
        text = message("check_io.pixels_in_training", size=f"{height}x{width}", steps=steps)
        size = IoChange("resize", text, Correction(message("check_io.set_size"), steps))
        changes = (size, *origin.arranged, *(c for c in origin.claim.changes if c not in origin.arranged))
        claim = origin.claim
        return Explanation(
            changes, claim.exact, np.inf, claim.residual, claim.rms, len(training), origin.rivals, claim.notes
        )
    return None


def _consistent(arrays: Sequence[Array]) -> bool:
    """Whether all samples have one shape, so that what holds for one can hold for all."""
    return all(array.shape == arrays[0].shape and array.dtype.kind in "biuf" for array in arrays)


def _as_list(arrays: Array | Sequence[Array]) -> list[Array]:
    return [arrays] if isinstance(arrays, np.ndarray) else list(arrays)


# Values of a block: as float64 with what is computed of them a few MiB.
_BLOCK = 1 << 18
# Mapped pages are given back each time so many blocks have been read.
_RELEASED = 16


def blocks(array: Array) -> Iterator[Array]:
    """An array in parts, as float64."""
    for number, part in enumerate(split_blocks(array.shape, _BLOCK), 1):
        yield _exact(array[part.index])
        if number % _RELEASED == 0:
            release_pages(array)
    release_pages(array)


def paired_blocks(one: Array, other: Array) -> Iterator[tuple[Array, Array]]:
    """Two arrays of one shape in parts, as float64."""
    for number, part in enumerate(split_blocks(one.shape, _BLOCK), 1):
        yield _exact(one[part.index]), _exact(other[part.index])
        if number % _RELEASED == 0:
            release_pages(one)
            release_pages(other)
    release_pages(one)
    release_pages(other)


def _exact(part: Array) -> Array:
    # Bytes that are no numbers may be signalling ones.
    with np.errstate(invalid="ignore", over="ignore"):
        return part.astype(np.float64)


@dataclass(frozen=True, slots=True)
class ArrayDistance:
    """How far two arrays are apart.

    Attributes:
        worst: Largest absolute difference; infinite where one side alone is not finite.
        square: Sum of the squares of finite differences.
        finite: How many of these there are.
        total: Sum of absolute differences; not finite where values are not.
        count: How many values there are.
    """

    worst: float = 0.0
    square: float = 0.0
    finite: int = 0
    total: float = 0.0
    count: int = 0

    def merge(self, other: "ArrayDistance") -> "ArrayDistance":
        """Both together."""
        return ArrayDistance(
            max(self.worst, other.worst),
            self.square + other.square,
            self.finite + other.finite,
            self.total + other.total,
            self.count + other.count,
        )


def array_distance(one: Array, other: Array) -> ArrayDistance:
    """Measure two arrays of one shape; values that are not finite are equal when both sides have the same."""
    found = ArrayDistance()
    for wanted, had in paired_blocks(one, other):
        with np.errstate(invalid="ignore", over="ignore"):
            plain = np.abs(wanted - had)
            same = (wanted == had) | (np.isnan(wanted) & np.isnan(had))
            error = np.where(same, 0.0, np.where(np.isnan(plain), np.inf, plain))
            known = error[np.isfinite(error)]
            part = ArrayDistance(
                float(error.max(initial=0)),
                float(np.square(known).sum()),
                known.size,
                float(plain.sum()),
                plain.size,
            )
        found = found.merge(part)
    return found


def all_finite(array: Array) -> bool:
    """Whether every value is a finite number."""
    if array.dtype.kind in "iub":
        return True
    return all(bool(np.isfinite(part).all()) for part in blocks(array))


def differences(training: Sequence[Array], deployed: Sequence[Array]) -> tuple[float, float | None]:
    """Largest absolute difference and root mean square over all samples; infinite and None where shapes differ.

    Values that are not finite are equal when both sides have the same.
    """
    found = ArrayDistance()
    for one, other in zip(training, deployed, strict=True):
        if one.shape != other.shape:
            return np.inf, None
        found = found.merge(array_distance(one, other))
    return found.worst, float(np.sqrt(found.square / max(found.finite, 1)))


# The same values with fewer digits: float16, bfloat16, or rounded to equal steps.

_MOST_STEPS = 1 << 16
_HALF, _NO_STEP = 0.5001, 1e-3
_FEWEST_STEPS = 8


def precision_change(training: Sequence[Array], deployed: Sequence[Array]) -> IoChange | None:
    """What made training's values the deployed side's by rounding alone; None when nothing did."""
    if any(one.shape != other.shape for one, other in zip(training, deployed, strict=True)):
        return None
    pairs = list(zip(training, deployed, strict=True))
    if _all_equal(pairs, lambda array: array.astype(np.float16)):
        return _rounded("float16")
    if _all_equal(pairs, _as_bfloat16):
        return _rounded("bfloat16")
    return _stepped(pairs)


def _all_equal(pairs: Sequence[tuple[Array, Array]], rounded: Callable[[Array], Array]) -> bool:
    return all(
        np.array_equal(rounded(one).astype(np.float64), other, equal_nan=True)
        for pair in pairs
        for one, other in paired_blocks(*pair)
    )


def _as_bfloat16(array: Array) -> Array:
    import ml_dtypes

    # Twice rounded values would differ: the first rounding must be that of the stored type.
    return array.astype(np.float32).astype(ml_dtypes.bfloat16)


def _rounded(name: str) -> IoChange:
    return IoChange(
        "element-type",
        message("check_io.rounded_to", dtype=name),
        Correction(message("check_io.set_type"), verbatim("float32"), (("element type", "float32"),)),
    )


def _levels(arrays: Sequence[Array]) -> Array | None:
    """All different values, in order; None when there are too many for codes."""
    levels: Array = np.zeros(0)
    for array in arrays:
        for part in blocks(array):
            levels = np.union1d(levels, part)
            if len(levels) > _MOST_STEPS:
                return None
    return levels


def _stepped(pairs: Sequence[tuple[Array, Array]]) -> IoChange | None:
    levels = _levels([other for _, other in pairs])
    if levels is None or not _FEWEST_STEPS <= len(levels) <= _MOST_STEPS or not np.isfinite(levels).all():
        return None
    gaps = np.diff(levels)
    step = float(gaps.min())
    multiples = gaps / step
    if step <= 0 or np.abs(multiples - np.rint(multiples)).max() > 1e-3 * multiples.max():
        return None
    signed = (wanted - had for pair in pairs for wanted, had in paired_blocks(*pair))
    lows, highs = zip(*((float(each.min()), float(each.max())) for each in signed), strict=True)
    low, high = min(lows), max(highs)
    nearest = 0.1 * step < max(-low, high) <= _HALF * step
    if not nearest and not (low > -_NO_STEP * step and _HALF * step < high < (1 + _NO_STEP) * step):
        return None
    return IoChange(
        "codes",
        message("check_io.rounded_to_steps" if nearest else "check_io.cut_to_steps", step=f"{step:.6g}"),
        Correction(message("check_io.set_quantization"), message("check_io.set_more_bits")),
    )
