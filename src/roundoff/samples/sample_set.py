"""Sample sets: what a model is fed, one sample at a time."""

import bisect
from array import array as number_array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from roundoff.core.files import write_text, writing
from roundoff.core.names import FileNames, shown
from roundoff.core.tensors import Array, InputSpec
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.samples.arrays import (
    StoredArray,
    agree_on_count,
    check_symbols,
    check_type,
    input_dtype,
    matches,
    mismatch,
    possible_counts,
    rows_of,
    sample_shape,
)
from roundoff.samples.columns import Paired, SampleColumn, find_columns, pair, unique_names
from roundoff.samples.files import Kind
from roundoff.samples.options import IMAGE_FLAGS, ImageOptions, SampleOptions
from roundoff.samples.stored import Archives, open_npy, open_raw

if TYPE_CHECKING:
    from roundoff.samples.images import ImagePlan

# Reading the files of one input, whatever they are.


@dataclass(frozen=True, slots=True)
class SampleReader:
    """Opens the files of one column.

    Attributes:
        column: The files.
        options: How they are read.
        archives: Reads .npz members; shared by all inputs.
        images: How pictures become values; None when there are none.
    """

    column: SampleColumn
    options: SampleOptions
    archives: Archives
    images: "ImagePlan | None"

    def peek(self, index: int) -> StoredArray | None:
        """Type and shape of a file, its type checked; None for a picture, which is one row without looking."""
        if self.column.kind(index) == "images":
            return None
        stored = self._open(index)
        check_type(stored.dtype, stored.shape, spec=self.column.spec, where=stored.where)
        return stored

    def counts(self, stored: StoredArray | None) -> frozenset[Fraction]:
        """How many samples a peeked file may hold."""
        spec = self.column.spec
        if stored is not None:
            return possible_counts(stored.shape, spec, where=stored.where, dtype=stored.dtype.name)
        batch = spec.shape[0] if spec.shape is not None and len(spec.shape) == 4 else 1
        return frozenset((Fraction(1, batch if isinstance(batch, int) and batch > 1 else 1),))

    def take(self, index: int, row: int, *, count: Fraction) -> Array:
        """Values of sample `row` of the `count` samples in a file, in the input's type and rank."""
        spec = self.column.spec
        if self.images is not None and self.column.kind(index) == "images":
            return self.images.read(self.column.path(index))
        return rows_of(self._open(index), spec, row, count)

    def _open(self, index: int) -> StoredArray:
        path = self.column.path(index)
        kind = self.column.kind(index)
        if kind == "npz":
            return self.archives.open(path, self.column.spec)
        return (
            open_npy(path, self.column.spec) if kind == "npy" else open_raw(path, self.column.spec, self.options)
        )


def make_readers(columns: Sequence[SampleColumn], options: SampleOptions) -> tuple[SampleReader, ...]:
    """A reader per input.

    Raises:
        BadInput: Options were given that none of the files can obey, or that contradict an input.
    """
    columns = [_with_raw_shape(column, options) for column in columns]
    _check_raw(columns, options)
    _check_image(columns, options)
    archives = Archives([column.spec for column in columns])
    return tuple(SampleReader(column, options, archives, _plan(column, options)) for column in columns)


def _with_raw_shape(column: SampleColumn, options: SampleOptions) -> SampleColumn:
    """Let the raw shape stand for that of an input whose rank is not known."""
    if options.raw_shape is None or column.spec.shape is not None:
        return column
    return replace(column, spec=replace(column.spec, shape=options.raw_shape))


def _plan(column: SampleColumn, options: SampleOptions) -> "ImagePlan | None":
    if "images" not in column.kinds:
        return None
    from roundoff.samples.images import plan_images

    return plan_images(column.spec, options.image or ImageOptions())


