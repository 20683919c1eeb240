"""Inputs of two sides for `roundoff check-io`: with a mistake between them, and with nothing but noise.

Everything is made here, with numpy and Pillow and numbers copied from the standards: nothing of the package that
is asked. Half of the pictures are photographs where those lie beside the checkout; the others are made in code.
"""

import io
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from benchmarks.planted.pictures import pictures
from roundoff.core.tensors import Array

PHOTOS = Path(__file__).resolve().parents[3] / "shared" / "data" / "imagenet256"
_SIZES = ((40, 40), (56, 56), (64, 48), (96, 80))

Change = Callable[[Array, np.random.Generator], Array]
"""What the deployed side makes of pixels 0 .. 255, (count, height, width, 3), float64."""

Sides = tuple[Array, Array]

_FAMILIES = ("pixels", "unit", "signed", "imagenet")


@dataclass(frozen=True, slots=True)
class PairCase:
    """What training and the deployed side feed the model, or get from it.

    Attributes:
        fault: What lies between the two.
        family: How the samples are prepared: ``pixels``, ``unit``, ``signed`` or ``imagenet``; ``output``.
        seed: Which pictures.
        sides: Training's samples and those of the deployed side.
        kinds: Kinds of changes that have to be named, any one of each tuple; empty where there is only noise.
        true: Kinds that may be named besides, since they are what made the noise.
        words: What the text of the changes has to hold.
        original: What both were made from; None where it is not given.
    """

    fault: str
    family: str
    seed: int
    sides: Sides
    kinds: tuple[tuple[str, ...], ...] = ()
    true: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    original: Array | None = None

    @property
    def name(self) -> str:
        return f"{self.fault}/{self.family}/{self.seed}"

    @property
    def is_clean(self) -> bool:
        return not self.kinds

    def write(self, folder: Path) -> list[str]:
        """Write the files; gives the arguments of `roundoff check-io` for them."""
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / "training.npy", folder / "board.npy"]
        for path, values in zip(files, self.sides, strict=True):
            np.save(path, np.ascontiguousarray(values))
        stage = "--output" if self.family == "output" else "--preprocessed"
        arguments = [stage, *map(str, files)]
        if self.original is not None:
            np.save(folder / "original.npy", self.original)
            arguments = ["--original", str(folder / "original.npy"), *arguments]
        return arguments


# Pictures.


@cache
def _photo_files() -> tuple[Path, ...]:
    return tuple(sorted(PHOTOS.glob("*.jpg"))) if PHOTOS.is_dir() else ()


def _pixels(rng: np.random.Generator, count: int, size: tuple[int, int]) -> Array:
    """Bytes as float64 (count, height, width, 3); photographs for half of the calls, where there are any."""
    files = _photo_files()
    if files and rng.random() < 0.5:
        chosen = rng.choice(len(files), count, replace=False)
        wide = [Image.open(files[each]).convert("RGB") for each in chosen]
        return np.stack([np.asarray(each.resize(size[::-1], Image.Resampling.BOX), np.float64) for each in wide])
    values = pictures(rng, count, size=max(size))[0].transpose(0, 2, 3, 1)[:, : size[0], : size[1]]
    # A cast of colour and a contrast for each picture, as photographs have.
    gain = rng.uniform(25, 55, (count, 1, 1, 1)) * rng.uniform(0.7, 1.3, (count, 1, 1, 3))
    return np.clip(np.round(values * gain + rng.uniform(90, 150, (count, 1, 1, 3))), 0, 255).astype(np.float64)


def _bytes(pixels: Array) -> Array:
    return np.clip(np.round(pixels), 0, 255).astype(np.uint8)


def _each(pixels: Array, made: Callable[[Image.Image], Image.Image]) -> Array:
    return np.stack([np.asarray(made(Image.fromarray(each)), np.float64) for each in _bytes(pixels)])


# Noise: no claim may be made of it.


def _gaussian(pixels: Array, rng: np.random.Generator, *, sigma: float) -> Array:
    return pixels + rng.normal(0, sigma, pixels.shape)


def _gray_noise(pixels: Array, rng: np.random.Generator) -> Array:
    """The same in all channels: grain of film."""
    return pixels + rng.normal(0, 4, (*pixels.shape[:3], 1))


