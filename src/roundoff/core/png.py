"""Small pictures as PNG, with the standard library alone."""

import struct
import zlib

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["png_bytes"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# By the number of channels: grey, and red, green, blue.
_COLOUR_TYPES = {1: 0, 3: 2}
_BITS = 8
_NO_FILTER = b"\0"


def png_bytes(pixels: Array) -> bytes:
    """A picture as PNG.

    Args:
        pixels: Bytes of shape [height, width, channels], with one channel or three.
    """
    height, width, channels = pixels.shape
    if pixels.dtype != np.uint8 or channels not in _COLOUR_TYPES or not height or not width:
        raise ValueError(f"no picture: {pixels.dtype} {pixels.shape}")
    head = struct.pack(">IIBBBBB", width, height, _BITS, _COLOUR_TYPES[channels], 0, 0, 0)
    lines = b"".join(_NO_FILTER + np.ascontiguousarray(line).tobytes() for line in pixels)
    return _SIGNATURE + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(lines, 9)) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