def _check_raw(columns: Sequence[SampleColumn], options: SampleOptions) -> None:
    given = [
        flag
        for flag, value in (("--raw-dtype", options.raw_dtype), ("--raw-shape", options.raw_shape))
        if value is not None
    ]
    if not given:
        return
    raw = [column.spec.name for column in columns if "bin" in column.kinds]
    if len(raw) == 1:
        return
    flags = " and ".join(given)
    if not raw:
        raise BadInput(
            "{flags} cannot apply: the samples are {kinds_found}, not raw files.",
            fix=english("leave {flags} out", flags=flags),
            flags=flags,
            kinds_found=_kinds_found(columns),
        )
    raise BadInput(
        "{flags} can describe one input, but several are read from raw files: {raw}.",
        fix=english(
            "leave {flags} out when the model fixes all shapes, otherwise save the samples as .npy", flags=flags
        ),
        flags=flags,
        raw=", ".join(map(repr, raw)),
    )


def _check_image(columns: Sequence[SampleColumn], options: SampleOptions) -> None:
    if options.image is None or any("images" in column.kinds for column in columns):
        return
    flags = " and ".join(IMAGE_FLAGS[name] for name in options.image.given()) or english("options for pictures")
    raise BadInput(
        "{flags} cannot apply: the samples are {kinds_found}, not pictures; their values are fed as they are.",
        fix=english("leave {flags} out, or give the pictures themselves", flags=flags),
        flags=flags,
        kinds_found=_kinds_found(columns),
    )


def _kinds_found(columns: Sequence[SampleColumn]) -> str:
    names: dict[Kind, str] = {"npy": ".npy", "npz": ".npz", "bin": "raw files", "images": "pictures"}
    found = {names[kind] for column in columns for kind in column.kinds}
    return " and ".join(sorted(found))


# From files to samples: a file may hold one sample, several, or one row of a fixed batch.


@dataclass(frozen=True, slots=True)
class Grouping:
    """Where each sample is.

    Attributes:
        starts: Number of the first sample of each group of files, and at the end the number of all samples.
        stack: How many files together make a sample; 1 unless each holds one row of a fixed batch.
    """

    starts: Sequence[int]
    stack: int

    def locate(self, sample: int) -> tuple[range, int, Fraction]:
        """The groups of files a sample is made of, its place in them, and how many samples each holds."""
        if self.stack > 1:
            return range(sample * self.stack, (sample + 1) * self.stack), 0, Fraction(1, self.stack)
        group = bisect.bisect_right(self.starts, sample) - 1
        count = self.starts[group + 1] - self.starts[group]
        return range(group, group + 1), sample - self.starts[group], Fraction(count)


