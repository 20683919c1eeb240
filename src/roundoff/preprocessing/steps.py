"""What a deployed model receives, and how that becomes what the float model was trained with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english
from roundoff.preprocessing.colours import (
    NO_CSC,
    PACKED_FORMATS,
    ColorFormat,
    Csc,
    PackedFormat,
    PlainFormat,
    channel_count,
    from_yuv,
    packed_shape,
    reordered,
    unpacked,
)

# Layouts, cutting and padding of arrays with a batch axis.

Layout = Literal["NCHW", "NHWC"]


def with_layout(values: Array, had: Layout, wanted: Layout) -> Array:
    """Move the channels of an array of rank 4 to where they are wanted."""
    if had == wanted:
        return values
    return np.moveaxis(values, 1, 3) if wanted == "NHWC" else np.moveaxis(values, 3, 1)


def sliced(values: Array, cuts: Sequence[int]) -> Array:
    """Cut from the ends of each axis.

    Args:
        values: Any array.
        cuts: How much to cut, begin and end of each axis one after the other: two numbers per axis, or none.

    Raises:
        BadInput: There are more or fewer numbers, a negative one, or nothing would be left.
    """
    pairs = _pairs(values, cuts, what="slicing")
    for axis, (begin, end) in enumerate(pairs):
        if begin + end >= values.shape[axis]:
            raise BadInput(
                "The slicing takes {begin} and {end} from axis {axis}, which has {shape} values.",
                fix=english("cut less than the axis holds"),
                begin=begin,
                end=end,
                axis=axis,
                shape=values.shape[axis],
            )
    return values[tuple(slice(begin, size - end) for (begin, end), size in zip(pairs, values.shape, strict=False))]


def padded(values: Array, pads: Sequence[int], *, value: float = 0.0) -> Array:
    """Add a constant border.

    Args:
        values: Any array.
        pads: How much to add, begin and end of each axis one after the other: two numbers per axis, or none.
        value: What to add.

    Raises:
        BadInput: There are more or fewer numbers, or a negative one.
    """
    pairs = _pairs(values, pads, what="padding")
    return np.pad(values, pairs, constant_values=value) if any(map(any, pairs)) else values


def _pairs(values: Array, numbers: Sequence[int], *, what: str) -> list[tuple[int, int]]:
    if numbers and (len(numbers) != 2 * values.ndim or min(numbers) < 0):
        raise BadInput(
            "The {what} {numbers} does not fit an array of {shape}.",
            fix=english("give {ndim} numbers from 0 on: begin and end of each axis", ndim=2 * values.ndim),
            what=what,
            numbers=list(numbers),
            shape=list(values.shape),
        )
    return list(zip(numbers[::2], numbers[1::2], strict=True)) or [(0, 0)] * values.ndim


SOURCE_DTYPES = {
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32)},
    **{f"S{bits}": f"int{bits}" for bits in (8, 16, 32)},
    **{f"FP{bits}": f"float{bits}" for bits in (16, 32)},
}
"""Short names of the types that a model may receive, and numpy's."""

