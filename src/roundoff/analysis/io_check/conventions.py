"""The ways in which people turn pixels into numbers, right and wrong, as one gain and offset per channel."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["REVERSED", "Convention", "MeanStd", "conventions"]

REVERSED = " in reversed order"
"""What is added to the name of a mean and std for channels in the opposite order."""

_BYTE = 255.0


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


@dataclass(frozen=True, slots=True)
class Convention:
    """Values are ``gain * pixel + offset`` with pixels from 0 to 255.

    Attributes:
        form: What was done: ``plain`` without mean and std, ``right`` with both, else a slip.
        text: The same in words.
        gain: float64 [channels].
        offset: float64 [channels].
        source: The mean and std; None for plain ones.
        cost: How unusual it is.
    """

    form: str
    text: str
    gain: Array
    offset: Array
    source: MeanStd | None
    cost: float


# Published with the networks and data sets of these names.
_COLOUR_SETS = (
    MeanStd("ImageNet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    MeanStd("CLIP", (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    MeanStd("CIFAR-10", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    MeanStd("CIFAR-10 (2023, 1994, 2010)", (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    MeanStd("CIFAR-100", (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
)
_GRAY_SETS = (MeanStd("MNIST", (0.1307,), (0.3081,)), MeanStd("Fashion-MNIST", (0.2860,), (0.3530,)))
# Caffe's networks subtract these from pixels and divide by nothing.
_CAFFE_MEANS = ((103.939, 116.779, 123.68), (104.0, 117.0, 123.0), (103.94, 116.78, 123.68))
_CAFFE_SCALE = 0.017  # MobileNet and DenseNet in Caffe multiply by it


def conventions(channels: int, known: Iterable[MeanStd] = ()) -> tuple[Convention, ...]:
    """All that are known for so many channels.

    Args:
        channels: How many.
        known: More means and stds, such as those of the user's training.
    """
    found = list(_plain(channels))
    sets = [each for each in known if len(each.mean) in (1, channels)]
    sets += {1: _GRAY_SETS, 3: _COLOUR_SETS}.get(channels, ())
    for number, each in enumerate(sets):
        wide = MeanStd(each.name, each.mean * (channels // len(each.mean)), each.std * (channels // len(each.std)))
        found += _forms(wide, rarity=0.02 * number)
        if len(set(wide.mean)) > 1 or len(set(wide.std)) > 1:
            found += _forms(wide.reversed(), rarity=0.02 * number + 0.3)
    if channels == 3:
        found += _caffe()
    return tuple(found)


def _plain(channels: int) -> Iterable[Convention]:
    # Name, gain, offset and how unusual it is.
    table = (
        ("0..255", 1.0, 0.0, 0.0),
        ("0..1", 1 / _BYTE, 0.0, 0.0),
        ("-1..1 (x / 127.5 - 1)", 2 / _BYTE, -1.0, 0.0),
        ("-1..1 ((x - 128) / 128)", 1 / 128, -1.0, 0.1),
        ("-1..1 ((x - 127.5) / 128)", 1 / 128, -127.5 / 128, 0.1),
        ("-128..127 (x - 128)", 1.0, -128.0, 0.1),
        ("-127.5..127.5 (x - 127.5)", 1.0, -127.5, 0.2),
        ("0..1 (x / 256)", 1 / 256, 0.0, 0.2),
        ("-0.5..0.5 (x / 255 - 0.5)", 1 / _BYTE, -0.5, 0.2),
        ("0..2 (x / 127.5)", 2 / _BYTE, 0.0, 0.4),
        ("0..2 (x / 128)", 1 / 128, 0.0, 0.4),
        ("0..1/255 (divided by 255 twice)", 1 / _BYTE**2, 0.0, 1.0),
        ("0..65025 (multiplied by 255 instead of divided)", _BYTE, 0.0, 1.0),
        ("255..0 (inverted)", -1.0, _BYTE, 0.6),
        ("1..0 (inverted)", -1 / _BYTE, 1.0, 0.6),
    )
    for text, gain, offset, cost in table:
        yield Convention("plain", text, np.full(channels, gain), np.full(channels, offset), None, cost)


def _forms(source: MeanStd, *, rarity: float) -> list[Convention]:
    """What is right to do with a mean and std, and what people do instead."""
    mean, std, unit = np.array(source.mean), np.array(source.std), 1 / _BYTE
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
        ("mean of pixels", "a mean of 0..255 is subtracted from 0..1", unit / std, -_BYTE * mean / std, 1.1),
        (
            "mean of units",
            "a mean of 0..1 is subtracted from pixels of 0..255",
            unit / std,
            -unit * mean / std,
            1.1,
        ),
        ("std of units", "pixels of 0..255 are divided by a std of 0..1", 1 / std, -_BYTE * mean / std, 1.1),
        ("std of pixels", "0..1 is divided by a std of 0..255", unit**2 / std, -unit * mean / std, 1.1),
        ("pixel mean only", "only the mean of 0..255 is subtracted", 1 + 0 * std, -_BYTE * mean, 1.1),
    )
    # Where std is one or the mean nothing, some slips are no slips.
    right = (unit / std, -mean / std)
    return [
        Convention(form, text, gain, offset, source, cost + rarity)
        for form, text, gain, offset, cost in table
        if form == "right" or not (np.allclose(gain, right[0]) and np.allclose(offset, right[1]))
    ]


def _caffe() -> Iterable[Convention]:
    for number, blue_first in enumerate(_CAFFE_MEANS):
        for order, mean in (("B, G, R", blue_first), ("R, G, B", blue_first[::-1])):
            for factor, words in ((1.0, ""), (_CAFFE_SCALE, f", times {_CAFFE_SCALE}")):
                numbers = ", ".join(f"{value:g}" for value in mean)
                text = f"Caffe's mean of {order} ({numbers}){words}"
                source = MeanStd(f"Caffe ({order})", tuple(v / _BYTE for v in mean), (1 / _BYTE / factor,) * 3)
                gain, offset = np.full(3, factor), -factor * np.array(mean)
                yield Convention("right", text, gain, offset, source, 0.3 + 0.02 * number)