def count_samples(paired: Paired, readers: Sequence[SampleReader], *, limit: int | None) -> Grouping:
    """Look into the files, as many as `limit` samples need, and count what they hold.

    Raises:
        BadInput: A file does not fit, or files of one row do not fill whole batches.
    """
    rows = all(column.lone for column in paired.columns)
    starts = number_array("q", [0])
    stack = 1
    for index in range(len(paired.names)):
        if limit is not None and starts[-1] >= limit * stack:
            break
        count = _count(readers, index, rows=rows)
        if index == 0:
            stack = count.denominator
        elif count.denominator != stack:
            raise BadInput(
                "{file} holds {held}, but {file2} holds {held2}.",
                fix=english("store one row per file or whole batches, not both"),
                file=_file(readers, index),
                held=_held(count),
                file2=_file(readers, 0),
                held2=_held(Fraction(1, stack)),
            )
        starts.append(starts[-1] + count.numerator)
    if stack > 1 and starts[-1] % stack:
        raise BadInput(
            "The model takes batches of {stack}, but there are {starts} files of one row, which "
            "is no multiple of {stack}.",
            fix=english("add or remove files, or use --samples {number}", number=starts[-1] // stack)
            if starts[-1] > stack
            else english("give at least {stack} files", stack=stack),
            stack=stack,
            starts=starts[-1],
        )
    return Grouping(starts, stack)


def sample_names(paired: Paired, grouping: Grouping) -> tuple[str, ...]:
    """A name for every sample: its file's; with the number of its row where a file holds several."""
    files = paired.names
    if grouping.stack > 1:
        ends = range(0, grouping.starts[-1], grouping.stack)
        names = [f"{files[first]}..{files[first + grouping.stack - 1]}" for first in ends]
        return unique_names(names, names)
    lone = all(column.lone for column in paired.columns)
    names = []
    for group, (start, end) in enumerate(zip(grouping.starts, grouping.starts[1:], strict=False)):
        if end - start == 1:
            names.append(files[group])
        else:
            names += [str(row) if lone else f"{files[group]}[{row}]" for row in range(end - start)]
    return unique_names(names, names)


def _count(readers: Sequence[SampleReader], index: int, *, rows: bool) -> Fraction:
    peeked = [reader.peek(index) for reader in readers]
    files = [shown(reader.column.path(index)) for reader in readers]
    count = agree_on_count(
        [reader.counts(stored) for reader, stored in zip(readers, peeked, strict=True)], files, rows=rows
    )
    if count == 0:
        raise BadInput(
            english("{files} holds no samples: its first axis is 0.", files=files[0]),
            fix=english("remove it or save it again"),
        )
    shapes = [
        (reader.column.spec, sample_shape(stored.shape, reader.column.spec, count))
        for reader, stored in zip(readers, peeked, strict=True)
        if stored is not None
    ]
    check_symbols(shapes, where=files[0])
    return count


def _file(readers: Sequence[SampleReader], index: int) -> str:
    return shown(readers[0].column.path(index))


def _held(count: Fraction) -> str:
    return english("one row of a batch") if count.denominator > 1 else english("whole samples")


_AS_THEY_COME = SampleOptions()


class SampleSet(Protocol):
    """Samples that can be read one at a time, in any order."""

    @property
    def label(self) -> str:
        """Where the samples come from, as the user would name it."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """A distinct name per sample, from the files; may contain ``/``."""
        ...

    @property
    def skipped(self) -> tuple[str, ...]:
        """Files that lie among the samples and were taken for notes."""
        ...

    def __len__(self) -> int:
        """Number of samples, at least one."""
        ...

    def feed(self, index: int) -> dict[str, Array]:
        """Values of each input for one sample, possibly memory-mapped; treat as read-only.

        Raises:
            BadInput: A file is damaged or does not fit its input.
        """
        ...


def open_samples(
    source: Path | str | Mapping[str, Path | str],
    inputs: Sequence[InputSpec],
    options: SampleOptions = _AS_THEY_COME,
) -> SampleSet:
    """Open the samples in a file or folder, or in one per input.

    Headers of array files are checked at once, values and pictures when they are fed.

    Args:
        source: What holds the samples; a mapping names the file or folder of each input.
        inputs: What the model expects.
        options: How to read them.

    Raises:
        BadInput: There are none, they cannot be read, or they do not fit the inputs.
    """
    if not inputs:
        raise BadInput(
            english("The model has no inputs, so it takes no samples."), fix=english("leave --data out")
        )
    for spec in inputs:
        input_dtype(spec)
    place = {name: Path(each) for name, each in source.items()} if isinstance(source, Mapping) else Path(source)
    paired = pair(find_columns(place, inputs, wanted=options.format))
    readers = make_readers(paired.columns, options)
    grouping = count_samples(paired, readers, limit=options.limit)
    skipped = dict.fromkeys(name for column in paired.columns for name in column.skipped)
    return _FileSamples(
        label=_label(place),
        names=sample_names(paired, grouping)[: options.limit],
        skipped=tuple(skipped),
        _readers=readers,
        _grouping=grouping,
    )


@dataclass(frozen=True, slots=True)
class _FileSamples:
    label: str
    names: tuple[str, ...]
    skipped: tuple[str, ...]
    _readers: tuple[SampleReader, ...]
    _grouping: Grouping

    def __len__(self) -> int:
        return len(self.names)

    def feed(self, index: int) -> dict[str, Array]:
        if not 0 <= index < len(self.names):
            raise IndexError(f"sample {index} of {len(self.names)}")
        groups, row, count = self._grouping.locate(index)
        feed: dict[str, Array] = {}
        for reader in self._readers:
            parts = [reader.take(group, row, count=count) for group in groups]
            feed[reader.column.spec.name] = _joined(parts, reader, groups)
        where = english("{label}, sample {names}", label=self.label, names=self.names[index])
        check_symbols(((r.column.spec, feed[r.column.spec.name].shape) for r in self._readers), where=where)
        return feed


def _joined(parts: Sequence[Array], reader: SampleReader, groups: range) -> Array:
    """One array of the input's shape from one array, or from the rows of a batch."""
    spec = reader.column.spec
    for part, group in zip(parts, groups, strict=True):
        if part.shape[1:] != parts[0].shape[1:] or not _fits(part.shape[1:], spec):
            raise mismatch(
                shown(reader.column.path(group)),
                spec,
                f"{part.dtype.name} {list(part.shape)}",
                why=english("the batch began with {shape}", shape=list(parts[0].shape)) if len(parts) > 1 else "",
                fix=english("give all rows of a batch the same shape"),
            )
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _fits(tail: tuple[int, ...], spec: InputSpec) -> bool:
    return spec.shape is None or matches(tail, spec.shape[1:])


def _label(source: Path | Mapping[str, Path]) -> str:
    if isinstance(source, Mapping):
        return ", ".join(f"{name}={shown(path)}" for name, path in source.items())
    return shown(source)


# Samples that are in memory already.


class ArraySamples:
    """Arrays as samples: the first axis of each counts them, and stays as a batch axis of one.

    Args:
        arrays: The values of every input; all with the same number of samples.
        label: Where they come from, for messages.

    Raises:
        BadInput: There are no samples, or not equally many for all inputs.
    """

    def __init__(self, arrays: Mapping[str, Array], *, label: str = "arrays") -> None:
        counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
        if not counts or len(set(counts.values())) > 1 or 0 in counts.values():
            said = ", ".join(f"{name!r}: {count}" for name, count in counts.items()) or english("none at all")
            what = english(
                "Every input needs the same number of samples along its first axis, but there are {said}.",
                said=said,
            )
            raise BadInput(what, fix=english("stack the samples of each input with numpy.stack"))
        self._arrays = arrays
        self._label = label
        self._names = tuple(map(str, range(next(iter(counts.values())))))

    @property
    def label(self) -> str:
        """Where they come from."""
        return self._label

    @property
    def names(self) -> tuple[str, ...]:
        """The samples, by their numbers."""
        return self._names

    def feed(self, index: int) -> Mapping[str, Array]:
        """The values of one sample."""
        return {name: array[index : index + 1] for name, array in self._arrays.items()}


# Storing samples as the model is fed with them, so that they can be read again without any options.

LIST_NAME = "worst.txt"
"""The list file beside them."""


def copy_samples(folder: Path, samples: Iterable[tuple[str, Mapping[str, Array]]], *, heading: str) -> None:
    """Write a folder for each input with a .npy file for each sample, and a list that names them in this order.

    Args:
        folder: An existing folder.
        samples: Name and inputs of each, in the order of the model's.
        heading: First line of the list, a comment.
    """
    folders, files = FileNames(reserved=[LIST_NAME]), FileNames()
    lines = [f"# {' '.join(heading.split())}"]
    for number, (name, feed) in enumerate(samples, start=1):
        words = []
        for key, array in feed.items():
            place = Path(folders.stem(key)) / f"{number:04d}_{files.stem(name)}.npy"
            with writing(folder / place):
                (folder / place).parent.mkdir(exist_ok=True)
                np.save(folder / place, array, allow_pickle=False)
            words.append((key, place.as_posix()))
        # A name with blanks cannot be written; then the order of the inputs says which is which.
        named = len(words) > 1 and not any(key.split() != [key] for key, _ in words)
        lines.append(" ".join(f"{key}:{path}" if named else path for key, path in words))
    write_text(folder / LIST_NAME, "\n".join(lines) + "\n")
