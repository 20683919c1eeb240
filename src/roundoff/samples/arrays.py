"""Arrays as samples: whether they fit an input, how many samples they hold, and samples that are in memory.

Arrays in memory are cut into samples as the same arrays in files would be, so that a file and its content give
equal results.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from roundoff.core.tensors import Array, DType, InputSpec
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array, in a file or in memory, whose values are read when they are asked for.

    Attributes:
        where: File (and member) for messages.
        dtype: Type of its values.
        shape: Its shape.
        load: Reads the rows of a slice along the first axis, or everything for None.
    """

    where: str
    dtype: DType
    shape: tuple[int, ...]
    load: Callable[[slice | None], Array]


Shape = tuple[int, ...]
Axes = tuple[int | str | None, ...]

# Orders of axes are tried for a hint up to this rank; beyond, the number of orders explodes.
_HIGHEST_HINTED_RANK = 5


def input_error(spec: InputSpec, what: str, /, *, fix: str, **gaps: Any) -> BadInput:
    """The error for something that does not fit an input.

    Args:
        spec: The input; ``name`` and ``describe`` in the text are its own.
        what: The text, with gaps.
        fix: What to do.
        gaps: What goes into the others.
    """
    return BadInput(what, fix=fix, name=spec.name, describe=spec.describe(), **gaps)


