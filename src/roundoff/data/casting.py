"""Which stored types an input takes: the same, or one that loses nothing anybody would miss."""

import numpy as np

from roundoff.core.tensors import Array, DType, InputSpec
from roundoff.data.fit import mismatch
from roundoff.errors import BadInput

__all__ = ["cast", "check_type", "input_dtype"]

_NUMBERS = "biuf"
_INTEGERS = "iu"


def input_dtype(spec: InputSpec) -> DType:
    """The numpy type of an input.

    Raises:
        BadInput: numpy has no such type, or it is not one of numbers.
    """
    try:
        dtype = np.dtype(spec.dtype)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind not in _NUMBERS + "c":
        raise BadInput(
            f"The input {spec.name!r} takes {spec.describe()}, a type that samples cannot be read for.",
            fix="give the model a numeric input, for example by cutting it after its first cast",
        )
    return dtype


def check_type(dtype: DType, shape: tuple[int, ...], *, spec: InputSpec, where: str) -> None:
    """Refuse a stored type that the input does not take, whatever the values are.

    Raises:
        BadInput: Naming file, input, expected and got.
    """
    wanted = input_dtype(spec)
    same_kind = dtype.kind == wanted.kind or {dtype.kind, wanted.kind} <= set(_INTEGERS)
    if dtype.kind in _NUMBERS + "c" and same_kind:
        return
    raise mismatch(where, spec, f"{dtype.name} {list(shape)}", fix=_type_hint(dtype, wanted))


def cast(array: Array, spec: InputSpec, *, where: str) -> Array:
    """Values in the input's type and the machine's byte order.

    float64 becomes float32 by rounding, as numpy makes float64 where people think float32. Everything else
    must survive unchanged: integers have to fit, other floats have to be exact.

    Raises:
        BadInput: The type differs in kind, or a value does not survive.
    """
    check_type(array.dtype, array.shape, spec=spec, where=where)
    wanted = input_dtype(spec)
    if wanted.kind == "b" and (array.view(np.uint8) > 1).any():
        raise mismatch(where, spec, "bytes other than 0 and 1", fix="save truth values as bytes 0 and 1")
    if np.can_cast(array.dtype, wanted, "safe"):
        return np.asarray(array, dtype=wanted)
    with np.errstate(over="ignore", invalid="ignore"):
        result = array.astype(wanted)
    got = f"{array.dtype.name} {list(array.shape)}"
    if wanted.kind in _INTEGERS:
        # Negative numbers wrap to huge ones and back again, so a plain comparison would not see them.
        lost = (result != array) | ((result < 0) != (array < 0))
    elif wanted == np.float32:
        lost = np.isinf(result) & ~np.isinf(array)
    else:
        lost = (result != array) & ~np.isnan(array)
    if lost.any():
        value = array[lost].flat[0]
        raise mismatch(
            where,
            spec,
            got,
            why=f"{wanted.name} cannot hold {value}",
            fix=f"convert the file to {wanted.name} yourself",
        )
    return result


def _type_hint(dtype: DType, wanted: DType) -> str:
    if dtype == np.uint8 and wanted.kind == "f":
        return (
            f"apply the model's own preprocessing (scale, mean, std) and save as {wanted.name}, "
            "or give the pictures themselves with --scale, --mean and --std"
        )
    return f"save the values as {wanted.name}, with array.astype('{wanted.name}') if that is what they mean"
