"""Pictures from files, as 8-bit pixels of the wanted size; the only place that knows Pillow."""

import re
import struct
import warnings
import zlib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from roundoff.core.files import reading
from roundoff.core.names import shown
from roundoff.core.tensors import Array
from roundoff.data.geometry import Placement, placed
from roundoff.data.options import Filter, Resizer
from roundoff.data.processing.resizing import Resampling, resized
from roundoff.errors import BadInput, MissingExtra

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["decode", "require_pillow", "resize"]

_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_FILTERS = {"nearest": "NEAREST", "bilinear": "BILINEAR", "bicubic": "BICUBIC", "area": "BOX"}
# Pillow tells how a file stores its pixels; it cuts these 16 bits per channel down to 8 without a word.
_SIXTEEN_BITS = re.compile(r";16[BLNS]|65535")
# What Pillow's many decoders let through when a file is damaged.
_DAMAGE = (
    *(ValueError, SyntaxError, TypeError, LookupError, AttributeError, EOFError, ArithmeticError, RuntimeError),
    *(MemoryError, struct.error, zlib.error),
)


def require_pillow() -> ModuleType:
    """Import Pillow's Image module.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra("Reading images", package="PIL", extra="images") from error
    return Image


def decode(path: Path, channels: int) -> "Image":
    """Decode a picture to 1 (gray), 3 (RGB) or 4 (RGBA) channels of 8 bits.

    Pixels come as they are stored: no EXIF rotation, no colour profile; alpha is dropped without blending
    unless four channels are wanted.

    Raises:
        BadInput: The file is damaged, has more than 8 bits per channel, or holds several pictures.
    """
    module = require_pillow()
    try:
        with reading(path, what="The picture"), warnings.catch_warnings(), path.open("rb") as stream:
            # Pillow warns of odd metadata and large pictures; neither changes the pixels.
            warnings.simplefilter("ignore")
            return _converted(module, path, stream=stream, mode=_MODES[channels])
    except _DAMAGE as error:
        raise _undecodable(path, error) from error
    except module.DecompressionBombError as error:
        raise _undecodable(path, error) from error


def resize(
    picture: "Image", placement: Placement, *, method: Filter, pad: int, resizer: Resizer = "pillow"
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


def _resized(band: "Image", placement: Placement, *, method: Filter, pad: int) -> "Image":
    module = require_pillow()
    if (band.height, band.width) != placement.resized:
        band = band.resize(placement.resized[::-1], module.Resampling[_FILTERS[method]])
    if placement.canvas == placement.resized:
        return band
    canvas: Image = module.new("L", placement.canvas[::-1], pad)
    canvas.paste(band, placement.offset[::-1])
    return canvas


def _converted(module: ModuleType, path: Path, *, stream: object, mode: str) -> "Image":
    try:
        with module.open(stream) as picture:
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
            f"{where} has more than 8 bits per channel (mode {picture.mode}).",
            fix="convert it to 8 bits, or save the values as .npy",
        )
    frames = getattr(picture, "n_frames", 1)
    if frames > 1 and picture.format != "MPO":  # cameras keep previews behind the one picture of an MPO file
        raise BadInput(f"{where} holds {frames} pictures.", fix="save the one to use as its own file")


def _undecodable(path: Path, error: Exception) -> BadInput:
    reason = re.sub(r" *<_io\.[^>]*>", " the file", str(error)) or type(error).__name__
    return BadInput(f"{shown(path)} cannot be decoded as a picture: {reason}.", fix="remove it or save it again")