def mismatch(where: str, spec: InputSpec, got: str, *, why: str = "", fix: str) -> BadInput:
    """The error for values that do not fit: file, input, expected and got."""
    return input_error(
        spec,
        "{where} does not fit the input {name!r}: expected {describe}, got {got}{reason}.",
        fix=fix,
        where=where,
        got=got,
        reason=f"; {why}" if why else "",
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
        why=english("{rows} rows cannot be cut into groups of {batch}", rows=rows, batch=batch),
        fix=english("make the first axis a multiple of {batch}", batch=batch),
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
            english("Files that belong together hold different numbers of samples: {held}.", held=held),
            fix=english("store the same samples, in the same order, for every input"),
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


def rows_of(stored: StoredArray, spec: InputSpec, row: int, count: Fraction) -> Array:
    """Sample `row` of the `count` samples that an array holds, in the input's type and rank."""
    rank = len(stored.shape) if spec.shape is None else len(spec.shape)
    if len(stored.shape) > rank:
        values = stored.load(slice(row, row + 1))[0]
    elif len(stored.shape) < rank:
        values = stored.load(None)[np.newaxis]
    elif count <= 1:
        values = stored.load(None)
    else:
        rows = int(stored.shape[0] // count)
        values = stored.load(slice(row * rows, (row + 1) * rows))
    return cast(np.asarray(values, order="C"), spec, where=stored.where)


def check_symbols(shapes: Iterable[tuple[InputSpec, Shape]], *, where: str) -> None:
    """Check that axes with the same symbolic name have the same size within one sample."""
    bound: dict[str, tuple[int, str]] = {}
    for spec, shape in shapes:
        for axis, size in zip(spec.shape or (), shape, strict=False):
            # Paddle calls every axis that it does not know "?": these are as many unknowns, not one.
            if not isinstance(axis, str) or axis == "?":
                continue
            known, owner = bound.setdefault(axis, (size, spec.name))
            if known != size:
                raise input_error(
                    spec,
                    "{where}: the axis {axis!r} is {known} in the input {owner!r}, but {size} in "
                    "{name!r} (expected {describe}, got {shape}).",
                    fix=english("give all inputs of a sample the same size of {axis!r}", axis=axis),
                    where=where,
                    axis=axis,
                    known=known,
                    owner=owner,
                    size=size,
                    shape=list(shape),
                )


def _shape_hint(shape: Shape, axes: Axes) -> str:
    if len(shape) == len(axes) <= _HIGHEST_HINTED_RANK and len(set(shape)) > 1:
        for order in itertools.permutations(range(len(shape))):
            # The batch axis stays where it is unless the whole array has to be turned.
            if order[0] == 0 and matches([shape[axis] for axis in order[1:]], axes[1:]):
                return english(
                    "the axes look permuted: save array.transpose({order})", order=", ".join(map(str, order))
                )
    return english("save one array per sample in the shape the model expects")


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
        raise input_error(
            spec,
            "The input {name!r} takes {describe}, a type that samples cannot be read for.",
            fix=english("give the model a numeric input, for example by cutting it after its first cast"),
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
        raise mismatch(where, spec, "bytes other than 0 and 1", fix=english("save truth values as bytes 0 and 1"))
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
            why=english("{name} cannot hold {value}", name=wanted.name, value=value),
            fix=english("convert the file to {name} yourself", name=wanted.name),
        )
    return result


def _type_hint(dtype: DType, wanted: DType) -> str:
    if dtype == np.uint8 and wanted.kind == "f":
        return english(
            "apply the model's own preprocessing (scale, mean, std) and save as {name}, or give "
            "the pictures themselves with --scale, --mean and --std",
            name=wanted.name,
        )
    return english(
        "save the values as {name}, with array.astype('{name}') if that is what they mean", name=wanted.name
    )


_ONE = Fraction(1)
_WHOLE = english("give one sample per item, or a single array with all of them along its first axis")


class GivenSamples:
    """Samples that a function gives by their numbers.

    Args:
        label: Where they come from, for people.
        names: What they are called; how many there are where they go by their numbers.
        feed: Gives the inputs of one of them.
    """

    def __init__(self, label: str, names: Sequence[str] | int, feed: Callable[[int], dict[str, Array]]) -> None:
        self.label = label
        self.names = tuple(map(str, range(names)) if isinstance(names, int) else names)
        self.skipped: tuple[str, ...] = ()
        self._feed = feed

    def __len__(self) -> int:
        return len(self.names)

    def feed(self, index: int) -> dict[str, Array]:
        """The inputs of one sample."""
        if not 0 <= index < len(self.names):
            raise IndexError(f"sample {index} of {len(self.names)}")
        return self._feed(index)


def array_samples(
    arrays: Mapping[str, Any] | Any, inputs: Sequence[InputSpec], *, limit: int | None = None
) -> GivenSamples:
    """Samples in one array for each input; the first axis counts them.

    Args:
        arrays: By input; or the array itself where there is one input.
        inputs: What the model expects.
        limit: Take at most so many.

    Raises:
        BadInput: They do not fit the inputs, or hold no sample.
    """
    named = _named(arrays, inputs, what=english("The data"))
    stored = [
        _stored(named[spec.name], spec, english("The array for {name!r}", name=spec.name)) for spec in inputs
    ]
    counts = [
        possible_counts(each.shape, spec, where=each.where, dtype=each.dtype.name)
        for each, spec in zip(stored, inputs, strict=True)
    ]
    count = agree_on_count(counts, [each.where for each in stored], rows=True)
    if count.denominator > 1:
        what = english(
            "The model takes batches of {denominator}, and {where}",
            denominator=count.denominator,
            where=stored[0].where[0].lower(),
        )
        raise BadInput(
            english("{what}{where} holds one row.", what=what, where=stored[0].where[1:]),
            fix=english("give {denominator} rows", denominator=count.denominator),
        )
    if count == 0:
        raise BadInput(
            english("{where} holds no samples: its first axis is 0.", where=stored[0].where),
            fix=english("give at least one"),
        )

    def feed(index: int) -> dict[str, Array]:
        return _checked(inputs, [rows_of(*each, index, count) for each in zip(stored, inputs, strict=True)], index)

    feed(0)
    return GivenSamples("arrays", int(count) if limit is None else min(limit, int(count)), feed)


def listed_samples(given: Iterable[Any], inputs: Sequence[InputSpec], *, limit: int | None = None) -> GivenSamples:
    """Samples one by one: each an array, a dictionary of arrays by input, or a tuple of arrays in their order.

    A sequence is read when a sample is asked for; what can be walked through once only is kept in memory.

    Args:
        given: The samples.
        inputs: What the model expects.
        limit: Take at most so many.

    Raises:
        BadInput: There are none, or the first one does not fit; others are told when they are asked for.
    """
    lazy = hasattr(given, "__getitem__") and hasattr(given, "__len__")
    items: Any = given if lazy else list(itertools.islice(given, limit))
    count = len(items) if limit is None else min(limit, len(items))
    if not count:
        raise BadInput(english("The data holds no samples."), fix=english("give at least one sample"))

    def feed(index: int) -> dict[str, Array]:
        where = english("Sample {index}", index=index)
        named = _named(items[index], inputs, what=where)
        parts = [
            _whole(named[spec.name], spec, english("{where}, input {name!r},", where=where, name=spec.name))
            for spec in inputs
        ]
        return _checked(inputs, parts, index)

    feed(0)
    return GivenSamples("samples", count, feed)


def _whole(given: Any, spec: InputSpec, where: str) -> Array:
    """The values of one sample, with a batch axis where it lacks one."""
    stored = _stored(given, spec, where)
    if _ONE not in possible_counts(stored.shape, spec, where=where, dtype=stored.dtype.name):
        what = english(
            "{where} has the shape {shape}, which is not one sample of {describe}.",
            where=where,
            shape=list(stored.shape),
            describe=spec.describe(),
        )
        raise BadInput(what, fix=_WHOLE)
    return rows_of(stored, spec, 0, _ONE)


def _checked(inputs: Sequence[InputSpec], parts: Sequence[Array], index: int) -> dict[str, Array]:
    shapes = [(spec, part.shape) for spec, part in zip(inputs, parts, strict=True)]
    check_symbols(shapes, where=english("Sample {index}", index=index))
    return {spec.name: part for spec, part in zip(inputs, parts, strict=True)}


def _named(given: Any, inputs: Sequence[InputSpec], *, what: str) -> Mapping[str, Any]:
    """What was given for each input."""
    names = [spec.name for spec in inputs]
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                raise BadInput("The model has no input {name!r}.", fix=nearest(str(name), names), name=name)
        missing = [name for name in names if name not in given]
        if missing:
            fix = english("give an array for each of {names}", names=", ".join(map(repr, names)))
            raise BadInput("{what} has nothing for the input {missing!r}.", fix=fix, what=what, missing=missing[0])
        return given
    if len(names) == 1:
        return {names[0]: given}
    if isinstance(given, tuple) and len(given) == len(names):
        return dict(zip(names, given, strict=True))
    listed = ", ".join(map(repr, names))
    raise BadInput(
        "{what} is one array, but the model has {count} inputs: {listed}.",
        fix=english("give a dictionary with an array for each of them"),
        what=what,
        count=len(names),
        listed=listed,
    )


def _stored(given: Any, spec: InputSpec, where: str) -> StoredArray:
    """An array in memory as one in a file, its type checked."""
    input_dtype(spec)
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        text = " ".join(str(error).split())
        raise BadInput(
            "{where} is no array: {text}.", fix=english("give numpy arrays of numbers"), where=where, text=text
        ) from error
    if array.dtype.kind not in "biufc":
        what = english(
            "{where} holds {name} values of type {name2}, which are no numbers.",
            where=where,
            name=type(given).__name__,
            name2=array.dtype.name,
        )
        raise BadInput(what, fix=english("give numpy arrays of {dtype}", dtype=spec.dtype))
    check_type(array.dtype, array.shape, spec=spec, where=where)
    return StoredArray(where, array.dtype, array.shape, lambda rows: array if rows is None else array[rows])