def _uniform(pixels: Array, rng: np.random.Generator) -> Array:
    return pixels + rng.uniform(-1.5, 1.5, pixels.shape)


def _speckle(pixels: Array, rng: np.random.Generator) -> Array:
    return pixels * (1 + rng.normal(0, 0.03, pixels.shape))


def _poisson(pixels: Array, rng: np.random.Generator) -> Array:
    return rng.poisson(np.maximum(pixels, 0) * 2) / 2.0


def _salted(pixels: Array, rng: np.random.Generator) -> Array:
    hit = rng.random(pixels.shape[:3]) < 0.01
    return np.where(hit[..., None], rng.choice([0.0, 255.0], (*pixels.shape[:3], 1)), pixels)


def _fixed_pattern(pixels: Array, rng: np.random.Generator) -> Array:
    """Columns of a sensor that are a little brighter or darker."""
    return pixels + rng.normal(0, 3, (1, 1, pixels.shape[2], 3))


def _rounded(pixels: Array, rng: np.random.Generator) -> Array:
    """Rounded to the codes of a chip and brought back."""
    step = 255 / rng.choice([63, 100, 127])
    return np.asarray(np.round(pixels / step) * step)


def _byte_noise(pixels: Array, rng: np.random.Generator) -> Array:
    """One step up or down, in whole numbers."""
    return np.clip(pixels + rng.integers(-1, 2, pixels.shape), 0, 255)


def _jpeg(pixels: Array, rng: np.random.Generator, *, quality: int, subsampling: int = 2) -> Array:
    def through(image: Image.Image) -> Image.Image:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality, subsampling=subsampling)
        return Image.open(file)

    del rng
    return _each(pixels, through)


def _subsampled(pixels: Array, rng: np.random.Generator) -> Array:
    """Chroma of half the size, by the same matrix on the way there and back: the colours are right."""
    matrix = _decoding(*rng.choice(_STANDARDS), limited=bool(rng.integers(2)))
    return _yuv_chain(pixels, matrix, matrix, half=True, whole=bool(rng.integers(2)))


def _resampled(pixels: Array, rng: np.random.Generator) -> Array:
    """Enlarged or made smaller, and brought back to the same size: next to the same, a little softer."""
    filters = list(Image.Resampling)
    there, back = (filters[each] for each in rng.choice(len(filters), 2))
    scale = rng.choice([0.8, 1.25, 2.0])

    def through(image: Image.Image) -> Image.Image:
        size = image.size
        return image.resize((round(scale * size[0]), round(scale * size[1])), there).resize(size, back)

    return _each(pixels, through)


def _softened(pixels: Array, rng: np.random.Generator) -> Array:
    return _each(pixels, lambda image: image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.3, 1.0)))))


def _sharpened(pixels: Array, rng: np.random.Generator) -> Array:
    del rng
    return _each(pixels, lambda image: image.filter(ImageFilter.SHARPEN))


def _half_pixel(pixels: Array, rng: np.random.Generator) -> Array:
    """Half a pixel aside, as other centres of pixels make it."""
    del rng
    return np.asarray((pixels + np.roll(pixels, 1, axis=2)) / 2)


def _median(pixels: Array, rng: np.random.Generator) -> Array:
    del rng
    return _each(pixels, lambda image: image.filter(ImageFilter.MedianFilter(3)))


def _others(pixels: Array, rng: np.random.Generator) -> Array:
    """Other pictures altogether."""
    return _pixels(rng, len(pixels), pixels.shape[1:3])


_NOISE: Mapping[str, Change] = {
    **{f"gaussian-{sigma:g}": partial(_gaussian, sigma=sigma) for sigma in (0.5, 2, 6, 15)},
    "gray-noise": _gray_noise,
    "uniform": _uniform,
    "speckle": _speckle,
    "poisson": _poisson,
    "salted": _salted,
    "fixed-pattern": _fixed_pattern,
    "rounded": _rounded,
    "byte-noise": _byte_noise,
    **{f"jpeg-{quality}": partial(_jpeg, quality=quality) for quality in (30, 50, 75, 88, 95)},
    **{f"jpeg-444-{quality}": partial(_jpeg, quality=quality, subsampling=0) for quality in (50, 90)},
    "subsampled": _subsampled,
    "resampled": _resampled,
    "softened": _softened,
    "sharpened": _sharpened,
    "half-pixel": _half_pixel,
    "median": _median,
    "others": _others,
}

