"""Inputs of two sides for `roundoff check-io`: with a mistake between them, and with nothing but noise."""

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.planted.pictures import pictures
from roundoff.core.tensors import Array

__all__ = ["PairCase", "pair_cases"]

_COUNT, _SIZE = 4, 40
_IMAGENET = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], np.float32).reshape(2, 1, 3, 1, 1)
# ITU-R BT.601, full range.
_BT601 = np.array([[0.299, 0.587, 0.114], [-0.168736, -0.331264, 0.5], [0.5, -0.418688, -0.081312]])

Change = Callable[[Array, np.random.Generator], Array]
"""What the deployed side makes of pixels 0 .. 255, (count, 3, height, width), float64."""


@dataclass(frozen=True, slots=True)
class PairCase:
    """What training and the deployed side feed the model.

    Attributes:
        fault: What lies between the two.
        family: How the samples are prepared: ``pixels``, ``unit`` or ``imagenet``.
        seed: Which pictures.
        sides: Training's samples and those of the deployed side.
        kinds: Kinds of changes of which one has to be named; empty where there is only noise.
        true: Kinds that may be named of the noise, since they are what made it.
    """

    fault: str
    family: str
    seed: int
    sides: tuple[Array, Array]
    kinds: tuple[str, ...] = ()
    true: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.fault}/{self.family}/{self.seed}"

    @property
    def is_clean(self) -> bool:
        return not self.kinds

    def write(self, folder: Path) -> list[str]:
        """Write the two files; gives the arguments of `roundoff check-io` for them."""
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / "training.npy", folder / "board.npy"]
        for path, values in zip(files, self.sides, strict=True):
            np.save(path, np.ascontiguousarray(values))
        return ["--preprocessed", *map(str, files)]


def _gaussian(pixels: Array, rng: np.random.Generator) -> Array:
    return pixels + rng.normal(0, rng.choice([0.5, 2.0, 6.0]), pixels.shape)


def _uniform(pixels: Array, rng: np.random.Generator) -> Array:
    return pixels + rng.uniform(-1.5, 1.5, pixels.shape)


def _rounded(pixels: Array, rng: np.random.Generator) -> Array:
    """Rounded to the codes of a chip and brought back."""
    step = 255 / rng.choice([63, 100, 127])
    return np.asarray(np.round(pixels / step) * step)


def _jpeg(pixels: Array, rng: np.random.Generator, *, fine: bool = False) -> Array:
    """Through a JPEG; a fine one keeps colours at full resolution."""
    quality = 95 if fine else int(rng.choice([75, 88, 95]))
    found = []
    for picture in np.clip(np.round(pixels), 0, 255).astype(np.uint8):
        file = io.BytesIO()
        Image.fromarray(picture.transpose(1, 2, 0)).save(
            file, "JPEG", quality=quality, subsampling=0 if fine else 2
        )
        found.append(np.asarray(Image.open(file), np.float64).transpose(2, 0, 1))
    return np.stack(found)


def _resampled(pixels: Array, rng: np.random.Generator) -> Array:
    """Enlarged and brought back to the same size by a bilinear filter: next to the same, a little softer."""
    del rng
    found = []
    for picture in np.clip(np.round(pixels), 0, 255).astype(np.uint8):
        image = Image.fromarray(picture.transpose(1, 2, 0))
        large = image.resize((2 * _SIZE, 2 * _SIZE), Image.Resampling.BILINEAR)
        small = large.resize((_SIZE, _SIZE), Image.Resampling.BILINEAR)
        found.append(np.asarray(small, np.float64).transpose(2, 0, 1))
    return np.stack(found)


_NOISE: Mapping[str, Change] = {
    "gaussian": _gaussian,
    "uniform": _uniform,
    "rounded": _rounded,
    "jpeg": _jpeg,
    "resampled": _resampled,
}


# Pixels that were resampled, or rounded to codes: to say so is no false accusation.
_TRUE = {"rounded": ("codes", "element-type"), "resampled": ("resize",)}


def _swapped(pixels: Array, rng: np.random.Generator) -> Array:
    del rng
    return pixels[:, ::-1]


def _yuv(pixels: Array, rng: np.random.Generator) -> Array:
    del rng
    mixed = np.einsum("ij,bjhw->bihw", _BT601, pixels)
    return np.asarray(mixed + np.array([0, 128, 128.0]).reshape(1, 3, 1, 1))


def _mirrored(pixels: Array, rng: np.random.Generator) -> Array:
    del rng
    return pixels[..., ::-1]


def _halved(pixels: Array, rng: np.random.Generator) -> Array:
    del rng
    return pixels * 0.5 + 20.0


_MISTAKES: Mapping[str, tuple[Change, tuple[str, ...]]] = {
    "swapped": (_swapped, ("channel-order",)),
    "yuv": (_yuv, ("colour-matrix",)),
    "mirrored": (_mirrored, ("mirrored",)),
    "affine": (_halved, ("affine", "normalization", "range")),
}


def _prepared(pixels: Array, how: str) -> Array:
    if how == "pixels":
        return pixels.astype(np.float32)
    unit = (pixels / 255).astype(np.float32)
    return unit if how == "unit" else ((unit - _IMAGENET[0]) / _IMAGENET[1]).astype(np.float32)


def pair_cases(seed: int) -> Iterator[tuple[str, Callable[[], PairCase]]]:
    """Every pair of a seed by name, each made when it is called."""
    for how in ("pixels", "unit", "imagenet"):
        for name, noise in _NOISE.items():
            fault = f"clean-io-{name}"
            yield f"{fault}/{how}/{seed}", partial(_pair, fault, how, seed, noise=noise)
        for name, (change, kinds) in _MISTAKES.items():
            for fault, first in ((f"io-{name}", None), (f"io-{name}-jpeg", partial(_jpeg, fine=True))):
                make = partial(_pair, fault, how, seed, noise=first, change=change, kinds=kinds)
                yield f"{fault}/{how}/{seed}", make


def _pair(
    fault: str,
    how: str,
    seed: int,
    *,
    noise: Change | None,
    change: Change | None = None,
    kinds: tuple[str, ...] = (),
) -> PairCase:
    rng = np.random.default_rng([seed, *f"{fault}/{how}".encode()])
    values, _ = pictures(rng, _COUNT, size=_SIZE)
    # A cast of colour and a contrast for each picture, as photographs have; 8-bit pixels.
    gain = rng.uniform(25, 55, (_COUNT, 1, 1, 1)) * rng.uniform(0.7, 1.3, (_COUNT, 3, 1, 1))
    pixels = np.clip(np.round(values * gain + rng.uniform(90, 150, (_COUNT, 3, 1, 1))), 0, 255)
    board = pixels.astype(np.float64)
    for each in (noise, change):
        board = board if each is None else each(board, rng)
    true = _TRUE.get(fault.removeprefix("clean-io-"), ())
    return PairCase(fault, how, seed, (_prepared(pixels, how), _prepared(board, how)), kinds, true)
