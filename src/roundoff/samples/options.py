"""How samples are to be read: what the user may say about files that do not describe themselves."""

import math
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias, get_args

from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english

SampleFormat = Literal["auto", "npy", "npz", "bin", "images", "list"]
Color = Literal["rgb", "bgr", "gray"]
Layout = Literal["nchw", "nhwc"]
Resize = Literal["none", "stretch", "crop", "letterbox"]
Filter = Literal["nearest", "bilinear", "bicubic", "area"]
Resizer = Literal["pillow", "opencv"]
ChannelValues: TypeAlias = float | tuple[float, ...]

IMAGE_FLAGS = {
    "color": "--image-color",
    "layout": "--image-layout",
    "size": "--image-size",
    "resize": "--image-resize",
    "filter": "--image-filter",
    "resizer": "--image-resizer",
    "pad": "--image-pad",
    "scale": "--scale",
    "mean": "--mean",
    "std": "--std",
}
"""The command line's name for each field of `ImageOptions`."""

_HIGHEST_PIXEL = 255


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """How a picture becomes the values of an input.

    The steps, in this order: decode, convert to the wanted colours, resize, ``(pixel * scale - mean) / std``.
    None always means "not said", so that an option without effect can be refused.

    Attributes:
        color: Channels and their order; by default gray for one channel, else rgb.
        layout: Where the channels are; by default the axis of the input's shape that holds 1, 3 or 4.
        size: Height and width to resize to; by default the input's.
        resize: ``none`` takes pictures of the right size only; ``stretch`` ignores proportions; ``crop``
            scales until the picture covers `size` and cuts the input's size out of the middle; ``letterbox``
            scales until it fits inside and fills the rest with `pad`.
        filter: How pixels are mixed when resizing; by default bilinear.
        resizer: Whose arithmetic: ``pillow`` (the default; filters widen when shrinking, as in torchvision) or
            ``opencv`` (as cv2.resize, to the bit for bilinear).
        pad: Pixel value (0 to 255) around a letterboxed picture; by default 114.
        scale: Factor on the pixel values 0 to 255.
        mean: Subtracted after `scale`; one number or one per channel, in the order of `color`.
        std: Divides at last; one number or one per channel.
    """

    color: Color | None = None
    layout: Layout | None = None
    size: tuple[int, int] | None = None
    resize: Resize = "none"
    filter: Filter | None = None
    resizer: Resizer | None = None
    pad: int | None = None
    scale: float | None = None
    mean: ChannelValues | None = None
    std: ChannelValues | None = None

    def __post_init__(self) -> None:
        _check_choice(english("image colour"), self.color, get_args(Color))
        _check_choice(english("image layout"), self.layout, get_args(Layout))
        _check_choice(english("image resize mode"), self.resize, get_args(Resize))
        _check_choice(english("image filter"), self.filter, get_args(Filter))
        _check_choice(english("image resizer"), self.resizer, get_args(Resizer))
        self._check_resizing()
        self._check_numbers()

    def given(self) -> tuple[str, ...]:
        """Names of the options that differ from their default."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) != field.default)

    def _check_resizing(self) -> None:
        for name in ("size", "filter", "resizer"):
            if getattr(self, name) is not None and self.resize == "none":
                raise BadInput(
                    english("The image {name} has no effect, because pictures are not resized.", name=name),
                    fix=english(
                        "add --image-resize stretch, crop or letterbox, or leave {image_flags} out",
                        image_flags=IMAGE_FLAGS[name],
                    ),
                )
        if self.pad is not None and self.resize != "letterbox":
            raise BadInput(
                english("The pad value {pad} has no effect: only letterboxed pictures are padded.", pad=self.pad),
                fix=english("add --image-resize letterbox, or leave --image-pad out"),
            )
        if self.size is not None and min(self.size) < 1:
            height, width = self.size
            raise BadInput(
                english("The image size {height}x{width} holds no pixels.", height=height, width=width),
                fix=english("give height and width as --image-size 224x224"),
            )
        if self.pad is not None and not 0 <= self.pad <= _HIGHEST_PIXEL:
            raise BadInput(
                english("The pad value {pad} is not a pixel value.", pad=self.pad),
                fix=english("give --image-pad a number from 0 to 255"),
            )

    def _check_numbers(self) -> None:
        for name in ("scale", "mean", "std"):
            value: ChannelValues | None = getattr(self, name)
            values = value if isinstance(value, tuple) else () if value is None else (value,)
            if value is not None and (not values or not all(math.isfinite(number) for number in values)):
                raise BadInput(
                    english("The {name} {value} is not a finite number.", name=name, value=value),
                    fix=english("give --{name} plain numbers, as in 0.5", name=name),
                )
            if name != "mean" and 0 in values:
                raise BadInput(
                    "The {name} {value} contains zero, which leaves nothing of a picture.",
                    fix=english("give --{name} numbers other than 0, or leave it out", name=name),
                    name=name,
                    value=value,
                )


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """How samples are read.

    Attributes:
        format: What the files are; ``auto`` goes by their names.
        limit: Read at most so many samples.
        raw_dtype: Type of raw files, as people write it (``float16``, ``>f4``); by default the input's.
        raw_shape: Shape of one sample in raw files; by default the input's.
        image: How pictures are turned into values; refused when the samples are not pictures.
    """

    format: SampleFormat = "auto"
    limit: int | None = None
    raw_dtype: str | None = None
    raw_shape: tuple[int, ...] | None = None
    image: ImageOptions | None = None

    def __post_init__(self) -> None:
        _check_choice(english("sample format"), self.format, get_args(SampleFormat))
        if self.limit is not None and self.limit < 1:
            raise BadInput(
                english("{limit} samples are none at all.", limit=self.limit),
                fix=english("give --samples a number from 1 on"),
            )
        if self.raw_shape is not None and not all(size > 0 for size in self.raw_shape):
            shape = "x".join(map(str, self.raw_shape))
            raise BadInput(
                english("The raw shape {shape} holds no values.", shape=shape),
                fix=english("give sizes from 1 on, as in --raw-shape 1x3x224x224"),
            )


def _check_choice(what: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise BadInput("There is no {what} {value!r}.", fix=nearest(value, choices), what=what, value=value)