_FORMATS: tuple[str, ...] = (*get_args(PlainFormat), *PACKED_FORMATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputProcessing:
    """How one input of a deployed model becomes the input of the float model.

    The steps, in this order: the stored type becomes float32 by ``(x - zero_point) * scale``; packed YUV is
    unpacked and converted by `csc`; `slicing`, then `padding`, both along the axes of the source;
    ``(x - mean) / std`` in the order of the model's channels; the model's layout.

    Attributes:
        source_format: Colours of what is received; None where nobody said. Packed YUV is always NHWC.
        source_layout: Where its channels are.
        source_dtype: Its type, a key of `SOURCE_DTYPES`.
        model_format: Colours that the float model was trained with; None where nobody said.
        model_layout: Where its channels are.
        swaps_channels: Whether a difference between RGB and BGR is made up for. Compilers that insert these steps
            mostly do not: they take the two formats for remarks.
        csc: Conversion from YUV; its result is in the order of `model_format`.
        scale: Factor that dequantizes the source.
        zero_point: The code of zero in the source.
        slicing: Cut from begin and end of each axis, one after the other; empty for nothing.
        padding: Added to begin and end of each axis, one after the other; empty for nothing.
        padding_value: What is added.
        mean: Per channel, or one number; empty for 0.
        std: Per channel, or one number; empty for 1.

    Raises:
        BadInput: A name is unknown, a number impossible, or the parts contradict each other.
    """

    source_format: ColorFormat | None = None
    source_layout: Layout = "NCHW"
    source_dtype: str = "FP32"
    model_format: ColorFormat | None = None
    model_layout: Layout = "NCHW"
    swaps_channels: bool = False
    csc: Csc = NO_CSC
    scale: float = 1.0
    zero_point: int = 0
    slicing: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    padding_value: float = 0.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for what, value, known in (
            ("colour format", self.source_format, _FORMATS),
            ("colour format", self.model_format, get_args(PlainFormat)),
            ("layout", self.source_layout, get_args(Layout)),
            ("layout", self.model_layout, get_args(Layout)),
            ("source type", self.source_dtype, tuple(SOURCE_DTYPES)),
        ):
            if value is not None and value not in known:
                raise BadInput("There is no {what} {value!r}.", fix=nearest(value, known), what=what, value=value)
        self._check_colours()
        self._check_numbers()

    @property
    def packed_format(self) -> PackedFormat | None:
        """The packed YUV that is received; None for anything else."""
        return next((each for each in PACKED_FORMATS if each == self.source_format), None)

    @property
    def dtype(self) -> str:
        """The numpy name of the type that is received."""
        return SOURCE_DTYPES[self.source_dtype]

    def source_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of what is received, for a model's input of rank 4 and this shape.

        Raises:
            BadInput: The input cannot be received in this format.
        """
        _check_rank(shape, english("The model's input"))
        batch, channels, height, width = (
            shape if self.model_layout == "NCHW" else (shape[0], shape[3], *shape[1:3])
        )
        channels = (channel_count(self.source_format) if self.source_format else None) or channels
        last = self.packed_format is not None or self.source_layout == "NHWC"
        sizes = (batch, height, width, channels) if last else (batch, channels, height, width)
        cuts, pads = (each or (0,) * 8 for each in (self.slicing, self.padding))
        changes = [sum(cuts[2 * axis : 2 * axis + 2]) - sum(pads[2 * axis : 2 * axis + 2]) for axis in range(4)]
        sizes = (sizes[0] + changes[0], sizes[1] + changes[1], sizes[2] + changes[2], sizes[3] + changes[3])
        if self.packed_format is None:
            return sizes
        return (sizes[0], *packed_shape(*sizes[1:3], self.packed_format))

    def apply(self, received: Array) -> Array:
        """From what the deployed model receives to what the float model wants.

        Args:
            received: Rank 4 with its batch axis; its values are taken as they are, whatever its type. Of another
                rank only where nothing depends on colours and layouts.

        Returns:
            float32.

        Raises:
            BadInput: The array does not fit.
        """
        values = (received.astype(np.float64) - self.zero_point) * self.scale
        if self.packed_format is not None:
            planes = unpacked(values, self.packed_format)
            # from_yuv cuts to 0..255 what has the range of bytes.
            values = from_yuv(planes, self.csc, reverse=self.model_format == "BGR")
        layout: Layout = self.source_layout if self.packed_format is None else "NHWC"
        values = padded(sliced(values, self.slicing), self.padding, value=self.padding_value)
        if values.ndim == 4:
            last = self._colored(with_layout(values, layout, "NHWC"))
            values = with_layout(self._normalized(last), "NHWC", self.model_layout)
        else:
            self._check_plain(received)
            values = self._normalized(values)
        return np.ascontiguousarray(values, dtype=np.float32)

    def _colored(self, pixels: Array) -> Array:
        had, wanted = self.source_format, self.model_format
        wants = None if had is None or self.packed_format is not None else channel_count(had)
        if wants is not None and pixels.shape[-1] != wants:
            raise BadInput(
                "{had} has {wants} channel(s), but {shape} were received in {source_layout}.",
                fix=english("correct the format or the layout of the source"),
                had=had,
                wants=wants,
                shape=pixels.shape[-1],
                source_layout=self.source_layout,
            )
        if self.packed_format or not had or not wanted or not self.swaps_channels:
            return pixels
        return reordered(pixels, had, wanted)

    def _normalized(self, values: Array) -> Array:
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            if len(numbers) > 1 and (not values.ndim or len(numbers) != values.shape[-1]):
                count = values.shape[-1] if values.ndim else 0
                raise BadInput(
                    "The {name} has {count} numbers, the input {count2} channel(s).",
                    fix=english("give one number, or {count}", count=count),
                    name=name,
                    count=len(numbers),
                    count2=count,
                )
        normalized: Array = (values - np.array(self.mean or 0.0)) / np.array(self.std or 1.0)
        return normalized

    def _check_plain(self, received: Array) -> None:
        if self.packed_format or self.source_layout != self.model_layout or max(len(self.mean), len(self.std)) > 1:
            _check_rank(received.shape, english("What is received"))

    def _check_colours(self) -> None:
        packed_source = self.source_format in PACKED_FORMATS
        if packed_source and self.csc.mode == "none":
            raise BadInput(
                "{source_format} needs a colour conversion and none was given.",
                fix=english("set the conversion to full-range, limited-range or matrix"),
                source_format=self.source_format,
            )
        if not packed_source and self.csc.mode != "none":
            raise BadInput(
                "A colour conversion was given for a source in {source_format}.",
                fix=english("convert only YUV, or name the YUV format of the source"),
                source_format=self.source_format or english("no named format"),
            )

    def _check_numbers(self) -> None:
        numbers = (*self.mean, *self.std, self.scale, self.padding_value)
        if not np.isfinite(numbers).all():
            raise BadInput(
                english("A mean, std, scale or padding value is not finite."), fix=english("give plain numbers")
            )
        if 0 in self.std or self.scale == 0:
            raise BadInput(
                english("A std or scale of 0 leaves nothing of the input."),
                fix=english("give numbers other than 0"),
            )


def _check_rank(shape: tuple[int, ...], what: str) -> None:
    if len(shape) != 4:
        raise BadInput(
            english(
                "{what} has the shape {shape}; colours and layouts need 4 axes.", what=what, shape=list(shape)
            ),
            fix=english("leave formats, layouts and means per channel out, or give a batch of pictures"),
        )


# What is legal about an input's processing, and hardly ever meant.

_BYTES = 255
# Means of pixels from 0 to 255 are about 110; those of values from 0 to 1 are below this.
_HIGHEST_UNIT_MEAN = 1.0
# Where the numbers of every large set of photographs lie, channel by channel.
_MEAN_OF_PIXELS, _STD_OF_PIXELS = (85, 150), (45, 80)


def doubts(processing: InputProcessing) -> tuple[str, ...]:
    """What to ask the user about; each a sentence without its full stop. Empty when nothing looks wrong."""
    return (*_about_order(processing), *_about_scale(processing), *_about_mean(processing))


def _about_order(processing: InputProcessing) -> list[str]:
    formats = {processing.source_format, processing.model_format}
    if formats != {"RGB", "BGR"} or processing.swaps_channels:
        return []
    return [
        english(
            "the source is {source} and the model was trained with {model}, but channels are not swapped: the "
            "compiled model still expects {model}, so feed it that, or swap the channels before",
            source=processing.source_format,
            model=processing.model_format,
        )
    ]


def _about_scale(processing: InputProcessing) -> list[str]:
    std = np.abs(processing.std or (1.0,))
    if not _receives_pixels(processing) or (std >= 1).all():
        return []
    if np.allclose(std, 1 / _BYTES, rtol=0.05):
        return [
            english(
                "std {std} looks like 1/255: x is divided by std, so 0..1 needs std 255, not 1/255",
                std=_numbers(processing.std),
            )
        ]
    right = _numbers(tuple(_BYTES * value for value in processing.std))
    return [
        english(
            "std {std} is below 1 while the source has whole pixel values from 0 to 255: values of up to "
            "{most:.0f} come out; a std for values from 0 to 1 has to be multiplied by 255 ({right})",
            std=_numbers(processing.std),
            most=float(_BYTES / std.min()),
            right=right,
        )
    ]


def _about_mean(processing: InputProcessing) -> list[str]:
    if not processing.mean:
        return []
    mean, std = np.abs(processing.mean), np.abs(processing.std or (1.0,))
    told = {"mean": _numbers(processing.mean), "std": _numbers(processing.std)}
    found = []
    if _receives_pixels(processing) and 0 < mean.max() <= _HIGHEST_UNIT_MEAN:
        right = _numbers(tuple(_BYTES * value for value in processing.mean))
        found.append(
            english(
                "mean {mean} lies between 0 and 1 while the source has pixel values from 0 to 255; "
                "for those it is {right}",
                mean=told["mean"],
                right=right,
            )
        )
    elif mean.max() > _HIGHEST_UNIT_MEAN and std.max() < _HIGHEST_UNIT_MEAN:
        found.append(
            english(
                "mean {mean} is of pixels from 0 to 255 and std {std} of values from 0 to 1: both are subtracted "
                "from and divide the same numbers",
                **told,
            )
        )
    if _looks_like(mean, _STD_OF_PIXELS) and _looks_like(std, _MEAN_OF_PIXELS):
        found.append(
            english(
                "mean {mean} looks like the std of pixels and std {std} like their mean: were they exchanged?",
                **told,
            )
        )
    return found


def _looks_like(values: Array, limits: tuple[int, int]) -> bool:
    return bool((values > limits[0]).all() and (values < limits[1]).all())


def _receives_pixels(processing: InputProcessing) -> bool:
    """Whether whole numbers come in as they are."""
    return processing.source_dtype in ("U8", "U16") and (processing.scale, processing.zero_point) == (1.0, 0)


def _numbers(values: tuple[float, ...]) -> str:
    return "[" + ", ".join(f"{value:.4g}" for value in values) + "]"
