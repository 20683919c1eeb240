"""Both sides of a sample as small pictures, for people to see what a table says."""

import base64

import numpy as np

from roundoff.core.io_check import SidePicture
from roundoff.core.png import png_bytes
from roundoff.core.tensors import Array

__all__ = ["side_pictures"]

# Enough to see what is wrong; at most 48 KiB of pixels.
_MOST_PIXELS = 128
# Smaller ones are no pictures, but vectors or tables.
_LEAST_PIXELS = 4
_CHANNELS = (1, 3)
_BRIGHTEST = 255.0


def side_pictures(training: Array, deployed: Array) -> tuple[SidePicture, ...]:
    """The sample as training and as the deployed side has it; empty unless both look like pictures.

    Each is stretched from its smallest value to its largest, and every n-th pixel is taken where there are many.

    Args:
        training: Training's values.
        deployed: The deployed side's.
    """
    pixels = [_pixels(training), _pixels(deployed)]
    one, other = (None if each is None else base64.b64encode(png_bytes(each)).decode() for each in pixels)
    if one is None or other is None:
        return ()
    return (SidePicture("training", one), SidePicture("deployed", other))


def _pixels(values: Array) -> Array | None:
    """Values as pixels; None where they have no shape of a picture."""
    while values.ndim > 3 and values.shape[0] == 1:
        values = values[0]
    if values.ndim == 2:
        values = values[..., None]
    if values.ndim != 3:
        return None
    if values.shape[-1] not in _CHANNELS and values.shape[0] in _CHANNELS:
        values = np.moveaxis(values, 0, -1)
    height, width, channels = values.shape
    if channels not in _CHANNELS or min(height, width) < _LEAST_PIXELS:
        return None
    step = -(-max(height, width) // _MOST_PIXELS)
    thinned = values[::step, ::step].astype(np.float64)
    known = thinned[np.isfinite(thinned)]
    if not known.size:
        return None
    low, high = known.min(), known.max()
    stretched = (np.nan_to_num(thinned, nan=low, posinf=high, neginf=low) - low) / ((high - low) or 1.0)
    pixels: Array = np.rint(stretched * _BRIGHTEST).astype(np.uint8)
    return pixels
