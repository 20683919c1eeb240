"""Element types: the names people write for them, and arrays that the rest of roundoff can compute with."""

import functools
import re

import numpy as np

from roundoff.core.tensors import Array, DType
from roundoff.errors import nearest

__all__ = ["as_values", "is_extended", "parse_dtype", "why_refused"]

_NUMERIC_KINDS = "biufc"
_PLAIN = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
# Types numpy knows only through ml_dtypes; kept by name so that the package is imported when first needed.
_EXTENDED = (
    *("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
    *("int1", "int2", "int4", "uint1", "uint2", "uint4"),
)
# "float" and "double" mean what they mean in C and ONNX, where raw dumps come from; numpy's "float" is 64 bits.
_ALIASES = {
    "float": "float32",
    "single": "float32",
    "double": "float64",
    "half": "float16",
    "bool_": "bool",
    **{f"{short}{bits}": f"float{bits}" for short in ("fp", "f") for bits in (16, 32, 64)},
    **{f"{short}{bits}": f"int{bits}" for short in ("i", "s") for bits in (16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}_t": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}_t": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "s8": "int8",
    "bf16": "bfloat16",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e5m2": "float8_e5m2",
}
_WRAPPED = re.compile(r"(?:tensor\((?P<onnx>\w+)\)|(?:np|numpy|torch)\.(?P<module>\w+))")
_CODE = re.compile(r"[<>=|][biufc][0-9]{1,2}")
# i8 is 64 bits to numpy and 8 bits to a compiler.
_AMBIGUOUS = re.compile(r"[iuf][1-8]")


@functools.lru_cache(maxsize=256)
def parse_dtype(text: str) -> DType:
    """Read an element type as people write it: ``float32``, ``fp16``, ``bf16``, ``>i2``, ``tensor(float)``.

    Raises:
        ValueError: It is no type of numbers, or could mean two; the message says what to write.
    """
    word = text.strip()
    if _CODE.fullmatch(word):
        try:
            return np.dtype(word)
        except TypeError as error:
            raise ValueError(f"unknown dtype {text!r}") from error
    word = word.lower()
    if wrapped := _WRAPPED.fullmatch(word):
        word = wrapped["onnx"] or wrapped["module"]
    if _AMBIGUOUS.fullmatch(word):
        raise ValueError(f"dtype {text!r} could count bits or bytes; write it out, as in 'int8' or 'int64'")
    word = _ALIASES.get(word, word)
    if word in _EXTENDED:
        return _extended(word)
    if word in _PLAIN or word == np.dtype(np.longdouble).name:
        return np.dtype(word)
    raise ValueError(f"unknown dtype {text!r}; {nearest(word, (*_PLAIN, *_EXTENDED))}")


def is_extended(dtype: DType) -> bool:
    """Whether only ml_dtypes knows the type (bfloat16, the 8-bit floats and their kin)."""
    return dtype.isbuiltin == 2  # numpy: 2 is a registered type from outside numpy


def as_values(array: Array) -> Array:
    """View or convert to what plain numpy computes with: native byte order; bfloat16 and its kin as float32."""
    if is_extended(array.dtype):
        return array.astype(np.float32)
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    return array


def why_refused(dtype: DType) -> str:
    """Why arrays of this type are not read or written; empty when they are."""
    if dtype.hasobject:
        return "holds Python objects (a pickle), which are never loaded"
    if dtype.names is not None or dtype.subdtype is not None:
        return "holds records of several fields, not plain numbers"
    if dtype.kind not in _NUMERIC_KINDS and not (is_extended(dtype) and dtype.name in _EXTENDED):
        return f"holds {dtype.name}, not numbers"
    return ""


def _extended(name: str) -> DType:
    import ml_dtypes

    try:
        dtype: DType = np.dtype(getattr(ml_dtypes, name))
    except AttributeError as error:
        raise ValueError(f"dtype {name!r} needs a newer ml_dtypes (pip install -U ml_dtypes)") from error
    return dtype
