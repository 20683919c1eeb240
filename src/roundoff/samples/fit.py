"""Whether stored values fit an input, and how many samples a stored array holds."""

import itertools
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from roundoff.core.tensors import Array, DType, InputSpec
from roundoff.errors import BadInput

__all__ = [
    "agree_on_count",
    "cast",
    "check_symbols",
    "check_type",
    "input_dtype",
    "matches",
    "mismatch",
    "possible_counts",
    "sample_shape",
]


Shape = tuple[int, ...]
Axes = tuple[int | str | None, ...]

# Orders of axes are tried for a hint up to this rank; beyond, the number of orders explodes.
_HIGHEST_HINTED_RANK = 5


def mismatch(where: str, spec: InputSpec, got: str, *, why: str = "", fix: str) -> BadInput:
    """The error for values that do not fit: file, input, expected and got."""
    reason = f"; {why}" if why else ""
    return BadInput(
        f"{where} does not fit the input {spec.name!r}: expected {spec.describe()}, got {got}{reason}.",
        fix=fix,
    )


def matches(shape: Sequence[int], axes: Axes) -> bool:
    """Whether every fixed axis has its size; free axes take any."""
    return len(shape) == len(axes) and all(
        size == axis for size, axis in zip(shape, axes, strict=True) if isinstance(axis, int)
    )


def possible_counts(shape: Shape, spec: InputSpec, *, where: str, dtype: str) -> frozenset[Fraction]:
    """How many samples an array of this shape may hold.

    An array of the input's rank is cut along its first axis into pieces of the input's batch size; with a
    free batch it is either one sample or as many as it has rows. One axis more is a stack of samples, one
    less is a sample without its batch axis. ``1/B`` means one row of a fixed batch of B.

    Raises:
        BadInput: It fits in no way; the message names what was expected.
    """
    axes = spec.shape
    if axes is None:
        return frozenset((Fraction(1),))
    if len(shape) == len(axes) + 1 and matches(shape[1:], axes):
        return frozenset((Fraction(shape[0]),))
    if axes and matches(shape, axes[1:]) and axes[0] != 0:
        return frozenset((Fraction(1, axes[0]) if isinstance(axes[0], int) else Fraction(1),))
    if len(shape) == len(axes) and matches(shape[1:], axes[1:]):
        return _counts_of_rows(shape, spec, where=where, dtype=dtype)
    raise mismatch(where, spec, f"{dtype} {list(shape)}", fix=_shape_hint(shape, axes))


def _counts_of_rows(shape: Shape, spec: InputSpec, *, where: str, dtype: str) -> frozenset[Fraction]:
    if not shape or not spec.shape:
        return frozenset((Fraction(1),))
    rows, batch = shape[0], spec.shape[0]
    if not isinstance(batch, int):
        return frozenset((Fraction(1), Fraction(rows)))
    if rows == batch:
        return frozenset((Fraction(1),))
    if batch and rows % batch == 0:
        return frozenset((Fraction(rows, batch),))
    if rows == 1 and batch:
        return frozenset((Fraction(1, batch),))
    raise mismatch(
        where,
        spec,
        f"{dtype} {list(shape)}",
        why=f"{rows} rows cannot be cut into groups of {batch}",
        fix=f"make the first axis a multiple of {batch}",
    )


def agree_on_count(counts: Sequence[frozenset[Fraction]], files: Sequence[str], *, rows: bool) -> Fraction:
    """The number of samples that all inputs of a group of files can hold.

    Args:
        counts: Per input, the possible numbers.
        files: Per input, the file; for the message.
        rows: Prefer samples of one row, be there many or none, over one sample of all rows.
    """
    common = frozenset.intersection(*counts)
    if not common:
        held = ", ".join(f"{file} holds {max(count)} sample(s)" for file, count in zip(files, counts, strict=True))
        raise BadInput(
            f"Files that belong together hold different numbers of samples: {held}.",
            fix="store the same samples, in the same order, for every input",
        )
    if rows:
        return Fraction(0) if 0 in common else max(common)
    return min((count for count in common if count), default=Fraction(0))


def sample_shape(shape: Shape, spec: InputSpec, count: Fraction) -> Shape:
    """Shape of one of the `count` samples that an array of this shape holds."""
    if spec.shape is None:
        return shape
    if len(shape) == len(spec.shape) + 1:
        return shape[1:]
    if len(shape) < len(spec.shape):
        return (1, *shape)
    if count <= 1:
        return shape
    return (int(shape[0] // count), *shape[1:])


def check_symbols(shapes: Iterable[tuple[InputSpec, Shape]], *, where: str) -> None:
    """Check that axes with the same symbolic name have the same size within one sample."""
    bound: dict[str, tuple[int, str]] = {}
    for spec, shape in shapes:
        for axis, size in zip(spec.shape or (), shape, strict=False):
            if not isinstance(axis, str):
                continue
            known, owner = bound.setdefault(axis, (size, spec.name))
            if known != size:
                raise BadInput(
                    f"{where}: the axis {axis!r} is {known} in the input {owner!r}, but {size} in "
                    f"{spec.name!r} (expected {spec.describe()}, got {list(shape)}).",
                    fix=f"give all inputs of a sample the same size of {axis!r}",
                )


def _shape_hint(shape: Shape, axes: Axes) -> str:
    if len(shape) == len(axes) <= _HIGHEST_HINTED_RANK and len(set(shape)) > 1:
        for order in itertools.permutations(range(len(shape))):
            # The batch axis stays where it is unless the whole array has to be turned.
            if order[0] == 0 and matches([shape[axis] for axis in order[1:]], axes[1:]):
                return f"the axes look permuted: save array.transpose({', '.join(map(str, order))})"
    return "save one array per sample in the shape the model expects"


# Which stored types an input takes: the same, or one that loses nothing anybody would miss.

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
