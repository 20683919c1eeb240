"""The table of conventions (`conventions.toml`), typed: each is one gain and one offset per channel."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
