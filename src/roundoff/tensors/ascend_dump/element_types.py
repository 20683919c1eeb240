"""Bytes of a dump as numbers, for every element type that the format names."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from roundoff.core.array_files import Unreadable
from roundoff.core.tensors import Array, as_values, parse_dtype
from roundoff.messages.message import english


@dataclass(frozen=True, slots=True)
class AscendType:
    """How elements of a type lie in memory.

    Attributes:
        name: What the type is called in listings.
        bits: Bits of one element.
        decode: Numbers from bytes, given how many there are; None when the bytes are the numbers.
        dtype: What numpy reads the bytes as, when `decode` is None.
    """

    name: str
    bits: int
    dtype: str = ""
    decode: Callable[[Array, int], Array] | None = None

    def bytes_for(self, count: int) -> int:
        """Bytes that so many elements take."""
        return math.ceil(count * self.bits / 8)


def element_type(name: str) -> AscendType:
    """Find a type by its name in the dump's schema.

    Raises:
        Unreadable: Its elements are no numbers, or it is not known.
    """
    if name not in _TYPES:
        what = english("holds elements of the type {name}, which are no numbers that roundoff knows", name=name)
        raise Unreadable(what, fix=english("leave this tensor out"))
    return _TYPES[name]


def values_of(kind: AscendType, raw: Array, count: int) -> Array:
    """Turn bytes into numbers of a type that plain numpy computes with; a view of them where that is possible.

    Args:
        kind: The element type.
        raw: The bytes, at least as many as the elements take.
        count: How many elements there are.
    """
    if kind.bits < 8 and raw.size >= count > kind.bytes_for(count):
        # There is room for a whole byte per element, so they are not packed.
        return _looked_up(_table(kind.name), raw[:count] & np.uint8(2**kind.bits - 1))
    if kind.decode is not None:
        return kind.decode(raw[: kind.bytes_for(count)], count)
    return as_values(raw[: kind.bytes_for(count)].view(parse_dtype(kind.dtype)))


def _codes(raw: Array, count: int, *, bits: int) -> Array:
    """Codes of fewer than eight bits, the first in the lowest bits of the first byte."""
    if bits == 6:
        stream = np.unpackbits(raw, bitorder="little")[: count * bits].reshape(count, bits)
        return np.asarray(stream @ (1 << np.arange(bits, dtype=np.uint8)).astype(np.uint8), np.uint8)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.asarray(raw[:, None] >> shifts & np.uint8(2**bits - 1), np.uint8).reshape(-1)[:count]


def _looked_up(table: Array, codes: Array) -> Array:
    found: Array = table[codes]
    return found


def _packed(name: str, *, bits: int) -> AscendType:
    def decode(raw: Array, count: int) -> Array:
        return _looked_up(_table(name), _codes(raw, count, bits=bits))

    return AscendType(name, bits, decode=decode)


def _table(name: str) -> Array:
    """The value of every code of a small type."""
    if name == "hifloat8":
        return np.array([_hifloat8(code) for code in range(256)], np.float32)
    if name == "float4_e1m2":
        return np.array([_float4_e1m2(code) for code in range(16)], np.float32)
    if name == "uint1":
        return np.arange(2, dtype=np.uint8)
    dtype = parse_dtype(name)
    codes = np.arange(2 ** (6 if "float6" in name else 4 if "4" in name else 2), dtype=np.uint8)
    if name.startswith("int"):  # numpy has no smaller integers
        half = codes.size // 2
        return np.where(codes < half, codes, codes.astype(np.int16) - codes.size).astype(np.int8)
    return codes if name.startswith("uint") else codes.view(dtype).astype(np.float32)


def _hifloat8(code: int) -> float:
    """One value of HiFloat8: sign, a prefix that tells how many exponent bits follow, exponent, mantissa."""
    sign, rest = (-1.0 if code & 0x80 else 1.0), code & 0x7F
    if rest == 0:
        return math.nan if code else 0.0
    if rest == 0x6F:
        return sign * math.inf
    if rest < 0x08:  # no exponent: the mantissa is one
        return sign * 2.0 ** (rest - 23)
    width, mantissa_bits = next(
        (width, bits) for width, prefix, mask, bits in _HIFLOAT8_PREFIXES if rest & mask == prefix
    )
    mantissa = 1 + (rest & (1 << mantissa_bits) - 1) / (1 << mantissa_bits)
    exponent = 0
    if width:
        field = (rest >> mantissa_bits) & (1 << width) - 1
        top = 1 << (width - 1)
        magnitude = field & top - 1 | top  # its leading one is not stored
        exponent = -magnitude if field & top else magnitude
    return float(sign * mantissa * 2.0**exponent)


# Bits of the exponent, the prefix that says so, where it stands, and bits of the mantissa.
_HIFLOAT8_PREFIXES = (
    (4, 0b1100000, 0b1100000, 1), (3, 0b1000000, 0b1100000, 2), (2, 0b0100000, 0b1100000, 3),
    (1, 0b0010000, 0b1110000, 3), (0, 0b0001000, 0b1111000, 3),
)  # fmt: skip


def _float4_e1m2(code: int) -> float:
    # With one exponent bit, steps of a quarter from 0 to 1.75.
    return (code & 7) / 4 * (-1.0 if code & 8 else 1.0)


def _bits_from_the_top(raw: Array, count: int) -> Array:
    return np.unpackbits(raw)[:count]


def _looked_up_bytes(raw: Array, count: int) -> Array:
    return _looked_up(_table("hifloat8"), raw[:count])


def _halves(raw: Array, count: int) -> Array:
    parts: Array = raw[: count * 4].view(np.float16).astype(np.float32)
    return parts.view(np.complex64)


def _floats_of_pairs(raw: Array, count: int) -> Array:
    floats: Array = np.ascontiguousarray(raw[: count * 5].reshape(count, 5)[:, :4])
    return floats.view(np.float32).reshape(count)


def _truths(raw: Array, count: int) -> Array:
    return np.not_equal(raw[:count], 0)  # a C program may write any non-zero byte for true


_PLAIN = {
    "FLOAT": "float32", "FLOAT16": "float16", "INT8": "int8", "UINT8": "uint8", "INT16": "int16",
    "UINT16": "uint16", "INT32": "int32", "INT64": "int64", "UINT32": "uint32", "UINT64": "uint64",
    "DOUBLE": "float64", "COMPLEX64": "complex64", "COMPLEX128": "complex128", "BF16": "bfloat16",
    "FLOAT8_E5M2": "float8_e5m2", "FLOAT8_E4M3FN": "float8_e4m3fn", "FLOAT8_E8M0": "float8_e8m0fnu",
    # Codes of quantized types, and handles, as the integers they are.
    "UNDEFINED": "int8", "DUAL_SUB_INT8": "int8", "DUAL_SUB_UINT8": "uint8", "QINT8": "int8", "QINT16": "int16",
    "QINT32": "int32", "QUINT8": "uint8", "QUINT16": "uint16", "RESOURCE": "int64",
}  # fmt: skip
_BITS = {
    "complex64": 64,
    "complex128": 128,
    "bfloat16": 16,
    "float8_e5m2": 8,
    "float8_e4m3fn": 8,
    "float8_e8m0fnu": 8,
}
_TYPES: dict[str, AscendType] = {
    **{
        name: AscendType(dtype, _BITS.get(dtype) or np.dtype(dtype).itemsize * 8, dtype)
        for name, dtype in _PLAIN.items()
    },
    "BOOL": AscendType("bool", 8, decode=_truths),
    "DUAL": AscendType("float32", 40, decode=_floats_of_pairs),
    "COMPLEX32": AscendType("complex64", 32, decode=_halves),
    "HIFLOAT8": AscendType("hifloat8", 8, decode=_looked_up_bytes),
    "UINT1": AscendType("uint1", 1, decode=_bits_from_the_top),
    "INT2": _packed("int2", bits=2),
    "UINT2": _packed("uint2", bits=2),
    "INT4": _packed("int4", bits=4),
    "FLOAT4_E2M1": _packed("float4_e2m1fn", bits=4),
    "FLOAT4_E1M2": _packed("float4_e1m2", bits=4),
    "FLOAT6_E3M2": _packed("float6_e3m2fn", bits=6),
    "FLOAT6_E2M3": _packed("float6_e2m3fn", bits=6),
}
