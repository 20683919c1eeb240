"""Finding how a model's input was made from the original."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.messages.message import Message, message
from roundoff.preprocessing.colours import MATRICES, PACKED_FORMATS, PackedFormat, converted, unpacked
from roundoff.preprocessing.resize import Resampling, resized
from roundoff.samples.images import PicturePlacement, place, placed
from roundoff.studies.check_io.candidates import Candidate, Claim, ClaimCriteria, PixelPairs, best_order, verify
from roundoff.studies.check_io.layouts import ArrayReading, Box, content_box, is_padding, picture_of, readings
from roundoff.studies.check_io.result import IoChange

# Ways from an original picture to a model's input: conversion from YUV, size and place.

RESAMPLINGS = (
    Resampling("bilinear"),
    Resampling("bilinear", "antialiased"),
    Resampling("nearest"),
    Resampling("nearest", "antialiased"),
    Resampling("bicubic"),
    Resampling("bicubic", "antialiased"),
    Resampling("area"),
    Resampling("area", "antialiased"),
    Resampling("bilinear", "align-corners"),
    Resampling("bilinear", "asymmetric"),
    Resampling("nearest", "align-corners"),
)
"""All that are tried, the most usual first."""

# What is scaled to before the middle is cut out, relative to the size of the input: 256 for 224, and kin.
_CROP_RATIOS = (1.0, 256 / 224, 1 / 0.9, 1 / 0.95, 232 / 224)

Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Decoding:
    """How an original becomes red, green and blue.

    Attributes:
        color: The packed YUV it is read as; None for a picture as it is.
        matrix: Name of the conversion.
    """

    color: PackedFormat | None = None
    matrix: str = ""

    def apply(self, original: Array) -> Array:
        """The picture [height, width, channels]; bytes stay bytes.

        Raises:
            BadInput: It is no such picture.
        """
        if self.color is None:
            return original
        rows = np.array(MATRICES[self.matrix]).reshape(3, 4)
        colors: Array = np.rint(converted(unpacked(original, self.color), rows)).astype(np.uint8)
        return colors

    @property
    def words(self) -> Message:
        """What people call it."""
        if self.color is None:
            return message("check_io.as_it_is")
        return message("check_io.color_by", color=self.color, matrix=self.matrix)


@dataclass(frozen=True, slots=True)
class Shaping:
    """Where the picture comes to lie.

    Attributes:
        mode: ``as it is``, ``stretch``, ``letterbox``, ``corner`` (a letterbox from the top left), ``crop``
            (scale, then the middle), ``cut`` (the middle without scaling) or ``cut corner`` (the top left).
        scale_to: For ``crop``: the size that is covered.
    """

    mode: str
    scale_to: Size | None = None

    def placement(self, had: Size, wanted: Size) -> PicturePlacement | None:
        """The geometry for a picture of `had` and an input of `wanted`; None when it cannot be."""
        if self.mode in ("as it is", "cut", "cut corner"):
            if had[0] < wanted[0] or had[1] < wanted[1]:
                return None
            middle = tuple(round((full - part) / 2) for full, part in zip(had, wanted, strict=True))
            top, left = middle if self.mode == "cut" else (0, 0)
            return PicturePlacement(had, (-top, -left), wanted)
        if self.mode == "crop":
            return place(had, self.scale_to or wanted, canvas=wanted, mode="crop")
        if self.mode == "stretch":
            return PicturePlacement(wanted, (0, 0), wanted)
        boxed = place(had, wanted, canvas=wanted, mode="letterbox")
        return boxed if self.mode == "letterbox" else replace(boxed, offset=(0, 0))

    @property
    def words(self) -> Message:
        """What people call it."""
        if self.mode == "crop":
            height, width = self.scale_to or (0, 0)
            return message("check_io.shape_crop", size=f"{height}x{width}")
        return message(f"check_io.shape_{self.mode.replace(' ', '_')}")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """From an original to the picture that is made into numbers.

    Attributes:
        decoding: From the stored original to colours.
        shaping: Size and place.
        resampling: How pixels are mixed; does not matter where nothing is resized.
        rounded: Whether resized pixels are bytes again.
    """

    decoding: Decoding
    shaping: Shaping
    resampling: Resampling
    rounded: bool

    def apply(self, original: Array, wanted: Size) -> tuple[Array, PicturePlacement] | None:
        """The picture [height, width, channels] without its border, and where it lies; None when it cannot be."""
        try:
            pixels = self.decoding.apply(original)
        except BadInput:
            return None
        placement = self.shaping.placement((pixels.shape[0], pixels.shape[1]), wanted)
        if placement is None:
            return None
        if pixels.dtype == np.uint8 and not self.rounded:
            pixels = pixels.astype(np.float32)
        scaled = resized(pixels, placement.resized, self.resampling)
        if self.shaping.mode in ("letterbox", "corner"):
            return scaled, placement
        return placed(scaled, placement, pad=0), placement

    @property
    def resizes(self) -> bool:
        """Whether the size changes."""
        return self.shaping.mode in ("stretch", "letterbox", "corner", "crop")

    def words(self) -> tuple[Message, ...]:
        """What is done, step by step."""
        decoded = self.decoding
        steps = [] if decoded.color is None else [message("check_io.step_decoded", how=decoded.words)]
        steps.append(self.shaping.words)
        if self.resizes:
            key = "check_io.step_resized_bytes" if self.rounded else "check_io.step_resized_float"
            steps.append(message(key, how=self.resampling.words))
        return tuple(steps)


def decodings(original: Array) -> Iterator[Decoding]:
    """How an original [height, width, channels] may be read."""
    if original.shape[2] in (3, 4) or (original.shape[2] == 1 and original.shape[0] % 3):
        yield Decoding()
        return
    yield Decoding()
    for color in PACKED_FORMATS:
        if original.dtype == np.uint8 and original.shape[2] == (1 if "420" in color else 2):
            for matrix in MATRICES:
                yield Decoding(color, matrix)


def shapings(had: Size, wanted: Size) -> Iterator[Shaping]:
    """Sizes and places that bring a picture to the wanted size, the most usual first."""
    if had == wanted:
        yield Shaping("as it is")
        return
    yield Shaping("stretch")
    if had[0] * wanted[1] != had[1] * wanted[0]:
        yield from (Shaping("letterbox"), Shaping("corner"))
    sizes = {tuple(round(side * ratio) for side in wanted) for ratio in _CROP_RATIOS}
    for height, width in sorted(sizes):
        # Where nothing is scaled it is a plain cut.
        if place(had, (height, width), canvas=wanted, mode="crop").resized != had:
            yield Shaping("crop", (height, width))
    if had[0] >= wanted[0] and had[1] >= wanted[1]:
        yield from (Shaping("cut"), Shaping("cut corner"))


# A smooth filter and a coarse one find the place; which filter it was is asked afterwards.
_PROBES = (Resampling("bilinear", "antialiased"), Resampling("nearest"))
_PLAUSIBLE, _TIED = 0.5, 2.0
_MOST_PLACES = 4
# Filters are told apart when the best leaves this much less than the next.
_DISTINCT = 0.7
_MOST_PIXELS = 4000

Rendered = tuple[Array, PicturePlacement] | None
View = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class InputOrigin:
    """How one side's values came from the original.

    Attributes:
        pipeline: Decoding, size and filter.
        layout: Where the channels are.
        arranged: How the picture lies in the array, where that is unusual: mirrored, channels reversed, and so on.
        numbers: How pixels became numbers.
        claim: The proof.
        border: The border's value in pixels; None without one.
        rivals: Filters that explain it as well.
    """

    pipeline: Pipeline
    layout: str
    arranged: tuple[IoChange, ...]
    numbers: Message
    claim: Claim
    border: float | None
    rivals: tuple[Message, ...]

    def words(self) -> tuple[Message, ...]:
        """What was done to the original, step by step."""
        steps = [*self.pipeline.words()]
        if self.border is not None:
            steps.append(message("check_io.step_border", value=f"{self.border:.4g}"))
        for change in self.arranged:
            turned = message(f"check_io.turn_{change.kind.replace('-', '_')}")
            steps.append(turned if change.kind in _TURNS else change.text)
        return (*steps, self.numbers)


# What is said in fewer words where it is a step, and no difference.
_TURNS = ("channel-order", "transposed", "mirrored", "upside-down")


def find_origin(
    originals: Sequence[Array],
    made: Sequence[Array],
    judging: ClaimCriteria,
) -> InputOrigin | None:
    """Find how arrays were made from originals.

    Args:
        originals: Per sample [height, width, channels]: a picture, or packed YUV.
        made: Per sample, what was made of it.
        judging: By what claims are judged.

    Returns:
        None when nothing explains it.
    """
    # Three steps, as decoding x place x filter x rounding is too much to try in full: where the picture lies, with
    # two filters that are near to all; which filter, at the few likeliest places; the proof, on all samples.
    places = sorted(_places(originals[0], made[0]), key=lambda found: found[0])
    if not places or places[0][0] > _PLAUSIBLE:
        return None
    near: dict[tuple[object, ...], tuple[Pipeline, _Placed]] = {}
    for share, pipeline, lying in places:
        if share <= _TIED * places[0][0] + 1e-9 and len(near) < _MOST_PLACES:
            turns = tuple(change.kind for change in lying.reading.changes)
            near.setdefault((pipeline.decoding, pipeline.shaping, lying.layout, turns), (pipeline, lying))
    trials: list[tuple[float, Pipeline, _Placed]] = []
    for pipeline, lying in near.values():
        for exact in _filters(pipeline, originals[0]):
            left = _unexplained(_rendered(exact, lying, originals[0], made[0]), lying, made[0])
            if left is not None:
                trials.append((left, exact, lying))
    trials.sort(key=lambda found: found[0])
    best: InputOrigin | None = None
    for left, pipeline, lying in trials[:3]:
        origin = _verified(pipeline, lying, originals, made, judging=judging)
        if origin is None or (best is not None and origin.claim.rms >= _DISTINCT * best.claim.rms):
            continue
        rivals = [
            other.resampling.words
            for other_left, other, _ in trials
            if other_left * _DISTINCT <= left and other.resampling != pipeline.resampling and pipeline.resizes
        ]
        best = replace(origin, rivals=tuple(dict.fromkeys(rivals)))
        if best.claim.exact:
            break
    return best


@dataclass(frozen=True, slots=True)
class _Placed:
    layout: str
    view: View
    reading: ArrayReading


def _places(original: Array, made: Array) -> Iterator[tuple[float, Pipeline, _Placed]]:
    """Every decoding, shape and turn, with what it leaves unexplained."""
    for layout, view in picture_of(made.shape):
        picture = view(made)
        size = (picture.shape[0], picture.shape[1])
        for decoding in decodings(original):
            for turned in dict.fromkeys((size, size[::-1])):
                had = _size(decoding.apply, original)
                for shaping, probe in itertools.product(shapings(had, turned) if had else (), _PROBES):
                    pipeline = Pipeline(decoding, shaping, probe, rounded=False)
                    rendered = pipeline.apply(original, turned)
                    if rendered is None:
                        continue
                    channels = rendered[0].shape[2]
                    for reading in readings("NHWC", (*size, channels), (*turned, channels)):
                        if any(change.kind in ("reshaped", "layout") for change in reading.changes):
                            continue
                        placed = _Placed(layout, view, reading)
                        left = _unexplained(rendered, placed, made)
                        if left is not None:
                            yield left + 1e-12 * len(reading.changes), pipeline, placed


def _size(decode: Callable[[Array], Array], original: Array) -> tuple[int, int] | None:
    try:
        shape = decode(original).shape
    except BadInput:
        return None
    return shape[0], shape[1]


def _filters(pipeline: Pipeline, original: Array) -> Iterator[Pipeline]:
    whole = pipeline.decoding.apply(original).dtype == np.uint8
    for resampling in RESAMPLINGS if pipeline.resizes else RESAMPLINGS[:1]:
        for rounded in (
            (True, False) if whole and pipeline.resizes and resampling.kernel != "nearest" else (whole,)
        ):
            yield Pipeline(pipeline.decoding, pipeline.shaping, resampling, rounded)


def _rendered(pipeline: Pipeline, placed: _Placed, original: Array, made: Array) -> Rendered:
    picture = placed.view(made)
    turned = any(change.kind == "transposed" for change in placed.reading.changes)
    size = (picture.shape[0], picture.shape[1])
    return pipeline.apply(original, size[::-1] if turned else size)


def _pair(rendered: Rendered, placed: _Placed, made: Array) -> tuple[Array, Array] | None:
    """The made picture and the rendered one, content only, as [height, width, channels]."""
    if rendered is None:
        return None
    picture = placed.view(made)
    pixels, placement = rendered
    if placement.canvas != pixels.shape[:2]:
        # Letterboxed: undo the turns on the made side, then cut the content out.
        picture = _unturned(picture, placed.reading)
        top, left = placement.offset
        height, width = placement.resized
        return picture[top : top + height, left : left + width], pixels
    return picture, placed.reading.view(pixels)


def _unturned(picture: Array, reading: ArrayReading) -> Array:
    kinds = {change.kind for change in reading.changes}
    picture = picture[::-1] if "upside-down" in kinds else picture
    picture = picture[:, ::-1] if "mirrored" in kinds else picture
    return picture.transpose(1, 0, 2) if "transposed" in kinds else picture


def _unexplained(rendered: Rendered, placed: _Placed, made: Array) -> float | None:
    pair = _pair(rendered, placed, made)
    if pair is None or pair[0].shape[:2] != pair[1].shape[:2] or not pair[0].size:
        return None
    first, second = (each.reshape(-1, each.shape[2]) for each in pair)
    if len(first) > _MOST_PIXELS:
        # Not every so many: on some columns several filters are the same.
        chosen = np.random.default_rng(0).integers(0, len(first), _MOST_PIXELS)
        first, second = first[chosen], second[chosen]
    fit = best_order(first.astype(np.float64), second.astype(np.float64))
    return None if fit is None else fit.unexplained


def _verified(
    pipeline: Pipeline,
    placed: _Placed,
    originals: Sequence[Array],
    made: Sequence[Array],
    *,
    judging: ClaimCriteria,
) -> InputOrigin | None:
    def pairs() -> PixelPairs:
        for original, each in zip(originals, made, strict=True):
            pair = _pair(_rendered(pipeline, placed, original, each), placed, each)
            if pair is not None and pair[0].shape[:2] == pair[1].shape[:2]:
                yield pair[0].reshape(-1, pair[0].shape[2]), pair[1].reshape(-1, pair[1].shape[2])

    listed = list(pairs())
    if len(listed) < len(originals) or not _is_padded(pipeline, placed, originals[0], made[0]):
        return None
    first, second = listed[0]
    fit = best_order(first.astype(np.float64), second.astype(np.float64))
    if fit is None:
        return None
    claim = verify(Candidate((), lambda: listed, fit), judging)
    if claim is None:
        return None
    arranged = [change for change in claim.changes if change.kind in ("channel-order", "channels")]
    values = [change for change in claim.changes if change.kind not in ("channel-order", "channels")]
    numbers = claim.training or (message("check_io.pixels_as_is") if not values else values[-1].text)
    border = _border(pipeline, placed, made[0], claim)
    return InputOrigin(pipeline, placed.layout, (*placed.reading.changes, *arranged), numbers, claim, border, ())


def _is_padded(pipeline: Pipeline, placed: _Placed, original: Array, made: Array) -> bool:
    """Whether what is around a letterboxed picture holds nothing of its own."""
    rendered = _rendered(pipeline, placed, original, made)
    if rendered is None or pipeline.shaping.mode not in ("letterbox", "corner"):
        return True
    (top, left), (height, width) = rendered[1].offset, rendered[1].resized
    return is_padding(_unturned(placed.view(made), placed.reading), Box(top, top + height, left, left + width))


def _border(pipeline: Pipeline, placed: _Placed, made: Array, claim: Claim) -> float | None:
    """What surrounds the picture, as a pixel value."""
    if pipeline.shaping.mode not in ("letterbox", "corner"):
        return None
    box = content_box(placed.view(made))
    if not box.border:
        return None
    used = claim.linear.matrix != 0
    gain = np.where(used, claim.linear.matrix, 0).sum(axis=1)
    pixels = (np.array(box.border) - claim.linear.offset) / gain
    return float(np.round(pixels.mean(), 3)) + 0.0
