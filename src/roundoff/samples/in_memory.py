"""Samples that are in memory, or that a program makes: arrays, dictionaries of arrays, sequences of either.

They are cut into samples as the same arrays in files would be, so that a file and its content give equal results.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from roundoff.core.tensors import Array, InputSpec
from roundoff.errors import BadInput, nearest
from roundoff.samples.fit import agree_on_count, check_symbols, check_type, input_dtype, possible_counts
from roundoff.samples.sample_set import rows_of
from roundoff.samples.stored import Stored

__all__ = ["GivenSamples", "array_samples", "listed_samples"]

_ONE = Fraction(1)
_WHOLE = "give one sample per item, or a single array with all of them along its first axis"


class GivenSamples:
    """Samples that a function gives by their numbers.

    Args:
        label: Where they come from, for people.
        count: How many there are.
        feed: Gives the inputs of one of them.
    """

    def __init__(self, label: str, count: int, feed: Callable[[int], dict[str, Array]]) -> None:
        self.label = label
        self.names = tuple(map(str, range(count)))
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
    named = _named(arrays, inputs, what="The data")
    stored = [_stored(named[spec.name], spec, f"The array for {spec.name!r}") for spec in inputs]
    counts = [
        possible_counts(each.shape, spec, where=each.where, dtype=each.dtype.name)
        for each, spec in zip(stored, inputs, strict=True)
    ]
    count = agree_on_count(counts, [each.where for each in stored], rows=True)
    if count.denominator > 1:
        what = f"The model takes batches of {count.denominator}, and {stored[0].where[0].lower()}"
        raise BadInput(f"{what}{stored[0].where[1:]} holds one row.", fix=f"give {count.denominator} rows")
    if count == 0:
        raise BadInput(f"{stored[0].where} holds no samples: its first axis is 0.", fix="give at least one")

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
        raise BadInput("The data holds no samples.", fix="give at least one sample")

    def feed(index: int) -> dict[str, Array]:
        where = f"Sample {index}"
        named = _named(items[index], inputs, what=where)
        parts = [_whole(named[spec.name], spec, f"{where}, input {spec.name!r},") for spec in inputs]
        return _checked(inputs, parts, index)

    feed(0)
    return GivenSamples("samples", count, feed)


def _whole(given: Any, spec: InputSpec, where: str) -> Array:
    """The values of one sample, with a batch axis where it lacks one."""
    stored = _stored(given, spec, where)
    if _ONE not in possible_counts(stored.shape, spec, where=where, dtype=stored.dtype.name):
        what = f"{where} has the shape {list(stored.shape)}, which is not one sample of {spec.describe()}."
        raise BadInput(what, fix=_WHOLE)
    return rows_of(stored, spec, 0, _ONE)


def _checked(inputs: Sequence[InputSpec], parts: Sequence[Array], index: int) -> dict[str, Array]:
    shapes = [(spec, part.shape) for spec, part in zip(inputs, parts, strict=True)]
    check_symbols(shapes, where=f"Sample {index}")
    return {spec.name: part for spec, part in zip(inputs, parts, strict=True)}


def _named(given: Any, inputs: Sequence[InputSpec], *, what: str) -> Mapping[str, Any]:
    """What was given for each input."""
    names = [spec.name for spec in inputs]
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                raise BadInput(f"The model has no input {name!r}.", fix=nearest(str(name), names))
        missing = [name for name in names if name not in given]
        if missing:
            fix = f"give an array for each of {', '.join(map(repr, names))}"
            raise BadInput(f"{what} has nothing for the input {missing[0]!r}.", fix=fix)
        return given
    if len(names) == 1:
        return {names[0]: given}
    if isinstance(given, tuple) and len(given) == len(names):
        return dict(zip(names, given, strict=True))
    listed = ", ".join(map(repr, names))
    raise BadInput(
        f"{what} is one array, but the model has {len(names)} inputs: {listed}.",
        fix="give a dictionary with an array for each of them",
    )


def _stored(given: Any, spec: InputSpec, where: str) -> Stored:
    """An array in memory as one in a file, its type checked."""
    input_dtype(spec)
    try:
        array = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        text = " ".join(str(error).split())
        raise BadInput(f"{where} is no array: {text}.", fix="give numpy arrays of numbers") from error
    if array.dtype.kind not in "biufc":
        what = f"{where} holds {type(given).__name__} values of type {array.dtype.name}, which are no numbers."
        raise BadInput(what, fix=f"give numpy arrays of {spec.dtype}")
    check_type(array.dtype, array.shape, spec=spec, where=where)
    return Stored(where, array.dtype, array.shape, lambda rows: array if rows is None else array[rows])
