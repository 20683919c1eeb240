"""Pictures as input values: which channels in which order, where, and on which scale."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roundoff.core.names import shown
from roundoff.core.tensors import Array, InputSpec
from roundoff.data.casting import input_dtype
from roundoff.data.decode import decode, resize
from roundoff.data.fit import mismatch
from roundoff.data.geometry import Placement, place
from roundoff.data.options import ChannelValues, ImageOptions, Layout
from roundoff.errors import BadInput

__all__ = ["ImagePlan", "plan_images"]

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

    def _placement(self, had: tuple[int, int], where: str) -> Placement:
        height, width = self.options.size or self.fixed
        wanted = (height or had[0], width or had[1])
        if self.options.resize == "none":
            if wanted != had:
                raise mismatch(
                    where,
                    self.spec,
                    f"a picture of {had[0]}x{had[1]} pixels (height x width)",
                    fix="say how to resize: --image-resize stretch, crop or letterbox" + _cut_out(had, wanted),
                )
            return Placement(resized=had, offset=(0, 0), canvas=had)
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
        raise BadInput(
            f"The input {spec.name!r} takes {spec.describe()}, which is no picture.",
            fix="give the samples as .npy files",
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
    raise BadInput(
        f"Which axis of the input {spec.name!r} holds the channels is not clear: {spec.describe()}.",
        fix="say it with --image-layout nchw or nhwc",
    )


def _channel_count(spec: InputSpec, axis: int | str | None, options: ImageOptions) -> int:
    plane = options.color is None and spec.shape is not None and len(spec.shape) < 4
    count = axis if isinstance(axis, int) else 1 if plane or options.color == "gray" else 3
    if count not in _CHANNELS:
        raise BadInput(
            f"The input {spec.name!r} takes {spec.describe()}, with {count} channels; pictures have 1, 3 or 4.",
            fix="choose another --image-layout, or give the samples as .npy files",
        )
    if options.color is not None and (options.color == "gray") != (count == 1):
        raise BadInput(
            f"The input {spec.name!r} takes {spec.describe()}, with {count} channel(s), "
            f"which {options.color} pictures do not have.",
            fix=f"use --image-color {'gray' if count == 1 else 'rgb or bgr'}",
        )
    return count


def _check_numbers(spec: InputSpec, options: ImageOptions, *, channels: int) -> None:
    for name, value in (("mean", options.mean), ("std", options.std)):
        if isinstance(value, tuple) and len(value) not in (1, channels):
            raise BadInput(
                f"The {name} has {len(value)} numbers, the input {spec.name!r} has {channels} channel(s).",
                fix=f"give --{name} one number, or {channels} separated by commas",
            )
    if input_dtype(spec).kind == "f":
        return
    if options.scale is not None or options.std is not None or np.any(_vector(options.mean, 0.0) % 1):
        raise BadInput(
            f"The input {spec.name!r} takes {spec.describe()}: whole pixel values, which a scale, a std or "
            "a mean with fractions would break.",
            fix="leave --scale and --std out; --mean 128 shifts pixels into int8",
        )


def _check_size(spec: InputSpec, options: ImageOptions, *, fixed: Sizes) -> None:
    if options.resize == "none":
        return
    wanted = options.size or fixed
    if None in wanted:
        raise BadInput(
            f"The size to resize pictures to is not known: the input {spec.name!r} takes {spec.describe()}.",
            fix="give it as --image-size 224x224 (height x width)",
        )
    pairs = [(got, want) for got, want in zip(wanted, fixed, strict=True) if got is not None and want is not None]
    if not all(got >= want if options.resize == "crop" else got == want for got, want in pairs):
        raise BadInput(
            f"Pictures resized to {wanted[0]}x{wanted[1]} do not fit the input {spec.name!r}: "
            f"it takes {spec.describe()}.",
            fix="leave --image-size out to use the input's own size",
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
            fix="change --mean (128 shifts pixels into int8) or --scale",
        )


def _cut_out(had: tuple[int, int], wanted: tuple[int, int]) -> str:
    """How to take the middle of a picture that is large enough as it is."""
    if had[0] < wanted[0] or had[1] < wanted[1]:
        return ""
    return f"; --image-resize crop --image-size {had[0]}x{had[1]} cuts the middle out of such pictures"


def _vector(value: ChannelValues | None, default: float) -> Array:
    return np.asarray(default if value is None else value, dtype=np.float64)


def _fixed_size(axis: int | str | None) -> int | None:
    return axis if isinstance(axis, int) else None
