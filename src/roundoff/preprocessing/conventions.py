"""The table of conventions (`conventions.toml`), typed: each is one gain and one offset per channel."""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from roundoff.core.tensors import Array
from roundoff.messages.message import Message, message, verbatim

BYTE = 255.0
"""The largest pixel."""

ChannelOrder = Literal["", "RGB", "BGR"]
_OPPOSITE: dict[str, ChannelOrder] = {"RGB": "BGR", "BGR": "RGB"}
_COLOURS = 3

# Slips with a mean and std that statistics are asked for, of those of `_forms`; others look like one of them, or
# like a right way. People do train without a std, so that one is none.
_SLIPS = ("no std", "not scaled", "scaled twice")
_SLIPPING = "ImageNet"
_OTHER_ORDER = 0.3


@dataclass(frozen=True, slots=True)
class MeanStd:
    """A mean and a std, per channel, of values from 0 to 1.

    Attributes:
        name: Whose they are.
        mean: Per channel.
        std: Per channel.
        backwards: Whether they are given for channels in the opposite order.
    """

    name: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    backwards: bool = False

    @property
    def called(self) -> Message:
        """The name for people, with the order where it is the opposite one."""
        return message("preprocessing.reversed", name=self.name) if self.backwards else verbatim(self.name)

    def reversed(self) -> "MeanStd":
        """The same for channels in the opposite order."""
        return MeanStd(self.name, self.mean[::-1], self.std[::-1], backwards=True)


@dataclass(frozen=True, slots=True, eq=False)
class Convention:
    """Values are ``gain * pixel + offset`` with pixels from 0 to 255.

    Attributes:
        name: As the table calls it, or whose mean and std it is.
        form: What was done: ``plain`` without mean and std, ``right`` with both, else a slip.
        text: The same for people, as seen from the values.
        formula: The same for people, as what is done to a pixel x.
        order: Of the channels, where mean or std differ between them.
        gain: float64 [channels].
        offset: float64 [channels].
        source: The mean and std; None for plain ones.
        cost: How unusual it is.
        slip: Whether nobody trains networks so.
    """

    name: str
    form: str
    text: Message
    formula: Message
    order: ChannelOrder
    gain: Array
    offset: Array
    source: MeanStd | None
    cost: float
    slip: bool

    @property
    def words(self) -> Message:
        """The formula, with the order of channels where that is not the usual one."""
        return message("preprocessing.being_bgr", formula=self.formula) if self.order == "BGR" else self.formula

    def ends(self) -> tuple[Array, Array]:
        """What black and white become, the smaller one first; float64 [channels] each."""
        black, white = self.offset, self.offset + BYTE * self.gain
        return np.minimum(black, white), np.maximum(black, white)

    def made(self, pixels: Array, axis: int) -> Array:
        """Values of pixels whose channels lie along an axis."""
        return np.asarray(pixels * _along(self.gain, pixels, axis) + _along(self.offset, pixels, axis))

    def undone(self, values: Array, axis: int) -> Array:
        """Pixels of values."""
        return np.asarray((values - _along(self.offset, values, axis)) / _along(self.gain, values, axis))


def _along(numbers: Array, values: Array, axis: int) -> Array:
    """One number for each channel, shaped for an array; their average where the channels are others."""
    if numbers.size != values.shape[axis]:
        numbers = numbers.mean(keepdims=True)
    shape = [1] * values.ndim
    shape[axis] = -1
    return numbers.reshape(shape)


@cache
def table_rows() -> tuple[Mapping[str, Any], ...]:
    """The table as it is written."""
    text = files("roundoff.preprocessing").joinpath("conventions.toml").read_text("utf-8")
    return tuple(tomllib.loads(text)["convention"])