# Pixels that were resampled, or rounded to codes: to say so is no false accusation.
_TRUE = {"rounded": ("codes", "element-type"), "resampled": ("resize",), "half-pixel": ("resize",)}


# Mistakes.

# Weights of red and blue in luma: ITU-R BT.601, BT.709.
_STANDARDS = ((0.299, 0.114), (0.2126, 0.0722))
_STANDARD_NAMES = dict(zip(_STANDARDS, ("BT.601", "BT.709"), strict=True))


def _decoding(red: float, blue: float, *, limited: bool) -> Array:
    """Y, U, V as bytes to R, G, B; (3, 4) with offsets."""
    green = 1 - red - blue
    rows = np.array(
        [
            [1, 0, 2 * (1 - red)],
            [1, -2 * blue * (1 - blue) / green, -2 * red * (1 - red) / green],
            [1, 2 * (1 - blue), 0],
        ]
    )
    rows = rows * (np.array([255 / 219, 255 / 224, 255 / 224]) if limited else 1.0)
    return np.column_stack([rows, -rows @ np.array([16 if limited else 0, 128, 128])])


def _yuv_chain(pixels: Array, encoded: Array, decoded: Array, *, half: bool, whole: bool) -> Array:
    """Through YUV: made by the inverse of one matrix, brought back by another."""
    yuv = (pixels - encoded[:, 3]) @ np.linalg.inv(encoded[:, :3]).T
    if half:
        count, height, width, _ = yuv.shape
        small = yuv[..., 1:].reshape(count, height // 2, 2, width // 2, 2, 2).mean(axis=(2, 4))
        yuv = np.concatenate([yuv[..., :1], small.repeat(2, axis=1).repeat(2, axis=2)], axis=-1)
    yuv = _bytes(yuv).astype(np.float64) if whole else yuv
    rgb = yuv @ decoded[:, :3].T + decoded[:, 3]
    return _bytes(rgb).astype(np.float64) if whole else rgb


@dataclass(frozen=True, slots=True)
class _Slip:
    """A mistake.

    Attributes:
        sides: Makes both sides of pixels, training's numbers made in the way of the family.
        kinds: See `PairCase`.
        words: See `PairCase`.
        families: For which families it is made.
        least: How much it must differ by from what a line per channel makes, in pixels; less cannot be told from
            noise by anybody, so that other pictures are taken.
    """

    sides: Callable[[Array, np.random.Generator, str], Sides]
    kinds: tuple[tuple[str, ...], ...]
    words: tuple[str, ...] = ()
    families: tuple[str, ...] = _FAMILIES
    least: float = 0.0


_IMAGENET = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])
_WAYS: Mapping[str, tuple[Array, Array]] = {
    # Mean and std of pixels from 0 to 255.
    "pixels": (np.zeros(3), np.ones(3)),
    "unit": (np.zeros(3), np.full(3, 255.0)),
    "signed": (np.full(3, 127.5), np.full(3, 127.5)),
    "imagenet": (255 * _IMAGENET[0], 255 * _IMAGENET[1]),
    "clip": (
        255 * np.array([0.48145466, 0.4578275, 0.40821073]),
        255 * np.array([0.26862954, 0.26130258, 0.27577711]),
    ),
    "cifar": (255 * np.array([0.4914, 0.4822, 0.4465]), 255 * np.array([0.2470, 0.2435, 0.2616])),
    "caffe": (np.array([123.68, 116.779, 103.939]), np.ones(3)),
    "int8": (np.full(3, 128.0), np.ones(3)),
    # The averages of ImageNet's over the colours, for pictures of one channel.
    "gray": (np.full(3, 255 * 0.449), np.full(3, 255 * 0.226)),
}


def _prepared(pixels: Array, how: str) -> Array:
    mean, std = _WAYS[how]
    return np.asarray(((pixels - mean) / std).transpose(0, 3, 1, 2).astype(np.float32))


