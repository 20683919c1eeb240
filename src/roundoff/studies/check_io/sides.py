"""Reading the files of both sides of a pipeline, and pairing them by name."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from roundoff.core.array_files import map_array, stat_file
from roundoff.core.files import reading, regular_file
from roundoff.core.names import shown
from roundoff.core.tensors import Array, DType, parse_dtype
from roundoff.errors import BadInput, CannotAlign
from roundoff.messages.message import Message, english, message, some
from roundoff.samples.files import Kind, kind_of, list_folder
from roundoff.samples.images import decode
from roundoff.tensors import open_source

_MOST_NAMED = 3
_COLOURS = 3
# What raw values mostly are, by their size in bytes.
_TYPES = {1: "uint8", 2: "float16", 4: "float32", 8: "float64"}


@dataclass(frozen=True, slots=True)
class RawLayout:
    """What the user, or the model, says of raw files.

    Attributes:
        dtype: Their type, as people write it; None when not said.
        shape: Their shape; None when not said.
    """

    dtype: str | None = None
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class StageValues:
    """The values of one stage, paired.

    Attributes:
        names: Names of the samples.
        training: Training's arrays, one for each name; empty when that side was not given.
        deployed: The deployed side's; empty when that side was not given.
        notes: What was left out, and what was assumed.
        lonely: Samples of either side that have no partner.
    """

    names: tuple[str, ...]
    training: tuple[Array, ...]
    deployed: tuple[Array, ...]
    notes: tuple[Message, ...] = ()
    lonely: int = 0


def read_sides(training: "SideLike | None", deployed: "SideLike | None", raw: RawLayout) -> StageValues:
    """Read one stage.

    Args:
        training: File or folder of training, or its values; None when not given.
        deployed: The same of the deployed side; None when not given.
        raw: What is known of raw files.

    Raises:
        BadInput: Something cannot be read.
        CannotAlign: No file of one side has a partner on the other.
    """
    first, second = (_loaded(each, raw) for each in (training, deployed))
    if training is None or deployed is None:
        only = first or second
        values, notes = _finished(only, {}, raw)
        given = tuple(values.values())
        return StageValues(
            tuple(values), given if training is not None else (), given if training is None else (), notes
        )
    names, left_out = _paired(first, second, (training, deployed))
    ones = {name: first[one] for name, one, _ in names}
    others = {name: second[other] for name, _, other in names}
    # Raw files are described by their partners where these describe themselves.
    known, notes = _finished(ones, others, raw)
    partners, more = _finished(others, ones, raw)
    return StageValues(
        tuple(ones),
        tuple(known.values()),
        tuple(partners.values()),
        tuple(dict.fromkeys((*left_out, *notes, *more))),
        len(first) + len(second) - 2 * len(names),
    )


Loaded = Array | Path
"""Values, or a raw file that does not say what its bytes mean."""

SideLike = Path | Array | Mapping[str, Array]
"""A file or folder, an array, or arrays by the name of their sample."""


def _loaded(given: SideLike | None, raw: RawLayout) -> dict[str, Loaded]:
    """What a side holds, by sample."""
    if given is None:
        return {}
    if isinstance(given, Path):
        return _flat({name: _typed(path, kind) for name, (path, kind) in _files(given, raw).items()})
    return {"": given} if isinstance(given, np.ndarray) else dict(given)


def _files(path: Path, raw: RawLayout) -> dict[str, tuple[Path, Kind]]:
    with reading(path, what=english("The path")):
        is_folder = path.is_dir()
    if not is_folder:
        regular_file(path, what=english("The file"))
        kind = kind_of(path.name)
        if kind is None and not raw.dtype:
            raise _unknown(path)
        return {"": (path, kind or "bin")}
    listing = list_folder(path)
    found: dict[str, tuple[Path, Kind]] = {}
    for file in listing.files:
        kind = kind_of(file)
        if kind is None:
            raise _unknown(path / file)
        name = str(PurePosixPath(file).with_suffix(""))
        if name in found:
            raise BadInput(
                english(
                    "{path} has two files for the sample {name!r}: {name2} and {file}.",
                    path=shown(path),
                    name=name,
                    name2=shown(found[name][0].name),
                    file=shown(file),
                ),
                fix=english("keep one of them"),
            )
        found[name] = (path / file, kind)
    if not found:
        raise BadInput(
            english("The folder {path} holds no values.", path=shown(path)),
            fix=english("give .npy, .npz, .bin files or pictures"),
        )
    return found


def _unknown(path: Path) -> BadInput:
    what = english("{path} is none of .npy, .npz, .bin, .raw or a picture.", path=shown(path))
    return BadInput(
        what, fix=english("save it as one of these; raw bytes of any ending are read with --dtype float32")
    )


def _typed(path: Path, kind: Kind) -> dict[str, Loaded]:
    """The arrays of a file by their own names; a raw file stays a path."""
    if kind == "bin":
        if not regular_file(path, what=english("The file")):
            raise BadInput(english("{path} is empty.", path=shown(path)), fix=english("write it again"))
        return {"": path}
    if kind == "images":
        return {"": np.asarray(decode(path, _COLOURS))}
    source = open_source(path, format=kind)
    sample = source.samples[0]
    arrays: dict[str, Loaded] = {info.name: source.read(info.name, sample) for info in source.tensors}
    if len(arrays) == 1:
        return {"": next(iter(arrays.values()))}
    return arrays


def _flat(side: Mapping[str, Mapping[str, Loaded]]) -> dict[str, Loaded]:
    return {
        "/".join(part for part in (name, member) if part): value
        for name, members in side.items()
        for member, value in members.items()
    }


def _paired(
    first: Mapping[str, Loaded], second: Mapping[str, Loaded], paths: tuple[SideLike, SideLike]
) -> tuple[list[tuple[str, str, str]], tuple[Message, ...]]:
    """Names of samples with the names they have on either side, and what has no partner."""
    if len(first) == len(second) == 1:
        (one,), (other,) = first, second
        return [(one or other or _stem(paths[0]), one, other)], ()
    common = [name for name in first if name in second]
    if not common:
        raise CannotAlign(
            english(
                "No file of {called} ({some}) is named like one of {called2} ({some2}).",
                called=_called(paths[0]),
                some=some(_shown(first), _MOST_NAMED),
                called2=_called(paths[1]),
                some2=some(_shown(second), _MOST_NAMED),
            ),
            fix=english("name the files of one sample alike on both sides, whatever their endings"),
        )
    notes = [
        message(f"check_io.without_partner_{side}", count=len(lonely), names=some(_shown(lonely), _MOST_NAMED))
        for side, lonely in (
            ("training", [name for name in first if name not in second]),
            ("deployed", [name for name in second if name not in first]),
        )
        if lonely
    ]
    return [(name, name, name) for name in common], tuple(notes)


def _stem(given: SideLike) -> str:
    return given.stem if isinstance(given, Path) else "array"


def _called(given: SideLike) -> str:
    return shown(given) if isinstance(given, Path) else english("the arrays")


def _finished(
    side: Mapping[str, Loaded], partners: Mapping[str, Loaded], raw: RawLayout
) -> tuple[dict[str, Array], tuple[Message, ...]]:
    """All values of a side; raw files get the type and shape that were said, or those of their partners."""
    found: dict[str, Array] = {}
    # What is to be said of files, once for all of which it is the same.
    notes: dict[_Note, list[str]] = {}
    for name, value in side.items():
        if isinstance(value, Path):
            partner = partners.get(name)
            array, note = _raw(value, raw, partner if isinstance(partner, np.ndarray) else None)
            if note is not None:
                notes.setdefault(note, []).append(value.name)
        else:
            array = value
        found[name] = _comparable(array, name)
    return found, tuple(note.said_of(files) for note, files in notes.items())


@dataclass(frozen=True, slots=True)
class _Note:
    """What is to be said of raw files: that they are plain rows, or not of the shape that was expected.

    Attributes:
        dtype: Their type.
        values: How many they hold.
        shape: What was expected; None where nothing was.
    """

    dtype: str = ""
    values: int = 0
    shape: tuple[int, ...] | None = None

    def said_of(self, files: Sequence[str]) -> Message:
        if self.shape is None:
            return message("check_io.plain_rows")
        names, shape = some(_shown(files), _MOST_NAMED), str(list(self.shape))
        return message("check_io.values_expected", names=names, count=self.values, dtype=self.dtype, shape=shape)


def _comparable(array: Array, name: str) -> Array:
    """Values that can be subtracted: switches count as 0 and 1."""
    where = english("The sample {name!r}", name=name) if name else english("The file")
    if not array.size:
        what = english("{where} holds no values: its shape is {shape}.", where=where, shape=list(array.shape))
        raise BadInput(what, fix=english("write it again, or remove it from both sides"))
    if array.dtype.kind == "c":
        raise BadInput(
            english("{where} holds {name} numbers.", where=where, name=array.dtype.name),
            fix=english("save real and imaginary parts as two"),
        )
    return array.astype(np.uint8) if array.dtype.kind == "b" else array


def _raw(path: Path, raw: RawLayout, partner: Array | None) -> tuple[Array, _Note | None]:
    """The values, and what is to be said of the file."""
    with reading(path, what=english("The file")):
        size = stat_file(path)
    shape = raw.shape if raw.shape is not None else None if partner is None else partner.shape
    dtype = _raw_type(raw, size, shape, partner)
    if size % dtype.itemsize:
        raise BadInput(
            english(
                "{path} has {size} bytes, which are no whole number of values of {name}.",
                path=shown(path),
                size=size,
                name=dtype.name,
            ),
            fix=english("give the right type with --dtype"),
        )
    with reading(path, what=english("The file")):
        values = map_array(path, offset=0, dtype=dtype, shape=(size // dtype.itemsize,))
    if dtype != dtype.newbyteorder("="):
        values = values.astype(dtype.newbyteorder("="))
    if shape is not None and values.size == math.prod(shape):
        return values.reshape(shape), None
    return values, _Note() if shape is None else _Note(dtype.name, values.size, shape)


def numeric_type(name: str) -> DType:
    """The type that people call so.

    Raises:
        BadInput: There is none, or it holds no numbers.
    """
    try:
        return parse_dtype(name)
    except ValueError as error:
        fix = english("give --dtype float32, int8, uint8 or the like; {error}", error=error)
        raise BadInput(english("{name!r} is not a numeric type.", name=name), fix=fix) from error


def _raw_type(raw: RawLayout, size: int, shape: tuple[int, ...] | None, partner: Array | None) -> DType:
    if raw.dtype is not None:
        return numeric_type(raw.dtype)
    if shape is None:
        return np.dtype("float32" if size % 4 == 0 else "uint8")
    # Rows may be padded, so a file may be a little larger than its values.
    fitting = [width for width in _TYPES if width * math.prod(shape) <= size]
    width = fitting[-1] if fitting else 1
    if partner is not None and partner.dtype.itemsize == width and size == width * math.prod(shape):
        return partner.dtype
    return np.dtype(_TYPES[width])


def _shown(names: Iterable[str]) -> list[str]:
    return [shown(name) or "one file" for name in names]