def conventions(channels: int, known: Iterable[MeanStd] = ()) -> tuple[Convention, ...]:
    """All that are known for so many channels, with everything that people do wrong about a mean and std.

    Args:
        channels: How many.
        known: More means and stds, such as those of the user's training.
    """
    rows = [row for row in table_rows() if _fits(row, channels)]
    found = [_plain(row, channels) for row in rows if _kind(row) == "plain"]
    sets = [(each, 0.02 * number) for number, each in enumerate(known) if len(each.mean) in (1, channels)]
    rare = 0.02 * len(sets)
    # A right mean and std costs 0.2 by itself.
    sets += [(_set(row), row["rarity"] - 0.2 + rare) for row in rows if _kind(row) == "set"]
    for each, rarity in sets:
        wide = MeanStd(each.name, each.mean * (channels // len(each.mean)), each.std * (channels // len(each.std)))
        first: ChannelOrder = "RGB" if len(set(wide.mean)) > 1 or len(set(wide.std)) > 1 else ""
        found += _forms(wide, rarity=rarity, order=first)
        if first:
            found += _forms(wide.reversed(), rarity=rarity + _OTHER_ORDER, order=_OPPOSITE[first])
    for row in rows:
        found += _means(row) if _kind(row) == "means" else ()
    return tuple(found)


@cache
def preparations(channels: int) -> tuple[Convention, ...]:
    """Those that numbers are asked for where no two inputs can be laid side by side, the most usual first.

    These are the ways of the table in both orders of channels, and the slips that cannot be taken for one of them.
    """
    names = [row["name"] for row in table_rows()]
    known = [each for each in conventions(channels) if np.all(each.gain > 0)]
    right = [each for each in known if each.form in ("plain", "right")]
    right.sort(key=lambda each: (each.slip, names.index(each.name)))
    wrong = [each for form in _SLIPS for each in known if each.form == form and each.name == _SLIPPING]
    return (*right, *wrong)


def alike(one: Convention, other: Convention, tolerance: float) -> bool:
    """Whether two make nearly the same of every pixel: apart by at most this part of what the first spans."""
    if one.order != other.order:
        return False
    (low, high), (other_low, other_high) = one.ends(), other.ends()
    span = float((high - low).max())
    return float(max(np.abs(low - other_low).max(), np.abs(high - other_high).max())) <= tolerance * span


def _fits(row: Mapping[str, Any], channels: int) -> bool:
    colours = isinstance(row["mean"], list)
    return (channels == _COLOURS if colours else True) and row.get("channels", channels) == channels


def _kind(row: Mapping[str, Any]) -> Literal["plain", "set", "means"]:
    if "divisor" in row:
        return "set"
    return "means" if isinstance(row["mean"], list) else "plain"


def _plain(row: Mapping[str, Any], channels: int) -> Convention:
    gain, offset = 1 / row["std"], -row["mean"] / row["std"] + 0.0
    gains, offsets = np.full(channels, gain), np.full(channels, offset)
    text, formula, slip = _words(row["says"]), _words(row["formula"]), row.get("slip", False)
    return Convention(row["name"], "plain", text, formula, "", gains, offsets, None, row["rarity"], slip)


def _words(entry: str | Mapping[str, str], **more: str) -> Message:
    """A text of the table: a formula as it is, or a key of the catalogue with what goes into its gaps."""
    if isinstance(entry, str):
        return verbatim(entry)
    gaps = {gap: value for gap, value in entry.items() if gap != "key"}
    return message(f"preprocessing.{entry['key']}", **gaps, **more)


def _set(row: Mapping[str, Any]) -> MeanStd:
    mean, std = (tuple(row[key]) if isinstance(row[key], list) else (row[key],) for key in ("mean", "std"))
    return MeanStd(row["name"], mean, std)


def _means(row: Mapping[str, Any]) -> Iterator[Convention]:
    """A mean of pixels, in both orders: Caffe's networks are fed with either."""
    factor = 1 / row["std"]
    orders: tuple[tuple[ChannelOrder, Sequence[float]], ...] = (
        (row["order"], row["mean"]),
        (_OPPOSITE[row["order"]], row["mean"][::-1]),
    )
    for order, mean in orders:
        spelled = ", ".join(order)
        text = _words(row["says"], order=spelled, mean=", ".join(f"{value:g}" for value in mean))
        name = row["name"].partition(",")[0]
        source = MeanStd(f"{name} ({spelled})", tuple(v / BYTE for v in mean), (1 / BYTE / factor,) * len(mean))
        gain, offset, formula = np.full(len(mean), factor), -factor * np.array(mean), _words(row["formula"])
        yield Convention(
            row["name"], "right", text, formula, order, gain, offset, source, row["rarity"], slip=False
        )


def _forms(source: MeanStd, *, rarity: float, order: ChannelOrder) -> list[Convention]:
    """What is right to do with a mean and std, and what people do instead."""
    mean, std, unit = np.array(source.mean), np.array(source.std), 1 / BYTE
    # Form, gain and offset on pixels, how unusual; preprocessing/words.toml says what each does.
    table: tuple[tuple[str, Array, Array, float], ...] = (
        ("right", unit / std, -mean / std, 0.2),
        ("no std", unit + 0 * std, -mean, 1.0),
        ("no mean", unit / std, 0 * mean, 1.0),
        ("twice", unit / std**2, -mean / std**2 - mean / std, 1.0),
        ("not scaled", 1 / std, -mean / std, 1.0),
        ("scaled twice", unit**2 / std, -mean / std, 1.1),
        ("wrong order", unit / std, -mean, 1.0),
        ("exchanged", unit / mean, -std / mean, 1.0),
        ("std multiplied", unit * std, -mean * std, 1.1),
        ("std twice", unit / std**2, -mean / std**2, 1.2),
        ("mean twice", unit / std, -2 * mean / std, 1.2),
        ("mean added", unit / std, mean / std, 1.2),
        ("mean of pixels", unit / std, -BYTE * mean / std, 1.1),
        ("mean of units", unit / std, -unit * mean / std, 1.1),
        ("std of units", 1 / std, -BYTE * mean / std, 1.1),
        ("std of pixels", unit**2 / std, -unit * mean / std, 1.1),
        ("pixel mean only", 1 + 0 * std, -BYTE * mean, 1.1),
    )
    found = []
    for form, gain, offset, cost in table:
        # Where std is one or the mean nothing, some slips are no slips.
        if form != "right" and np.allclose(gain, unit / std) and np.allclose(offset, -mean / std):
            continue
        name = form.replace(" ", "_")
        gaps = {"name": source.called} if form == "right" else {}
        text = message(f"preprocessing.form_{name}", **gaps)
        formula = message(f"preprocessing.formula_{name if form in _SLIPS else 'right'}", name=source.name)
        slip = form not in ("right", "no std")
        found.append(
            Convention(source.name, form, text, formula, order, gain, offset, source, cost + rarity, slip)
        )
    return found


# Which conventions numbers speak for: all of the table are scored, none is taken because it came first.
#
# What is known of an input is often little: the range it was calibrated for, two numbers. Several ways then fit,
# and saying one of them would be a guess. So what comes out is a ranking, and `leading` gives those of it that the
# numbers cannot tell apart.
#
# Costs are in parts of the range that black and white span. A set that does not reach black or white costs what is
# missing: pictures are like that. Values beyond black or white cost far more: no picture has them.

FITS = 0.65
"""A convention that costs no more fits a range: half of what is between black and white may well be missing."""

_MARGIN = 0.15
"""Costs that are no further apart do not tell two ways apart.

Sets of a few pictures miss black or white by some hundredths of the range, at either end, and calibration methods
cut off as much.
"""

# What is beyond black and white counts so many times, but for what resizing and the grid of a quantizer go beyond.
_BEYOND, _SLACK = 6.0, 0.02
# A slip is less likely than what people do on purpose, and a rare way than a usual one; both only break ties.
_SLIP, _RARITY = 0.05, 0.02
# Values that are whole numbers once undone are pixels of bytes. By chance that hardly happens.
_WHOLE, _NEARLY_WHOLE, _NEARLY_ALL = 0.2, 0.02, 0.98
_MOST_PIXELS = 4096
# How far mean and std are apart counts less than ends: other pictures have others.
_MOMENTS = 0.25
# Ways that are no further apart than two codes of 8 bits are one way for every purpose.
_EQUAL = 0.008
_SMALLEST = 1e-30

Represent = Callable[[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True, eq=False)
class InputObservation:
    """What is known of the values of an input.

    Attributes:
        channels: How many it has.
        low: Smallest value of each channel, or one for all; float64.
        high: Largest, likewise.
        mean: Mean of each channel; None where it is not known.
        std: Standard deviation of each channel; None where it is not known.
        pixels: Some of the values, float64 [n, channels]; None where they are not known.
        represent: For the range of a quantizer: what it makes of the range of values, by its grid.
    """

    channels: int
    low: Array
    high: Array
    mean: Array | None = None
    std: Array | None = None
    pixels: Array | None = None
    represent: Represent | None = None

    @staticmethod
    def of(values: Array, axis: int) -> "InputObservation":
        """All that values say of themselves; the channels lie along an axis."""
        rows = np.moveaxis(values, axis, -1).reshape(-1, values.shape[axis]).astype(np.float64)
        some = rows[:: -(-len(rows) // _MOST_PIXELS)]
        return InputObservation(
            rows.shape[1], rows.min(axis=0), rows.max(axis=0), rows.mean(axis=0), rows.std(axis=0), some
        )

    @staticmethod
    def within(low: float, high: float, channels: int, represent: Represent | None = None) -> "InputObservation":
        """A range and nothing else."""
        return InputObservation(channels, np.array([low]), np.array([high]), represent=represent)


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """How one input was made, and how another of the same network.

    Attributes:
        given: How the one was made.
        wanted: How the other was.
        cost: How badly both fit what is known; the less the better.
    """

    given: Convention
    wanted: Convention
    cost: float

    @property
    def same(self) -> bool:
        """Whether both were made in one way, as far as ranges can show: they do not show the order of channels."""
        return self.given.formula == self.wanted.formula or alike(self.given, self.wanted, _EQUAL)

    def change(self, values: Array, axis: int) -> Array:
        """Make what the other way would have made of the same pixels."""
        return self.wanted.made(self.given.undone(values, axis), axis)


def rank(ours: InputObservation, theirs: InputObservation, most: float = FITS) -> tuple[Hypothesis, ...]:
    """Every pair of ways in which two inputs may have been made, the likeliest first.

    Args:
        ours: What is known of one.
        theirs: What is known of the other.
        most: Ways that fit either side worse than this are left out.
    """
    found = []
    theirs_fit = plausible(theirs, most)
    for given, cost in plausible(ours, most):
        for wanted, other_cost in theirs_fit:
            found.append(Hypothesis(given, wanted, cost + other_cost + _moved(ours, theirs, given, wanted)))
    return tuple(sorted(found, key=lambda each: each.cost))


def plausible(observed: InputObservation, most: float = FITS) -> list[tuple[Convention, float]]:
    """The ways in which an input may have been made, with what speaks against each; the likeliest first."""
    found = []
    for each in preparations(observed.channels):
        cost = _off_ends(observed, *each.ends())
        if cost <= most:
            found.append(
                (each, cost + _RARITY * each.cost + _SLIP * each.slip - _WHOLE * _is_whole(observed, each))
            )
    return sorted(found, key=lambda pair: pair[1])


def leading(ranked: Sequence[Hypothesis], margin: float = _MARGIN) -> tuple[Hypothesis, ...]:
    """The likeliest, and those not to be told apart from it; of ways that are all but equal the most usual."""
    groups: list[list[Hypothesis]] = []
    for each in ranked:
        if each.cost > ranked[0].cost + margin:
            break
        home = next((group for group in groups if _equal(each, group[0])), None)
        if home is None:
            groups.append([each])
        else:
            home.append(each)
    return tuple(min(group, key=lambda each: each.given.cost + each.wanted.cost) for group in groups)


def _equal(one: Hypothesis, other: Hypothesis) -> bool:
    return all(
        left.formula == right.formula or alike(left, right, _EQUAL)
        for left, right in ((one.given, other.given), (one.wanted, other.wanted))
    )


def _off_ends(observed: InputObservation, low: Array, high: Array) -> float:
    """How far ends are from those of black and white."""
    if observed.low.size == 1:
        bottom, top = float(low.min()), float(high.max())
        bottom, top = (bottom, top) if observed.represent is None else observed.represent(bottom, top)
        low, high = np.array([bottom]), np.array([top])
    span = np.maximum(high - low, _SMALLEST)
    missing = np.maximum(observed.low - low, 0) / span + np.maximum(high - observed.high, 0) / span
    beyond = np.maximum(low - observed.low, 0) / span + np.maximum(observed.high - high, 0) / span
    return float(missing.mean() + _BEYOND * max(0.0, float(beyond.max()) - _SLACK))


def _is_whole(observed: InputObservation, way: Convention) -> bool:
    if observed.pixels is None:
        return False
    pixels = way.undone(observed.pixels, 1)
    near = np.abs(pixels - np.rint(pixels)) <= _NEARLY_WHOLE
    # Whatever is nearly constant is nearly whole once it is made small enough.
    return float(near.mean()) >= _NEARLY_ALL and float(np.ptp(np.rint(pixels))) > 1


def _moved(ours: InputObservation, theirs: InputObservation, given: Convention, wanted: Convention) -> float:
    """How far one input, made anew in the other way, is from the other input."""
    low, high = (wanted.made(given.undone(end, 0), 0) for end in _wide(ours))
    if theirs.low.size == 1:
        bottom, top = float(low.min()), float(high.max())
        bottom, top = (bottom, top) if theirs.represent is None else theirs.represent(bottom, top)
        low, high = np.array([bottom]), np.array([top])
    width = np.maximum(theirs.high - theirs.low, _SMALLEST)
    # Both sets miss black and white by something, each by its own: what they differ by says little beyond that.
    off = float(np.mean(np.abs(low - theirs.low) / width + np.abs(high - theirs.high) / width))
    if ours.mean is None or ours.std is None or theirs.mean is None or theirs.std is None:
        return min(off, 1.0)
    mean = wanted.made(given.undone(ours.mean, 0), 0)
    std = np.abs(ours.std * _slope(given, wanted))
    return min(off, 1.0) + _MOMENTS * moment_distance((mean, std), (theirs.mean, theirs.std))


def _wide(observed: InputObservation) -> Iterable[Array]:
    return (np.broadcast_to(end, observed.channels).astype(np.float64) for end in (observed.low, observed.high))


def _slope(given: Convention, wanted: Convention) -> Array:
    return np.asarray(wanted.gain / given.gain)


def moment_distance(ours: tuple[Array, Array], theirs: tuple[Array, Array]) -> float:
    """How far two sets of means and stds are apart: shifts in stds, and logarithms of their ratios."""
    (mean, std), (other_mean, other_std) = ours, theirs
    shift = np.abs(mean - other_mean) / np.maximum(np.maximum(other_std, std), _SMALLEST)
    ratio = np.log(np.maximum(std, _SMALLEST) / np.maximum(other_std, _SMALLEST))
    return float(np.median(shift) + np.median(np.abs(ratio)))
