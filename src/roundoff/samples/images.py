"""Pictures as input values: which channels in which order, where, and on which scale."""

import re
import struct
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from roundoff.core.files import reading
from roundoff.core.names import shown
from roundoff.core.tensors import Array, InputSpec
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.preprocessing.resize import Resampling, resized
from roundoff.samples.arrays import input_dtype, input_error, mismatch
from roundoff.samples.options import ChannelValues, Filter, ImageOptions, Layout, Resize, Resizer

if TYPE_CHECKING:
    from PIL.Image import Image

# Where a picture comes to lie when it is brought to another size.

Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PicturePlacement:
    """A picture is scaled to `resized` and set at `offset` onto a `canvas`; all are (height, width).

    A negative offset means that the picture sticks out and is cut.
    """

    resized: Size
    offset: Size
    canvas: Size


def place(had: Size, size: Size, *, canvas: Size, mode: Resize) -> PicturePlacement:
    """Decide the geometry of a resize.

    Args:
        had: The picture's height and width.
        size: What to resize to: filled exactly (stretch), covered (crop) or not exceeded (letterbox).
        canvas: What comes out; for a crop it may be smaller than `size`.
        mode: How.
    """
    if mode == "crop":
        resized = _covering(had, size)
        # Half pixels round to even, as torchvision's centre crop does.
        top, left = (round((full - part) / 2) for full, part in zip(resized, canvas, strict=True))
        return PicturePlacement(resized, (-top, -left), canvas)
    if mode == "letterbox":
        ratio = min(size[0] / had[0], size[1] / had[1])
        resized = (max(1, round(had[0] * ratio)), max(1, round(had[1] * ratio)))
        # An odd pixel of padding goes below and to the right.
        return PicturePlacement(resized, ((size[0] - resized[0]) // 2, (size[1] - resized[1]) // 2), size)
    return PicturePlacement(size, (0, 0), size)


def placed(pixels: Array, placement: PicturePlacement, *, pad: float) -> Array:
    """Set a resized picture [height, width, channels] onto its canvas, which `pad` fills."""
    if placement.canvas == placement.resized:
        return pixels
    canvas = np.full((*placement.canvas, *pixels.shape[2:]), pad, pixels.dtype)
    spans = [
        (max(offset, 0), min(offset + size, room), offset)
        for offset, size, room in zip(placement.offset, placement.resized, placement.canvas, strict=True)
    ]
    (top, bottom, down), (left, right, across) = spans
    canvas[top:bottom, left:right] = pixels[top - down : bottom - down, left - across : right - across]
    return canvas


def _covering(had: Size, size: Size) -> Size:
    """The smallest size of the same proportions that covers `size`; the longer side is rounded down."""
    if size[0] * had[1] >= size[1] * had[0]:
        return size[0], size[0] * had[1] // had[0]
    return size[1] * had[0] // had[1], size[1]


# Pictures from files, as 8-bit pixels of the wanted size; the only place that knows Pillow.

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_FILTERS = {"nearest": "NEAREST", "bilinear": "BILINEAR", "bicubic": "BICUBIC", "area": "BOX"}
# Pillow tells how a file stores its pixels; it cuts these 16 bits per channel down to 8 without a word.
_SIXTEEN_BITS = re.compile(r";16[BLNS]|65535")
# What Pillow's many decoders let through when a file is damaged.
_DAMAGE = (
    *(ValueError, SyntaxError, TypeError, LookupError, AttributeError, EOFError, ArithmeticError, RuntimeError),
    *(MemoryError, struct.error, zlib.error),
)


def decode(path: Path, channels: int) -> "Image":
    """Decode a picture to 1 (gray), 3 (RGB) or 4 (RGBA) channels of 8 bits.

    Pixels come as they are stored: no EXIF rotation, no colour profile; alpha is dropped without blending
    unless four channels are wanted.

    Raises:
        BadInput: The file is damaged, has more than 8 bits per channel, or holds several pictures.
    """
    import PIL.Image

    try:
        with reading(path, what=english("The picture")), warnings.catch_warnings(), path.open("rb") as stream:
            # Pillow warns of odd metadata and large pictures; neither changes the pixels.
            warnings.simplefilter("ignore")
            return _converted(path, stream=stream, mode=_MODES[channels])
    except _DAMAGE as error:
        raise _undecodable(path, error) from error
    except PIL.Image.DecompressionBombError as error:
        raise _undecodable(path, error) from error


def resize(
    picture: "Image", placement: PicturePlacement, *, method: Filter, pad: int, resizer: Resizer = "pillow"
) -> Array:
    """Scale a picture and set it onto its canvas.

    Each channel is scaled alone, so that alpha never weighs the colours.

    Returns:
        uint8 [height, width, channels].
    """
    if resizer == "opencv":
        pixels = np.stack([np.asarray(band) for band in picture.split()], axis=-1)
        return placed(resized(pixels, placement.resized, Resampling(method)), placement, pad=pad)
    bands = [_resized(band, placement, method=method, pad=pad) for band in picture.split()]
    return np.stack([np.asarray(band) for band in bands], axis=-1)


def _resized(band: "Image", placement: PicturePlacement, *, method: Filter, pad: int) -> "Image":
    import PIL.Image

    if (band.height, band.width) != placement.resized:
        band = band.resize(placement.resized[::-1], PIL.Image.Resampling[_FILTERS[method]])
    if placement.canvas == placement.resized:
        return band
    canvas: Image = PIL.Image.new("L", placement.canvas[::-1], pad)
    canvas.paste(band, placement.offset[::-1])
    return canvas


def _converted(path: Path, *, stream: BinaryIO, mode: str) -> "Image":
    import PIL.Image

    try:
        with PIL.Image.open(stream) as picture:
            _refuse_odd(picture, shown(path))
            converted: Image = picture.convert(mode)
            return converted
    except OSError as error:
        if error.errno is None:  # Pillow's own complaint, not the system's
            raise _undecodable(path, error) from error
        raise


def _refuse_odd(picture: "Image", where: str) -> None:
    if picture.mode.startswith(("I", "F")) or _SIXTEEN_BITS.search(str(getattr(picture, "tile", ""))):
        raise BadInput(
            english("{where} has more than 8 bits per channel (mode {mode}).", where=where, mode=picture.mode),
            fix=english("convert it to 8 bits, or save the values as .npy"),
        )
    frames = getattr(picture, "n_frames", 1)
    if frames > 1 and picture.format != "MPO":  # cameras keep previews behind the one picture of an MPO file
        raise BadInput(
            english("{where} holds {frames} pictures.", where=where, frames=frames),
            fix=english("save the one to use as its own file"),
        )


def _undecodable(path: Path, error: Exception) -> BadInput:
    reason = re.sub(r" *<_io\.[^>]*>", " the file", str(error)) or type(error).__name__
    return BadInput(
        english("{path} cannot be decoded as a picture: {reason}.", path=shown(path), reason=reason),
        fix=english("remove it or save it again"),
    )


_CHANNELS = (1, 3, 4)
_DEFAULT_PAD = 114  # the gray that the YOLO family, where letterboxing comes from, pads with

Sizes = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """Everything decided about the pictures of one input before the first is opened.

    Attributes:
        spec: The input.
        channels: 1, 3 or 4.
        channels_last: Whether the channel axis comes after height and width.
        fixed: Height and width the input demands; None where it takes any.
        options: What the user said.
    """

    spec: InputSpec
    channels: int
    channels_last: bool
    fixed: Sizes
    options: ImageOptions

    def read(self, path: Path) -> Array:
        """Values of one picture, in the input's type and rank.

        Raises:
            BadInput: The picture is damaged, of a kind that is refused, or does not fit.
        """
        where = shown(path)
        picture = decode(path, self.channels)
        placement = self._placement((picture.height, picture.width), where)
        pad = _DEFAULT_PAD if self.options.pad is None else self.options.pad
        method, resizer = self.options.filter or "bilinear", self.options.resizer or "pillow"
        pixels = resize(picture, placement, method=method, pad=pad, resizer=resizer)
        if self.options.color == "bgr":
            pixels = pixels[..., [2, 1, 0, 3][: self.channels]]
        return self._arranged(self._scaled(pixels, where))

    def _placement(self, had: tuple[int, int], where: str) -> PicturePlacement:
        height, width = self.options.size or self.fixed
        wanted = (height or had[0], width or had[1])
        if self.options.resize == "none":
            if wanted != had:
                raise mismatch(
                    where,
                    self.spec,
                    f"a picture of {had[0]}x{had[1]} pixels (height x width)",
                    fix=english(
                        "say how to resize: --image-resize stretch, crop or letterbox{cut_out}",
                        cut_out=_cut_out(had, wanted),
                    ),
                )
            return PicturePlacement(resized=had, offset=(0, 0), canvas=had)
        canvas = (self.fixed[0] or wanted[0], self.fixed[1] or wanted[1])
        return place(had, wanted, canvas=canvas, mode=self.options.resize)

    def _scaled(self, pixels: Array, where: str) -> Array:
        scale = 1.0 if self.options.scale is None else self.options.scale
        # In float64, rounded once to the input's type.
        values = (pixels * np.float64(scale) - _vector(self.options.mean, 0.0)) / _vector(self.options.std, 1.0)
        dtype = input_dtype(self.spec)
        _check_range(values, self.spec, where)
        converted: Array = values.astype(dtype)
        return converted

    def _arranged(self, values: Array) -> Array:
        """From [height, width, channels] to the input's layout and rank."""
        rank = 4 if self.spec.shape is None else len(self.spec.shape)
        if not self.channels_last:
            values = values.transpose(2, 0, 1)
        shape = {2: values.shape[1:], 3: values.shape}.get(rank, (1, *values.shape))
        return np.ascontiguousarray(values.reshape(shape))


def plan_images(spec: InputSpec, options: ImageOptions) -> ImagePlan:
    """Decide how pictures become values of an input.

    Raises:
        BadInput: The input takes no pictures, or the options contradict it.
    """
    dtype = input_dtype(spec)
    axes = (None,) * 4 if spec.shape is None else spec.shape
    if len(axes) not in (2, 3, 4) or dtype.kind not in "fiu":
        raise input_error(
            spec,
            "The input {name!r} takes {describe}, which is no picture.",
            fix=english("give the samples as .npy files"),
        )
    if len(axes) == 2:
        axes, last = (1, *axes), False
    else:
        last = (options.layout or _guess_layout(spec, axes)) == "nhwc"
    channel, height, width = (axes[-1], axes[-3], axes[-2]) if last else axes[-3:]
    channels = _channel_count(spec, channel, options)
    fixed = (_fixed_size(height), _fixed_size(width))
    _check_numbers(spec, options, channels=channels)
    _check_size(spec, options, fixed=fixed)
    return ImagePlan(spec, channels, last, fixed, options)


def _guess_layout(spec: InputSpec, axes: tuple[int | str | None, ...]) -> Layout:
    first, last = axes[-3] in _CHANNELS, axes[-1] in _CHANNELS
    if first != last:
        return "nchw" if first else "nhwc"
    if len(axes) == 3 and not isinstance(axes[0], int):
        return "nchw"  # [N, height, width]: one gray plane per sample
    raise input_error(
        spec,
        "Which axis of the input {name!r} holds the channels is not clear: {describe}.",
        fix=english("say it with --image-layout nchw or nhwc"),
    )


def _channel_count(spec: InputSpec, axis: int | str | None, options: ImageOptions) -> int:
    plane = options.color is None and spec.shape is not None and len(spec.shape) < 4
    count = axis if isinstance(axis, int) else 1 if plane or options.color == "gray" else 3
    if count not in _CHANNELS:
        raise input_error(
            spec,
            "The input {name!r} takes {describe}, with {count} channels; pictures have 1, 3 or 4.",
            fix=english("choose another --image-layout, or give the samples as .npy files"),
            count=count,
        )
    if options.color is not None and (options.color == "gray") != (count == 1):
        raise input_error(
            spec,
            "The input {name!r} takes {describe}, with {count} channel(s), which {color} pictures do not have.",
            fix=english(
                "use --image-color {which}", which=english("gray") if count == 1 else english("rgb or bgr")
            ),
            count=count,
            color=options.color,
        )
    return count


def _check_numbers(spec: InputSpec, options: ImageOptions, *, channels: int) -> None:
    for name, value in (("mean", options.mean), ("std", options.std)):
        if isinstance(value, tuple) and len(value) not in (1, channels):
            raise BadInput(
                "The {name} has {count} numbers, the input {name2!r} has {channels} channel(s).",
                fix=english(
                    "give --{name} one number, or {channels} separated by commas", name=name, channels=channels
                ),
                name=name,
                count=len(value),
                name2=spec.name,
                channels=channels,
            )
    if input_dtype(spec).kind == "f":
        return
    if options.scale is not None or options.std is not None or np.any(_vector(options.mean, 0.0) % 1):
        raise input_error(
            spec,
            "The input {name!r} takes {describe}: whole pixel values, which a scale, a std or a "
            "mean with fractions would break.",
            fix=english("leave --scale and --std out; --mean 128 shifts pixels into int8"),
        )


def _check_size(spec: InputSpec, options: ImageOptions, *, fixed: Sizes) -> None:
    if options.resize == "none":
        return
    wanted = options.size or fixed
    if None in wanted:
        raise input_error(
            spec,
            "The size to resize pictures to is not known: the input {name!r} takes {describe}.",
            fix=english("give it as --image-size 224x224 (height x width)"),
        )
    pairs = [(got, want) for got, want in zip(wanted, fixed, strict=True) if got is not None and want is not None]
    if not all(got >= want if options.resize == "crop" else got == want for got, want in pairs):
        raise input_error(
            spec,
            "Pictures resized to {wanted}x{wanted2} do not fit the input {name!r}: it takes {describe}.",
            fix=english("leave --image-size out to use the input's own size"),
            wanted=wanted[0],
            wanted2=wanted[1],
        )


def _check_range(values: Array, spec: InputSpec, where: str) -> None:
    dtype = input_dtype(spec)
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    lowest, highest = values.min(), values.max()
    if lowest < limits.min or highest > limits.max:
        raise mismatch(
            where,
            spec,
            f"values from {lowest:g} to {highest:g}",
            fix=english("change --mean (128 shifts pixels into int8) or --scale"),
        )


def _cut_out(had: tuple[int, int], wanted: tuple[int, int]) -> str:
    """How to take the middle of a picture that is large enough as it is."""
    if had[0] < wanted[0] or had[1] < wanted[1]:
        return ""
    return english(
        "; --image-resize crop --image-size {had}x{had2} cuts the middle out of such pictures",
        had=had[0],
        had2=had[1],
    )


def _vector(value: ChannelValues | None, default: float) -> Array:
    return np.asarray(default if value is None else value, dtype=np.float64)


def _fixed_size(axis: int | str | None) -> int | None:
    return axis if isinstance(axis, int) else None