def _on_pixels(change: Change) -> Callable[[Array, np.random.Generator, str], Sides]:
    """A change of pixels before numbers are made of them."""
    return lambda pixels, rng, how: (_prepared(pixels, how), _prepared(change(pixels, rng), how))


def _on_values(change: Callable[[Array], Array]) -> Callable[[Array, np.random.Generator, str], Sides]:
    """A change of the finished array."""

    def sides(pixels: Array, rng: np.random.Generator, how: str) -> Sides:
        del rng
        values = _prepared(pixels, how)
        return values, change(values)

    return sides


def _yuv(pixels: Array, rng: np.random.Generator, how: str, *, matrices: Sides, whole: bool) -> Sides:
    """One stored YUV picture, brought back by another matrix on either side."""
    half = bool(rng.integers(2))
    one, other = (_yuv_chain(pixels, matrices[0], each, half=half, whole=whole) for each in matrices)
    return _prepared(one, how), _prepared(other, how)


def _yuv_slips() -> Iterator[tuple[str, _Slip]]:
    ways = list(itertools.product(_STANDARDS, (False, True)))
    for (one, other), whole in itertools.product(itertools.permutations(ways, 2), (False, True)):
        names = [f"{_STANDARD_NAMES[each[0]]} {'limited' if each[1] else 'full'} range" for each in (one, other)]
        short = "-".join(name.replace("BT.", "").replace(" range", "").replace(" ", "") for name in names)
        matrices = _decoding(*one[0], limited=one[1]), _decoding(*other[0], limited=other[1])
        slip = _Slip(partial(_yuv, matrices=matrices, whole=whole), (("colour-matrix",),), tuple(names))
        # Rounding to bytes, three times, makes more noise than the colours of a nearly gray picture differ by.
        yield f"yuv-{short}-{'bytes' if whole else 'float'}", replace(slip, least=_COLOURFUL if whole else 0.5)


def _gray(pixels: Array, rng: np.random.Generator) -> Array:
    weights = [(0.299, 0.587, 0.114), (0.2126, 0.7152, 0.0722), (1 / 3, 1 / 3, 1 / 3)][rng.integers(3)]
    gray = (pixels @ np.array(weights))[..., None]
    gray = np.round(gray) if rng.integers(2) else gray
    return np.repeat(gray, 3, axis=-1)


def _gray_sides(pixels: Array, rng: np.random.Generator, how: str, *, deployed: bool, one: bool) -> Sides:
    gray = _prepared(_gray(pixels, rng), "gray" if one and how == "imagenet" else how)
    gray = gray[:, :1] if one else gray
    colour = _prepared(pixels, how)
    return (colour, gray) if deployed else (gray, colour)


def _curved(pixels: Array, rng: np.random.Generator, *, exponent: float, whole: bool) -> Array:
    del rng
    values = 255 * (np.clip(pixels, 0, 255) / 255) ** exponent
    return np.round(values) if whole else values


def _linear_light(pixels: Array, rng: np.random.Generator) -> Array:
    coded = np.clip(pixels, 0, 255) / 255
    light = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)
    return 255 * light if rng.integers(2) else np.round(255 * light)


def _ways(pixels: Array, rng: np.random.Generator, how: str, *, deployed: str) -> Sides:
    del rng
    return _prepared(pixels, how), _prepared(pixels, deployed)


def _twice(values: Array) -> Array:
    mean, std = (each.reshape(1, 3, 1, 1) for each in _IMAGENET)
    return np.asarray((values - mean) / std).astype(np.float32)


def _reversed_mean(pixels: Array, rng: np.random.Generator, how: str) -> Sides:
    del rng
    mean, std = _WAYS[how]
    wrong = ((pixels - mean[::-1]) / std[::-1]).transpose(0, 3, 1, 2)
    return _prepared(pixels, how), wrong.astype(np.float32)


def _cut_off(pixels: Array, rng: np.random.Generator, how: str) -> Sides:
    """Pixels between whole ones, of which the deployed side cuts the fraction off."""
    fine = np.clip(pixels + rng.uniform(-0.5, 0.5, pixels.shape), 0, 255)
    return _prepared(fine, how), _prepared(np.floor(fine), how)


