"""Pictures that look natural to a fit: smooth fields, edges, channels that are alike; and mistakes to plant."""

from collections.abc import Callable

import numpy as np

from roundoff.core.tensors import Array

MEAN, STD = np.array((0.485, 0.456, 0.406)), np.array((0.229, 0.224, 0.225))

Change = Callable[[Array], Array]


def natural(rng: np.random.Generator, height: int = 32, width: int = 40, channels: int = 3) -> Array:
    """Waves that all channels share, some of their own, discs with edges, and a little noise; uint8."""
    rows, columns = np.mgrid[0:height, 0:width]

    def wave(strength: float) -> Array:
        field: Array = (
            rng.normal()
            * strength
            * np.cos(rng.uniform(0.02, 0.5) * columns + rng.uniform(0.02, 0.5) * rows + rng.uniform(0, 6))
        )
        return field

    picture = np.stack([sum((wave(1.0) for _ in range(4)), np.zeros(())) for _ in range(channels)], axis=-1)
    picture += sum((wave(2.0) for _ in range(4)), np.zeros(()))[..., None]
    for _ in range(6):
        centre, reach = (rng.uniform(0, height), rng.uniform(0, width)), rng.uniform(3, max(4, height / 3))
        disc = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 < reach**2
        picture[disc] += 3 * rng.normal(size=channels)
    picture += 0.1 * rng.normal(size=picture.shape)
    scaled: Array = np.rint((picture - picture.min()) / np.ptp(picture) * 255).astype(np.uint8)
    return scaled


def noise(rng: np.random.Generator, height: int = 32, width: int = 40) -> Array:
    return rng.integers(0, 256, (height, width, 3), dtype=np.uint8)


def normalized(pixels: Array) -> Array:
    """The usual way, [height, width, 3] to float64 of the same shape."""
    values: Array = (pixels / 255 - MEAN) / STD
    return values


def planes(values: Array) -> Array:
    """[height, width, channels] as a batch of one, channels first."""
    return np.ascontiguousarray(values.transpose(2, 0, 1)[None])


def fed(pixels: Array) -> Array:
    """What training feeds for a picture."""
    return planes(normalized(pixels)).astype(np.float32)


VALUES: dict[str, tuple[Change, str]] = {
    "0..1": (lambda p: p / 255, "the deployed side does not: it has 0..1"),
    "0..255": (lambda p: p * 1.0, "the deployed side does not: it has 0..255"),
    "-1..1": (lambda p: p / 127.5 - 1, "it has -1..1 (x / 127.5 - 1)"),
    "(x-128)/128": (lambda p: (p - 128.0) / 128, "it has -1..1 ((x - 128) / 128)"),
    "x-128": (lambda p: p - 128.0, "it has -128..127 (x - 128)"),
    "twice": (lambda p: (normalized(p) - MEAN) / STD, "mean and std are applied twice"),
    "wrong order": (lambda p: p / 255 / STD - MEAN, "divided by std before the mean is subtracted"),
    "no std": (lambda p: p / 255 - MEAN, "std is not divided by"),
    "no mean": (lambda p: p / 255 / STD, "the mean is not subtracted"),
    "exchanged": (lambda p: (p / 255 - STD) / MEAN, "mean and std are exchanged"),
    "not scaled": (lambda p: (p - MEAN) / STD, "mean and std of 0..1 are applied to pixels of 0..255"),
    "mean of pixels": (lambda p: (p / 255 - 255 * MEAN) / STD, "a mean of 0..255 is subtracted from 0..1"),
    "std of pixels": (lambda p: (p / 255 - MEAN) / (255 * STD), "0..1 is divided by a std of 0..255"),
    "reversed": (lambda p: (p / 255 - MEAN[::-1]) / STD[::-1], "in the opposite order of channels"),
    "multiplied": (lambda p: (p / 255 - MEAN) * STD, "std multiplies instead of dividing"),
    "divided twice": (lambda p: (p / 65025 - MEAN) / STD, "pixels are divided by 255 twice"),
}
"""Wrong ways to make numbers of pixels, and words that name them."""

TURNS: dict[str, Change] = {
    "channel-order": lambda p: p[..., ::-1],
    "mirrored": lambda p: p[:, ::-1],
    "upside-down": lambda p: p[::-1],
    "transposed": lambda p: p.transpose(1, 0, 2),
}
"""Wrong ways to hold a picture, by their kind."""

LAYOUTS: dict[str, Change] = {
    "": planes,
    "layout": lambda v: np.ascontiguousarray(v)[None],
    "reshaped": lambda v: np.ascontiguousarray(v).reshape(1, 3, *v.shape[:2]),
}
"""Ways to store it, by the kind of change."""
