"""The table of conventions (`conventions.toml`), typed: each is one gain and one offset per channel."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["BYTE", "REVERSED", "Convention", "MeanStd", "alike", "conventions", "preparations", "table_rows"]

REVERSED = " in reversed order"
"""What is added to the name of a mean and std for channels in the opposite order."""

BYTE = 255.0
"""The largest pixel."""

ChannelOrder = Literal["", "RGB", "BGR"]
_OPPOSITE: dict[str, ChannelOrder] = {"RGB": "BGR", "BGR": "RGB"}
_COLOURS = 3

# Slips with a mean and std that statistics are asked for, of those of `_forms`; others look like one of them, or
# like a right way. People do train without a std, so that one is none.
_SLIPS = {
    "no std": "x / 255 - mean of {name}, not divided by its std",
    "not scaled": "(x - mean) / std with the small mean and std of {name}, those for x / 255",
    "scaled twice": "(x / 255 - mean) / std with the large mean and std of {name}, those for x",
}
_SLIPPING = "ImageNet"
_OTHER_ORDER = 0.3


@dataclass(frozen=True, slots=True)
class MeanStd:
    """A mean and a std, per channel, of values from 0 to 1.

    Attributes:
        name: Whose they are.
        mean: Per channel.
        std: Per channel.
    """

    name: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def reversed(self) -> "MeanStd":
        """The same for channels in the opposite order."""
        return MeanStd(f"{self.name}{REVERSED}", self.mean[::-1], self.std[::-1])


@dataclass(frozen=True, slots=True, eq=False)
class Convention:
    """Values are ``gain * pixel + offset`` with pixels from 0 to 255.

    Attributes:
        name: As the table calls it, or whose mean and std it is.
        form: What was done: ``plain`` without mean and std, ``right`` with both, else a slip.
        text: The same in words, as seen from the values.
        formula: The same in words, as what is done to a pixel x.
        order: Of the channels, where mean or std differ between them.
        gain: float64 [channels].
        offset: float64 [channels].
        source: The mean and std; None for plain ones.
        cost: How unusual it is.
        slip: Whether nobody trains networks so.
    """

    name: str
    form: str
    text: str
    formula: str
    order: ChannelOrder
    gain: Array
    offset: Array
    source: MeanStd | None
    cost: float
    slip: bool

    @property
    def words(self) -> str:
        """The formula, with the order of channels where that is not the usual one."""
        return f"{self.formula}, channels being BGR" if self.order == "BGR" else self.formula

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
    slip = row.get("slip", False)
    return Convention(
        row["name"], "plain", row["says"], row["formula"], "", gains, offsets, None, row["rarity"], slip
    )


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
        text = row["says"].format(order=spelled, mean=", ".join(f"{value:g}" for value in mean))
        name = row["name"].partition(",")[0]
        source = MeanStd(f"{name} ({spelled})", tuple(v / BYTE for v in mean), (1 / BYTE / factor,) * len(mean))
        gain, offset = np.full(len(mean), factor), -factor * np.array(mean)
        yield Convention(
            row["name"], "right", text, row["formula"], order, gain, offset, source, row["rarity"], slip=False
        )


def _forms(source: MeanStd, *, rarity: float, order: ChannelOrder) -> list[Convention]:
    """What is right to do with a mean and std, and what people do instead."""
    mean, std, unit = np.array(source.mean), np.array(source.std), 1 / BYTE
    name = source.name
    # Form, words, gain and offset on pixels, how unusual.
    table: tuple[tuple[str, str, Array, Array, float], ...] = (
        ("right", f"mean and std of {name}", unit / std, -mean / std, 0.2),
        ("no std", "std is not divided by", unit + 0 * std, -mean, 1.0),
        ("no mean", "the mean is not subtracted", unit / std, 0 * mean, 1.0),
        ("twice", "mean and std are applied twice", unit / std**2, -mean / std**2 - mean / std, 1.0),
        ("not scaled", "mean and std of 0..1 are applied to pixels of 0..255", 1 / std, -mean / std, 1.0),
        ("scaled twice", "pixels are divided by 255 twice", unit**2 / std, -mean / std, 1.1),
        ("wrong order", "divided by std before the mean is subtracted", unit / std, -mean, 1.0),
        ("exchanged", "mean and std are exchanged", unit / mean, -std / mean, 1.0),
        ("std multiplied", "std multiplies instead of dividing", unit * std, -mean * std, 1.1),
        ("std twice", "std is divided by twice", unit / std**2, -mean / std**2, 1.2),
        ("mean twice", "the mean is subtracted twice", unit / std, -2 * mean / std, 1.2),
        ("mean added", "the mean is added instead of subtracted", unit / std, mean / std, 1.2),
        ("mean of pixels", "a mean of 0..255 is subtracted from 0..1", unit / std, -BYTE * mean / std, 1.1),
        (
            "mean of units",
            "a mean of 0..1 is subtracted from pixels of 0..255",
            unit / std,
            -unit * mean / std,
            1.1,
        ),
        ("std of units", "pixels of 0..255 are divided by a std of 0..1", 1 / std, -BYTE * mean / std, 1.1),
        ("std of pixels", "0..1 is divided by a std of 0..255", unit**2 / std, -unit * mean / std, 1.1),
        ("pixel mean only", "only the mean of 0..255 is subtracted", 1 + 0 * std, -BYTE * mean, 1.1),
    )
    # Where std is one or the mean nothing, some slips are no slips.
    right = (unit / std, -mean / std)
    known = name.removesuffix(REVERSED)
    formulas = {form: words.format(name=known) for form, words in _SLIPS.items()}
    usual = f"(x / 255 - mean) / std of {known}"
    return [
        Convention(
            known, form, text, formulas.get(form, usual), order, gain, offset, source, cost + rarity,
            slip=form not in ("right", "no std"),
        )
        for form, text, gain, offset, cost in table
        if form == "right" or not (np.allclose(gain, right[0]) and np.allclose(offset, right[1]))
    ]  # fmt: skip