def _swapped(pixels: Array, rng: np.random.Generator, *, noise: Change | None = None) -> Array:
    return (pixels if noise is None else noise(pixels, rng))[..., ::-1]


def _codes(pixels: Array, rng: np.random.Generator, how: str) -> Sides:
    values = _prepared(pixels, how)
    scale = float(np.ptp(values)) / 255 * rng.uniform(1.0, 1.2)
    zero = int(np.round(-128 - values.min() / scale))
    return values, np.clip(np.round(values / scale) + zero, -128, 127).astype(np.int8)


def _shifted(pixels: Array, rng: np.random.Generator, how: str) -> Sides:
    down, right = rng.integers(1, 5), rng.integers(0, 5)
    height, width = pixels.shape[1] - 6, pixels.shape[2] - 6
    one, other = pixels[:, :height, :width], pixels[:, down : down + height, right : right + width]
    return _prepared(one, how), _prepared(other, how)


def _boxed(pixels: Array, rng: np.random.Generator, how: str) -> Sides:
    one = np.pad(pixels, ((0, 0), (8, 8), (0, 0), (0, 0)), constant_values=114)
    other = np.pad(pixels, ((0, 0), (8, 8), (0, 0), (0, 0)), constant_values=float(rng.choice([0, 128, 255])))
    return _prepared(one, how), _prepared(other, how)


# In pixels, root mean square.
_COLOURFUL = 3.0
_NUMBERS = (("range", "normalization"),)
_MISTAKES: Mapping[str, _Slip] = {
    "swapped": _Slip(_on_pixels(_swapped), (("channel-order",),)),
    **{
        f"swapped-{name}": _Slip(
            _on_pixels(partial(_swapped, noise=noise)),
            (("channel-order",),),
            least=least,
        )
        # About four times what the noise leaves.
        for name, noise, least in (
            ("jpeg-444-95", partial(_jpeg, quality=95, subsampling=0), 12.0),
            ("jpeg-90", partial(_jpeg, quality=90), 40.0),
            ("noise", partial(_gaussian, sigma=1.0), 4.0),
        )
    },
    "mirrored-jpeg-90": _Slip(
        _on_pixels(lambda pixels, rng: _jpeg(pixels, rng, quality=90)[:, :, ::-1]), (("mirrored",),), least=40.0
    ),
    "nhwc-noise": _Slip(
        lambda pixels, rng, how: (
            _prepared(pixels, how),
            _prepared(_gaussian(pixels, rng, sigma=2.0), how).transpose(0, 2, 3, 1),
        ),
        (("layout",),),
    ),
    "to-unit-jpeg-90": _Slip(
        lambda pixels, rng, how: (_prepared(pixels, how), _prepared(_jpeg(pixels, rng, quality=90), "unit")),
        _NUMBERS,
        families=("pixels", "imagenet"),
    ),
    "mirrored": _Slip(_on_pixels(lambda pixels, _: pixels[:, :, ::-1]), (("mirrored",),)),
    "upside-down": _Slip(_on_pixels(lambda pixels, _: pixels[:, ::-1]), (("upside-down",),)),
    "transposed": _Slip(_on_pixels(lambda pixels, _: pixels.transpose(0, 2, 1, 3)), (("transposed",),)),
    "nhwc": _Slip(_on_values(lambda values: values.transpose(0, 2, 3, 1)), (("layout",),)),
    "reshaped": _Slip(
        _on_values(lambda values: np.ascontiguousarray(values.transpose(0, 2, 3, 1)).reshape(values.shape)),
        (("reshaped",),),
    ),
    "shifted": _Slip(_shifted, (("shifted",),)),
    "border": _Slip(_boxed, (("padding",),)),
    **{
        f"to-{way}": _Slip(
            partial(_ways, deployed=way), _NUMBERS, families=tuple(each for each in _FAMILIES if each != way)
        )
        for way in _WAYS
        if way != "gray"
    },
    "mean-twice": _Slip(_on_values(_twice), (("normalization",),), ("twice",), ("imagenet",)),
    "mean-reversed": _Slip(_reversed_mean, (("normalization",),), (), ("imagenet",)),
    "divided-twice": _Slip(_on_values(lambda values: values / np.float32(255)), (("range",),), (), ("unit",)),
    "cut-off": _Slip(_cut_off, (("codes", "element-type", "range"),), (), ("pixels",)),
    "not-dequantized": _Slip(_codes, (("codes", "range", "normalization"),)),
    "affine": _Slip(
        _on_pixels(lambda pixels, _: pixels * 0.5 + 20.0), (("affine", "normalization", "range", "codes"),)
    ),
    **dict(_yuv_slips()),
    **{
        f"gray-{side}-{count}": _Slip(
            partial(_gray_sides, deployed=side == "deployed", one=count == 1), (("channels",),)
        )
        for side in ("deployed", "training")
        for count in (1, 3)
    },
    **{
        f"gamma-{exponent:.2f}-{'bytes' if whole else 'float'}": _Slip(
            _on_pixels(partial(_curved, exponent=exponent, whole=whole)), (("gamma",),)
        )
        for exponent in (2.2, 1 / 2.2, 1.8, 1 / 1.8)
        for whole in (True, False)
    },
    "gamma-srgb": _Slip(_on_pixels(_linear_light), (("gamma",),)),
}


