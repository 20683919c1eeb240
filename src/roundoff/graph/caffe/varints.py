"""Whole numbers in groups of seven bits, as protocol buffers store them."""

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["LONGEST_VARINT", "packed_varints", "to_signed", "varint", "varints"]

LONGEST_VARINT = 10
"""Bytes of the longest number, one of 64 bits."""

_MORE = 0x80
_BITS = 7
_MASK = 2**64 - 1


def varint(number: int) -> bytes:
    """The bytes of a number; negative ones as those of 64 bits."""
    rest, out = number & _MASK, bytearray()
    while rest >= _MORE:
        out.append(rest & (_MORE - 1) | _MORE)
        rest >>= _BITS
    out.append(rest)
    return bytes(out)


def to_signed(number: int) -> int:
    """A number of 64 bits as one with a sign."""
    return number - 2**64 if number >= 2**63 else number


def packed_varints(numbers: Array) -> bytes:
    """The bytes of many numbers."""
    return b"".join(varint(int(number)) for number in numbers.ravel().tolist())


def varints(data: Array) -> Array:
    """All numbers of a run of bytes, as uint64; as fast as arrays go, however many there are.

    Args:
        data: uint8 values.

    Raises:
        ValueError: The last number is cut short, or one is longer than any can be.
    """
    ends = np.flatnonzero(data < _MORE)
    if data.size and (not ends.size or ends[-1] != data.size - 1):
        raise ValueError("the last number is cut short")
    starts = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64) if ends.size else ends
    lengths = ends - starts + 1
    if lengths.size and lengths.max() > LONGEST_VARINT:
        raise ValueError("a number has more than 64 bits")
    numbers = np.zeros(ends.size, np.uint64)
    for place in range(int(lengths.max()) if lengths.size else 0):
        has = lengths > place
        bits = (data[starts[has] + place] & (_MORE - 1)).astype(np.uint64)
        numbers[has] |= bits << np.uint64(_BITS * place)
    return numbers
