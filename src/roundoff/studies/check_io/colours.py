"""Colours that no gain per channel explains: YUV matrices, gray pictures and gamma, proven on held-out pixels.

Nine numbers can be fitted to any two pictures that show nearly the same, and among hundreds of named mixtures one
is always near. So every name is found on one half of the pixels, in blocks, and judged on the other half; there it
has to leave far less than everything that is no difference of colours: no change, noise that a line per channel
evens out, and filtering (resizing, JPEG, sharpening) that a small kernel undoes.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from roundoff.core.tensors import Array
from roundoff.messages.message import Message, joined, message, verbatim
from roundoff.messages.numbers import share_text
from roundoff.preprocessing.colours import GRAY_WEIGHTS, MATRIX_DIGITS, TRANSFER_CURVES
from roundoff.preprocessing.conventions import BYTE, Convention, MeanStd, conventions
from roundoff.studies.check_io.candidates import FORWARD, Claim, LinearFit, fit_colours
from roundoff.studies.check_io.normalization import FLOAT_ROUNDING
from roundoff.studies.check_io.result import Correction, IoChange

Picture = Array
"""[height, width, channels]."""

# What a named mixture may leave, in parts of what the best explanation without one leaves. Where that is a line or
# a kernel whose numbers were fitted, a name without such numbers that leaves as little will do, if it is next to
# nothing of the difference: limited against full range is nearly a line on pictures of little colour. Rounding to
# bytes leaves more than that of a small difference; then the name has to leave less than what was fitted.
_CLEARLY, _NEXT_TO_NOTHING, _LITTLE, _LESS = 0.5, 0.1, 0.2, 0.97
# It must leave no more than so many times what the best mixture without a name does, on pixels of neither's fit.
_NAMED, _CURVED = 1.15, 1.5
# Names that leave no more than so many times the best are not told apart; the most usual next to it is said.
_TIED, _EQUAL = 1.1, 1.02
# Names that are looked at again on the other half.
_SHORT_LIST, _MOST_LISTED, _MOST_NAMES = 1.3, 24, 2000
# At least so much of the pixels must not be cut off at black or white; from the second on nothing is said of it.
_LEAST_KEPT, _NEARLY_ALL = 0.3, 0.995
# Judged is what is left on these pixels of all, the best ones: whoever cuts off does so on a few.
_JUDGED = 0.9
_MOST_PIXELS, _FEWEST_PIXELS = 24_000, 200
# Sides of the blocks that are fitted and judged by turns, and how far a kernel reaches.
_BLOCK, _REACH = 8, 2
# Only usual ways to make numbers of pixels are tried on top; the deployed side may have left these undone.
_USUAL_COST = 0.45
_PLAIN = ("x", "x / 255")
# Channels of which a line explains all but this of the variance are one gray picture.
_GRAY = 3e-4
_BINS = 48
_LEVELS = 256
_GREY = ", grey"
_COLOURS = 3
_REVERSED = IoChange("channel-order", message("check_io.rgb_bgr"))


@dataclass(frozen=True, slots=True, eq=False)
class _Pixels:
    """Pixels of both sides at the same places.

    Attributes:
        training: float64 [pixels, channels].
        deployed: float64 [pixels, channels].
        fitted: Which of them names are found on; on the others they are judged.
        places: Per sample: both pictures, rows and columns of its pixels.
    """

    training: Array
    deployed: Array
    fitted: Array
    places: tuple[tuple[Picture, Picture, Array, Array], ...]

    def around(self, side: int, channel: int) -> Array:
        """A channel around each pixel, float64 [pixels, taps]; side 0 is training, 1 the deployed one."""
        steps = range(-_REACH, _REACH + 1)
        parts = []
        for one, other, rows, columns in self.places:
            plane = (one, other)[side][..., channel]
            parts.append(np.stack([plane[rows + a, columns + b] for a in steps for b in steps], axis=1))
        return np.concatenate(parts).astype(np.float64)


def colour_claims(
    pairs: Iterable[tuple[Picture, Picture]], *, tolerance: float, known: Iterable[MeanStd] = ()
) -> Iterator[Claim]:
    """See whether two sides differ in their colours: another YUV matrix, gray, or another gamma.

    Args:
        pairs: Per sample training's picture and the deployed one, of one size.
        tolerance: Differences up to this do not count.
        known: Means and stds of the user's own.
    """
    pixels = _pixels(pairs)
    tried = _tried(pixels)
    found: Claim | None = None
    if pixels is None:
        return
    if "gray" in tried and (deployed := _is_gray(pixels.deployed)) != _is_gray(pixels.training):
        found = _gray_claim(pixels, tolerance, known=tuple(known), deployed=deployed)
    if found is None and "gamma" in tried:
        found = _curve_claim(pixels, tolerance)
    if found is None and "yuv" in tried:
        found = _matrix_claim(pixels, tolerance, known=tuple(known))
    if found is not None:
        yield found


def colours_tried(pairs: Iterable[tuple[Picture, Picture]]) -> tuple[str, ...]:
    """What `colour_claims` looks for in these pictures: ``gray``, ``gamma`` and ``yuv``, or less of them."""
    return _tried(_pixels(pairs))


def _tried(pixels: _Pixels | None) -> tuple[str, ...]:
    if pixels is None:
        return ()
    sides = (pixels.training, pixels.deployed)
    counts, grays = {each.shape[1] for each in sides}, [_is_gray(each) for each in sides]
    # A side of colours has three channels; two gray sides have no colours to differ by.
    gray = any(each.shape[1] == _COLOURS for each, is_gray in zip(sides, grays, strict=True) if not is_gray)
    same = len(counts) == 1
    yuv = same and counts == {_COLOURS} and not all(grays)
    return (*(("gray",) if gray else ()), *(("gamma",) if same else ()), *(("yuv",) if yuv else ()))


def left_in_place(pairs: Iterable[tuple[Picture, Picture]]) -> float | None:
    """What no change of place or order leaves at best, root mean square on pixels that nothing was fitted to.

    Every pixel and channel stays where it is; noise, another range, and filtering of any kind are undone by a line
    and by a small kernel for each channel. None where there is too little to fit.
    """
    pixels = _pixels(pairs)
    if pixels is None or pixels.training.shape != pixels.deployed.shape:
        return None
    way = _Direction(pixels, False, np.ones(len(pixels.training), bool))
    channels = range(way.wanted.shape[1])
    ways: tuple[list[Array], ...] = (
        [way.had[:, [each]] for each in channels],
        [pixels.around(1, each) for each in channels],
    )
    made = [way.had]
    for taps in ways:
        lines = [_solved(taps[each], way.wanted[:, each], way.fitted) for each in channels]
        made.append(np.stack(lines, axis=1))
    return min(float(np.sqrt(np.square((way.wanted - each)[way.judged]).mean())) for each in made)


def _pixels(pairs: Iterable[tuple[Picture, Picture]]) -> _Pixels | None:
    listed = list(pairs)
    rng = np.random.default_rng(0)
    places, fitted = [], []
    for one, other in listed:
        height, width = one.shape[:2]
        if min(height, width) <= 2 * _REACH + 1 or other.shape[:2] != (height, width):
            return None
        inner = np.arange((height - 2 * _REACH) * (width - 2 * _REACH))
        if inner.size > _MOST_PIXELS // len(listed):
            inner = rng.choice(inner, max(1, _MOST_PIXELS // len(listed)), replace=False)
        rows, columns = (each + _REACH for each in np.divmod(inner, width - 2 * _REACH))
        # Whole blocks: neighbours are alike, so that pixels by turns would be judged by what they were fitted to.
        block = max(2, min(_BLOCK, min(height, width) // 4))
        fitted.append((rows // block + columns // block) % 2 == 0)
        places.append((one, other, rows, columns))
    sides = [
        np.concatenate([each[side][each[2], each[3]] for each in places]).astype(np.float64) for side in (0, 1)
    ]
    sound = np.isfinite(sides[0]).all() and np.isfinite(sides[1]).all()
    mask = np.concatenate(fitted)
    if not sound or min(mask.sum(), (~mask).sum()) < _FEWEST_PIXELS:
        return None
    if not all(np.ptp(side, axis=0).max() > 0 for side in sides):
        return None
    return _Pixels(sides[0], sides[1], mask, tuple(places))


def _is_gray(values: Array) -> bool:
    """Whether all channels are lines of one another."""
    first = values[:, 0] - values[:, 0].mean()
    power = float(first @ first)
    if not power:
        return False
    rest = values[:, 1:] - values[:, 1:].mean(axis=0)
    left = rest - first[:, None] * (first @ rest / power)
    return bool(np.square(left).sum() <= _GRAY * np.square(rest).sum()) if rest.size else True


def _step(values: Array) -> Array:
    """The steps that the channels of values have, float64 [channels]; 0 where they are not whole pixels."""
    steps = np.zeros(values.shape[1])
    for channel, column in enumerate(values.T):
        levels = np.unique(column)
        if 1 < len(levels) <= _LEVELS:
            steps[channel] = np.diff(levels).min()
    return steps


# What is left, judged alike for every explanation.


def _left(error: Array) -> float:
    """Root mean square of the error, without the pixels on which it is largest."""
    squares = np.sort(np.square(error).sum(axis=1))
    kept = squares[: max(1, int(_JUDGED * len(squares)))]
    return float(np.sqrt(kept.mean() / error.shape[1]))


@dataclass(frozen=True, slots=True, eq=False)
class _Direction:
    """One side as it is made from the other.

    Attributes:
        pixels: Both.
        forward: Whether the deployed side is made from training's; otherwise the other way round.
        kept: Which pixels count.
    """

    pixels: _Pixels
    forward: bool
    kept: Array

    @property
    def wanted(self) -> Array:
        """What is made."""
        return self.pixels.deployed if self.forward else self.pixels.training

    @property
    def had(self) -> Array:
        """What it is made from."""
        return self.pixels.training if self.forward else self.pixels.deployed

    @property
    def fitted(self) -> Array:
        """Pixels that names are found on."""
        return self.pixels.fitted & self.kept

    @property
    def judged(self) -> Array:
        """Pixels that they are judged on."""
        return ~self.pixels.fitted & self.kept

    def left(self, made: Array) -> float:
        """What is left of the difference when all pixels are made so."""
        return _left((self.wanted - made)[self.judged])

    def slack(self, tolerance: float) -> float:
        """What does not count."""
        return 0.3 * tolerance + FLOAT_ROUNDING * float(np.abs(self.wanted).max())

    def rounding(self, matrix: Array) -> float:
        """What rounding of both sides leaves of a map, root mean square: a free map averages some of it out."""
        had, wanted = _step(self.had), _step(self.wanted)
        return float(np.sqrt((wanted**2 + np.square(matrix * had).sum(axis=1)).mean() / 12))

    def left_by_no_change(self, plain: Array) -> float:
        """What the same colours leave, numbers made of them in a usual way; 0 where there are no such maps.

        Pixels against normalized values differ a lot in their numbers only: that speaks for no name of colours.
        """
        if not len(plain):
            return 0.0
        average = np.broadcast_to(self.wanted[self.fitted].mean(axis=0), self.wanted.shape)
        best = plain[int(np.argmin(self.left_by_maps(plain)))]
        return min(self.left(average), self.left(LinearFit(best[:, :-1], best[:, -1]).apply(self.had)))

    def left_by_maps(self, maps: Array) -> Array:
        """What each of many linear maps leaves on the pixels that names are found on, float64 [maps].

        From sums over the pixels: |t - A z|^2 = tt - 2 A zt + A zz A'.
        """
        design, wanted = np.column_stack([self.had, np.ones(len(self.had))])[self.fitted], self.wanted[self.fitted]
        zz, zt = design.T @ design, design.T @ wanted
        squares = np.square(wanted).sum() - 2 * np.einsum("ncz,zc->n", maps, zt)
        squares += np.einsum("ncz,ncz->n", maps @ zz, maps)
        return np.asarray(np.sqrt(np.maximum(squares, 0) / wanted.size))

    def beats(self, left: float, fitted: float, *, same: float, slack: float) -> bool:
        """Whether what a name leaves is far less than no change leaves, and what was fitted instead of it."""
        named = left <= _NAMED * fitted + slack and left <= _NEXT_TO_NOTHING * same
        better = left <= _LESS * fitted and left <= _LITTLE * same
        return named or better or left <= _CLEARLY * min(fitted, same or fitted)

    def left_by_lines(self) -> tuple[float, list[int]]:
        """What a line per channel leaves; and the channels that these lines start from."""
        wanted, had, fitted = self.wanted, self.had, self.fitted
        lines, sources = np.zeros_like(wanted), []
        for channel in range(wanted.shape[1]):
            trials = []
            for source in range(had.shape[1]):
                line = _solved(had[:, [source]], wanted[:, channel], fitted)
                trials.append((float(np.square(wanted[fitted, channel] - line[fitted]).sum()), source, line))
            _, source, lines[:, channel] = min(trials, key=lambda trial: trial[:2])
            sources.append(source)
        return self.left(lines), sources

    def left_by_kernels(self, sources: Sequence[int]) -> float:
        """What a small kernel per channel leaves, over the channels given."""
        filtered = np.zeros_like(self.wanted)
        for channel, source in enumerate(sources):
            taps = self.pixels.around(0 if self.forward else 1, source)
            filtered[:, channel] = _solved(taps, self.wanted[:, channel], self.fitted)
        return self.left(filtered)


def _solved(had: Array, wanted: Array, fitted: Array) -> Array:
    """What the best linear map makes of all, found on some."""
    design = np.column_stack([had, np.ones(len(had))])
    some = design[fitted]
    solution = np.linalg.lstsq(some.T @ some, some.T @ wanted[fitted], rcond=None)[0]
    return np.asarray(design @ solution)


@dataclass(frozen=True, slots=True, eq=False)
class _Mixtures:
    """Linear maps of three channels with the names of what they are made of.

    Attributes:
        matrices: float64 [names, channels, channels + 1], the last column an offset.
        costs: How unusual each is, float64 [names].
        plain: Maps of the same colours, float64 [maps, channels, channels + 1].
        changes: Says what one is.
    """

    matrices: Array
    costs: Array
    plain: Array
    changes: Callable[[int], tuple[IoChange, ...]]


def _mixture_claim(way: _Direction, table: Callable[[], _Mixtures], tolerance: float) -> Claim | None:
    """The mixture with a name that is proven, with those that cannot be told from it."""
    wanted, had, fitted = way.wanted, way.had, way.fitted
    if min(fitted.sum(), way.judged.sum()) < _FEWEST_PIXELS:
        return None
    free, (others, sources), slack = (
        way.left(_solved(had, wanted, fitted)),
        way.left_by_lines(),
        way.slack(tolerance),
    )
    mixtures = table()
    same = way.left_by_no_change(mixtures.plain)
    if not way.beats(free, others, same=same, slack=slack):
        return None
    maps, design = mixtures.matrices, np.column_stack([had, np.ones(len(had))])
    rms = way.left_by_maps(maps)
    # Sums of squares are rounded: of maps that leave nothing they do not tell the best.
    limit = _SHORT_LIST * max(float(rms.min()), free) + slack
    ranked = np.argsort(rms + 1e-9 * mixtures.costs)
    near = _distinct(mixtures, [int(each) for each in ranked if rms[each] <= limit])
    left = {each: way.left(design @ maps[each].T) for each in near}
    least = min(left.values(), default=0.0)
    tied = [each for each in near if left[each] <= _TIED * least + slack]
    if not tied:
        return None
    best = min((each for each in tied if left[each] <= _EQUAL * least + slack), key=lambda each: near[each])
    enough = max(_NAMED * free, _NAMED * way.rounding(maps[best][:, :-1]))
    if left[best] > enough + slack or not way.beats(left[best], others, same=same, slack=slack):
        return None
    if not way.beats(left[best], way.left_by_kernels(sources), same=same, slack=slack):
        return None
    linear = LinearFit(maps[best][:, :-1], maps[best][:, -1])
    return _claim(way, linear, linear.apply(had), [mixtures.changes(each) for each in (best, *tied)], tolerance)


def _distinct(mixtures: _Mixtures, places: Sequence[int]) -> dict[int, tuple[float, int]]:
    """The best map of each name, and how usual the name is: many ways to make numbers often give one map."""
    found: dict[str, list[int]] = {}
    for place in places[:_MOST_NAMES]:
        found.setdefault(repr(mixtures.changes(place)), []).append(place)
    return {
        each[0]: min((float(mixtures.costs[place]), place) for place in each)
        for each in list(found.values())[:_MOST_LISTED]
    }


def _claim(
    way: _Direction, linear: LinearFit, made: Array, named: Sequence[tuple[IoChange, ...]], tolerance: float
) -> Claim:
    """What is proven: the first of the names; the others that are as long cannot be told from it."""
    error = np.abs(way.wanted - made)[way.kept]
    alike = [joined(change.text for change in each) for each in named[1:] if len(each) == len(named[0])]
    own = joined(change.text for change in named[0])
    share, residual = float(way.kept.mean()), float(error.max())
    notes: tuple[Message, ...] = (FORWARD,) if way.forward else ()
    if share < _NEARLY_ALL:
        notes = (*notes, message("check_io.pixels_left_out", share=share_text(1 - share, 0)))
    return Claim(
        named[0],
        linear,
        residual <= tolerance,
        True,
        False,
        False,
        residual,
        float(np.sqrt(np.square(error).mean())),
        float(way.wanted.std()),
        notes,
        tuple(dict.fromkeys(each for each in alike if each != own)),
    )


# Pictures that were converted from YUV with another matrix, another range, or U and V exchanged.


@dataclass(frozen=True, slots=True)
class _YuvDecoding:
    matrix: str
    digits: int
    exchanged: bool

    @property
    def text(self) -> Message:
        return (
            message("check_io.matrix_exchanged", matrix=self.matrix) if self.exchanged else verbatim(self.matrix)
        )

    @property
    def rows(self) -> Array:
        rows = np.array(MATRIX_DIGITS[self.matrix][self.digits]).reshape(3, 4)
        return rows[:, [0, 2, 1, 3]] if self.exchanged else rows


def _matrix_claim(pixels: _Pixels, tolerance: float, *, known: tuple[MeanStd, ...]) -> Claim | None:
    _, kept = fit_colours(pixels.training, pixels.deployed)
    if kept.mean() < _LEAST_KEPT:
        return None
    return _mixture_claim(_Direction(pixels, False, kept), partial(_yuv_mixtures, known), tolerance)


@cache
def _yuv_mixtures(known: tuple[MeanStd, ...]) -> _Mixtures:
    """All pairs of decodings, with usual ways to make numbers of them; equal decodings are no difference."""
    names = [
        (_YuvDecoding(one, a, False), _YuvDecoding(other, b, exchanged))
        for one, other in itertools.product(MATRIX_DIGITS, repeat=2)
        for a, b in itertools.product(range(len(MATRIX_DIGITS[one])), range(len(MATRIX_DIGITS[other])))
        for exchanged in (False, True)
        if one != other or exchanged
    ]
    table = list(itertools.product(names, (False, True), _numberings(known)))
    maps, costs = [], []
    for (one, other), reverse, (first, second) in table:
        matrix = one.rows[:, :3] @ np.linalg.inv(other.rows[:, :3])
        linear = _normalized(matrix, one.rows[:, 3] - matrix @ other.rows[:, 3], first, second)
        maps.append(linear[:, [2, 1, 0, 3]] if reverse else linear)
        rare = 0.01 * (one.digits + other.digits) + 0.1 * (one.exchanged + other.exchanged)
        costs.append(first.cost + 0.1 * reverse + rare + (first is not second))

    def changes(place: int) -> tuple[IoChange, ...]:
        (one, other), reverse, numbering = table[place]
        text = message("check_io.yuv_by", training=one.text, deployed=other.text)
        facts = (("YUV matrix", one.matrix), *((("order of U and V", "exchanged"),) if other.exchanged else ()))
        change = IoChange("colour-matrix", text, Correction(message("check_io.set_yuv"), one.text, facts))
        return (change, *((_REVERSED,) if reverse else ()), *_numbers(*numbering))

    plain = [_normalized(np.eye(_COLOURS), np.zeros(_COLOURS), *each) for each in _numberings(known)]
    plain += [each[:, [2, 1, 0, 3]] for each in plain]
    return _Mixtures(np.stack(maps), np.array(costs), np.stack(plain), changes)


def _numberings(known: tuple[MeanStd, ...] = ()) -> list[tuple[Convention, Convention]]:
    """The same way to make numbers of pixels on both sides, or pixels as they are on the deployed one."""
    usual = _usual(_COLOURS, known)
    plain = [each for each in usual if each.name in _PLAIN]
    return [(each, each) for each in usual] + [
        (one, other) for one in usual for other in plain if one is not other
    ]


def _usual(channels: int, known: tuple[MeanStd, ...] = ()) -> list[Convention]:
    return [
        each
        for each in conventions(channels, known)
        if each.cost <= _USUAL_COST and each.form in ("plain", "right")
    ]


def _numbers(first: Convention, second: Convention) -> tuple[IoChange, ...]:
    # What is usual for gray pictures is made of what is for colours.
    if first is second or first.name.removesuffix(_GREY) == second.name.removesuffix(_GREY):
        return ()
    text = message("check_io.training_has", training=first.text, deployed=second.text)
    return (IoChange("normalization", text),)


def _normalized(matrix: Array, offset: Array, first: Convention, second: Convention) -> Array:
    """A map of pixels as one of values: to what the first makes of them from what the second does."""
    scaled = first.gain[:, None] * matrix / second.gain
    return np.column_stack([scaled, first.gain * offset + first.offset - scaled @ second.offset])


# Gray on one side, colours on the other. Gray is made of colours, never the reverse: so it is verified.


def _gray_claim(pixels: _Pixels, tolerance: float, *, known: tuple[MeanStd, ...], deployed: bool) -> Claim | None:
    gray = pixels.deployed if deployed else pixels.training
    table = partial(_gray_mixtures, gray.shape[1], known, deployed=deployed)
    return _mixture_claim(_Direction(pixels, deployed, np.ones(len(gray), bool)), table, tolerance)


@cache
def _gray_mixtures(channels: int, known: tuple[MeanStd, ...], *, deployed: bool) -> _Mixtures:
    """Weights of red, green and blue; of pixels made into numbers in usual ways on either side."""
    grays = _usual(channels, known)
    table = [
        (name, reverse, gray, colour)
        for name, reverse in itertools.product(GRAY_WEIGHTS, (False, True))
        if not reverse or GRAY_WEIGHTS[name] != GRAY_WEIGHTS[name][::-1]
        for gray, colour in itertools.product(grays, _usual(_COLOURS, known))
    ]
    maps, costs = [], []
    for name, reverse, gray, colour in table:
        weights = np.array(GRAY_WEIGHTS[name][::-1] if reverse else GRAY_WEIGHTS[name])
        maps.append(_normalized(np.tile(weights, (channels, 1)), np.zeros(channels), gray, colour))
        alike = gray.name.removesuffix(_GREY) == colour.name.removesuffix(_GREY)
        costs.append(gray.cost + colour.cost + 0.1 * reverse + (not alike))

    def changes(place: int) -> tuple[IoChange, ...]:
        name, reverse, gray, colour = table[place]
        key = "check_io.deployed_gray" if deployed else "check_io.training_gray"
        how = message("check_io.gray_reversed", weights=name) if reverse else verbatim(name)
        wanted = message("check_io.set_in_colour" if deployed else "check_io.set_in_gray", how=how)
        facts = (("colours", "RGB or BGR" if deployed else "GRAY"),)
        change = IoChange(
            "channels", message(key, how=how), Correction(message("check_io.set_colours"), wanted, facts)
        )
        return (change, *(_numbers(colour, gray) if deployed else _numbers(gray, colour)))

    pairs = itertools.product(grays, _usual(_COLOURS, known)) if channels == _COLOURS else ()
    plain = [_normalized(np.eye(_COLOURS), np.zeros(_COLOURS), *each) for each in pairs]
    return _Mixtures(np.stack(maps), np.array(costs), np.array(plain), changes)


# Gamma: one curve for all pixels of a side.


def _curve_claim(pixels: _Pixels, tolerance: float) -> Claim | None:
    """A transfer curve between both sides; verified in the direction in which fewer digits are lost."""
    best: tuple[float, Claim] | None = None
    for forward in (True, False):
        way = _Direction(pixels, forward, np.ones(len(pixels.training), bool))
        wanted, had = way.wanted, way.had
        free, (others, sources) = way.left(_binned(wanted, had, pixels.fitted)), way.left_by_lines()
        others = min(others, way.left(had))
        if free > _CLEARLY * others:
            continue
        names, slack = list(_curves(wanted.shape[1])), way.slack(tolerance)
        few = np.flatnonzero(pixels.fitted)[:: max(1, int(pixels.fitted.sum()) // 500)]
        rough = [_left(wanted[few] - _curved(had[few], *each)) for each in names]
        near = sorted(range(len(names)), key=lambda place: rough[place])[:_MOST_LISTED]
        left = {place: way.left(_curved(had, *names[place])) for place in near}
        tied = [place for place in near if left[place] <= _TIED * min(left.values()) + slack]
        chosen = min(tied, key=lambda place: sum(each.cost for each in names[place][1:]))
        if left[chosen] > min(_CURVED * free + slack, _CLEARLY * others):
            continue
        others = min(others, way.left_by_kernels(sources))
        share = left[chosen] / others if others else np.inf
        if share > _CLEARLY or (best is not None and share >= _CLEARLY * best[0]):
            continue
        linear = LinearFit(np.eye(wanted.shape[1]), np.zeros(wanted.shape[1]))
        named = [_curve_changes(*names[place], forward=forward) for place in (chosen, *tied)]
        best = share, _claim(way, linear, _curved(had, *names[chosen]), named, tolerance)
    return None if best is None else best[1]


def _binned(wanted: Array, had: Array, fitted: Array) -> Array:
    """What the average curve of each channel makes of values: no name is nearer than about this."""
    made = np.zeros_like(wanted)
    for channel in range(wanted.shape[1]):
        values = had[:, channel]
        edges = np.unique(np.quantile(values[fitted], np.linspace(0, 1, _BINS + 1)))
        bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(len(edges) - 2, 0))
        counts = np.maximum(np.bincount(bins[fitted], minlength=_BINS), 1)
        centres = np.bincount(bins[fitted], values[fitted], minlength=_BINS) / counts
        heights = np.bincount(bins[fitted], wanted[fitted, channel], minlength=_BINS) / counts
        used = np.bincount(bins[fitted], minlength=_BINS) > 0
        made[:, channel] = np.interp(values, centres[used], heights[used])
    return made


def _curves(channels: int) -> Iterator[tuple[str, Convention, Convention]]:
    """Name of a curve, what makes numbers of its pixels, and what made the numbers it is applied to."""
    usual = [each for each in _usual(channels) if each.order != "BGR"]
    plain = [each for each in usual if each.name in _PLAIN]
    for name in TRANSFER_CURVES:
        for each in usual:
            yield name, each, each
            yield from ((name, one, other) for one, other in ((each, p) for p in plain) if one is not other)
            yield from ((name, one, other) for one, other in ((p, each) for p in plain) if one is not other)


def _curved(had: Array, name: str, made: Convention, undone: Convention) -> Array:
    pixels = np.clip(undone.undone(had, 1) / BYTE, 0, 1)
    return made.made(BYTE * TRANSFER_CURVES[name](pixels), 1)


def _curve_changes(name: str, made: Convention, undone: Convention, *, forward: bool) -> tuple[IoChange, ...]:
    key = "check_io.gamma_deployed" if forward else "check_io.gamma_training"
    curve = message(f"check_io.curve_{name}")
    correction = Correction(message("check_io.set_gamma"), message("check_io.set_gamma_training"))
    change = IoChange("gamma", message(key, curve=curve), correction)
    return (change, *(_numbers(undone, made) if forward else _numbers(made, undone)))