# Outputs.


def _softmax(values: Array, axis: int) -> Array:
    powers = np.exp(values - values.max(axis=axis, keepdims=True))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


_OUTPUT_SLIPS: Mapping[str, tuple[Callable[[Array], Array], str]] = {
    "softmax-last": (lambda values: _softmax(values, -1), "activation"),
    "softmax-1": (lambda values: _softmax(values, 1), "activation"),
    "softmax-inner": (lambda values: _softmax(values, -2), "activation"),
    "log-softmax": (lambda values: np.log(_softmax(values, -1)), "activation"),
    "sigmoid": (lambda values: 1 / (1 + np.exp(-values)), "activation"),
    "relu": (lambda values: np.maximum(values, 0), "activation"),
    "tanh": (np.tanh, "activation"),
    "argmax-last": (lambda values: values.argmax(axis=-1).astype(np.float64), "activation"),
    "argmax-1": (lambda values: values.argmax(axis=1).astype(np.float64), "activation"),
    "argmax-kept": (lambda values: values.argmax(axis=1, keepdims=True).astype(np.int64), "activation"),
    "one-hot": (
        lambda values: (values == values.max(axis=-1, keepdims=True)).astype(np.float32),
        "activation",
    ),
    "positive": (lambda values: (values > 0).astype(np.float32), "activation"),
    "clipped-6": (lambda values: np.clip(values, 0, 6), "activation"),
    "unit-length": (
        lambda values: values / np.sqrt(np.square(values).sum(axis=-1, keepdims=True)),
        "activation",
    ),
    "transposed": (lambda values: values.swapaxes(-1, -2), "axes"),
}


def _outputs(fault: str, seed: int, *, deployed: bool) -> PairCase:
    rng = np.random.default_rng([seed, *fault.encode()])
    change, kind = _OUTPUT_SLIPS[fault.removeprefix("io-output-").rpartition("-")[0]]
    shape = [(4, 10, 12), (2, 21, 16, 16), (3, 40, 7)][rng.integers(3)]
    values = (rng.normal(0, 3, shape) + rng.normal(0, 1, shape[-1])).astype(np.float32)
    made = change(values.astype(np.float64))
    made = made.astype(np.float32) if made.dtype == np.float64 else made
    sides = (values, made) if deployed else (made, values)
    return PairCase(fault, "output", seed, sides, ((kind,),))


# In parts of the spread of the values.
_OUTPUT_NOISE = {"weak": 0.01, "plain": 0.1, "strong": 0.5}


def _output_noise(name: str, seed: int) -> PairCase:
    fault = f"clean-io-output-{name}"
    rng = np.random.default_rng([seed, *fault.encode()])
    shape = [(4, 10, 12), (2, 21, 16, 16), (3, 40, 7), (64,)][rng.integers(4)]
    values = (rng.normal(0, 3, shape) + rng.normal(0, 1, shape[-1])).astype(np.float32)
    other = values + rng.normal(0, _OUTPUT_NOISE[name] * values.std(), shape).astype(np.float32)
    if rng.integers(2):
        # Probabilities, as networks give them.
        values, other = (_softmax(each, -1).astype(np.float32) for each in (values, other))
    return PairCase(fault, "output", seed, (values, other))


