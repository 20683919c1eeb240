"""The element types of ONNX: their numpy names, their sizes, and what those numpy cannot hold are read as."""

from dataclasses import dataclass

__all__ = ["ElementType", "by_dtype", "by_number", "by_session_name"]


@dataclass(frozen=True, slots=True)
class ElementType:
    """One element type.

    Attributes:
        number: Its number in `onnx.TensorProto.DataType`; fixed by the file format.
        session_name: What onnxruntime calls it.
        dtype: Its numpy name (that of the package ml_dtypes where numpy has none).
        bits: Size of one element in a file; 0 when elements differ in size.
        widened: dtype without loss that numpy itself has; equal to `dtype` where numpy has it.
    """

    number: int
    session_name: str
    dtype: str
    bits: int
    widened: str


def _plain(number: int, name: str, bits: int) -> ElementType:
    return ElementType(number, name, name, bits, name)


_TYPES = (
    ElementType(1, "float", "float32", 32, "float32"),
    _plain(2, "uint8", 8),
    _plain(3, "int8", 8),
    _plain(4, "uint16", 16),
    _plain(5, "int16", 16),
    _plain(6, "int32", 32),
    _plain(7, "int64", 64),
    _plain(8, "string", 0),
    _plain(9, "bool", 8),
    _plain(10, "float16", 16),
    ElementType(11, "double", "float64", 64, "float64"),
    _plain(12, "uint32", 32),
    _plain(13, "uint64", 64),
    _plain(14, "complex64", 64),
    _plain(15, "complex128", 128),
    ElementType(16, "bfloat16", "bfloat16", 16, "float32"),
    ElementType(17, "float8e4m3fn", "float8_e4m3fn", 8, "float32"),
    ElementType(18, "float8e4m3fnuz", "float8_e4m3fnuz", 8, "float32"),
    ElementType(19, "float8e5m2", "float8_e5m2", 8, "float32"),
    ElementType(20, "float8e5m2fnuz", "float8_e5m2fnuz", 8, "float32"),
    ElementType(21, "uint4", "uint4", 4, "uint8"),
    ElementType(22, "int4", "int4", 4, "int8"),
    ElementType(23, "float4e2m1", "float4_e2m1fn", 4, "float32"),
    ElementType(24, "float8e8m0", "float8_e8m0fnu", 8, "float32"),
    ElementType(25, "uint2", "uint2", 2, "uint8"),
    ElementType(26, "int2", "int2", 2, "int8"),
)
_BY_NUMBER = {kind.number: kind for kind in _TYPES}
_BY_SESSION_NAME = {kind.session_name: kind for kind in _TYPES}
_BY_DTYPE = {kind.dtype: kind for kind in _TYPES}


def by_number(number: int) -> ElementType | None:
    """The type of a number in a model file; None for one that is not known here."""
    return _BY_NUMBER.get(number)


def by_session_name(name: str) -> ElementType | None:
    """The type onnxruntime calls so."""
    return _BY_SESSION_NAME.get(name)


def by_dtype(dtype: str) -> ElementType | None:
    """The type of a numpy name."""
    return _BY_DTYPE.get(dtype)