# With the original: another filter.

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


def _resized_otherwise(fault: str, how: str, seed: int) -> PairCase:
    rng = np.random.default_rng([seed, *f"{fault}/{how}".encode()])
    one, other = fault.removeprefix("io-resize-").split("-")
    original = _bytes(_pixels(rng, 1, (96, 80)))
    made = []
    for kernel in (_FILTERS[one], _FILTERS[other]):
        small = Image.fromarray(original[0]).resize((48, 56), kernel)
        made.append(_prepared(np.asarray(small, np.float64)[None], how))
    return PairCase(fault, how, seed, (made[0], made[1]), (("resize",),), original=original[0])


def pair_cases(seed: int) -> Iterator[tuple[str, Callable[[], PairCase]]]:
    """Every pair of a seed by name, each made when it is called; numbers are made in another way for each seed."""
    for name in _NOISE:
        how = _family(name, seed, _FAMILIES)
        yield f"clean-io-{name}/{how}/{seed}", partial(_noisy, name, how, seed)
    for name, slip in _MISTAKES.items():
        how = _family(name, seed, slip.families)
        yield f"io-{name}/{how}/{seed}", partial(_mistaken, name, how, seed)
    for one, other in itertools.permutations(_FILTERS, 2):
        fault = f"io-resize-{one}-{other}"
        how = _family(fault, seed, _FAMILIES)
        yield f"{fault}/{how}/{seed}", partial(_resized_otherwise, fault, how, seed)
    for name, side in itertools.product(_OUTPUT_SLIPS, ("deployed", "training")):
        fault = f"io-output-{name}-{side}"
        yield f"{fault}/output/{seed}", partial(_outputs, fault, seed, deployed=side == "deployed")
    for name in _OUTPUT_NOISE:
        yield f"clean-io-output-{name}/output/{seed}", partial(_output_noise, name, seed)


def _family(name: str, seed: int, families: tuple[str, ...]) -> str:
    return families[(zlib.crc32(name.encode()) + seed) % len(families)]


def _start(fault: str, how: str, seed: int) -> tuple[np.random.Generator, Array]:
    rng = np.random.default_rng([seed, *f"{fault}/{how}".encode()])
    size = _SIZES[rng.integers(len(_SIZES))]
    return rng, _pixels(rng, int(rng.choice([1, 2, 4])), size)


def _noisy(name: str, how: str, seed: int) -> PairCase:
    fault = f"clean-io-{name}"
    rng, pixels = _start(fault, how, seed)
    board = _NOISE[name](pixels, rng)
    # Half of the boards have bytes.
    board = _bytes(board).astype(np.float64) if name != "rounded" and rng.integers(2) else board
    return PairCase(fault, how, seed, (_prepared(pixels, how), _prepared(board, how)), true=_TRUE.get(name, ()))


def _mistaken(name: str, how: str, seed: int) -> PairCase:
    slip = _MISTAKES[name]
    rng, pixels = _start(f"io-{name}", how, seed)
    for _ in range(_MOST_DRAWN):
        sides = slip.sides(pixels, rng, how)
        if not slip.least or _line_leaves(*sides) * float(_WAYS[how][1].mean()) >= slip.least:
            break
        pixels = _pixels(rng, len(pixels), pixels.shape[1:3])
    return PairCase(f"io-{name}", how, seed, sides, slip.kinds, words=slip.words)


_MOST_DRAWN = 300


def _line_leaves(training: Array, deployed: Array) -> float:
    """What a gain and an offset for each channel leave, root mean square."""
    left = []
    for one, other in zip(np.moveaxis(training, 1, 0), np.moveaxis(deployed, 1, 0), strict=True):
        line = np.polyfit(other.ravel(), one.ravel(), 1)
        left.append(np.square(one - np.polyval(line, other)).mean())
    return float(np.sqrt(np.mean(left)))
