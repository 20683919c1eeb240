"""Tensors as the raw files that ``pulsar2 run`` and the board read and write, and how these are called."""

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from roundoff.core.files import read_small, reading, write_bytes
from roundoff.core.mapped import map_array, stat_file
from roundoff.core.names import FileNames, shown
from roundoff.core.tensors import Array, InputSpec
from roundoff.core.unreadable import Unreadable
from roundoff.errors import BadInput

__all__ = [
    "SUFFIX",
    "are_numbers",
    "case_folder",
    "file_names",
    "random_input",
    "read_cases",
    "read_input",
    "write_tensor",
]

SUFFIX = ".bin"
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST = 240


def file_names(names: Iterable[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The file of each tensor: every odd character becomes ``_``; where two would be the same, one gets a mark.

    Returns:
        File names by tensor, and a sentence for each that is not what the vendor's tool would call it.
    """
    stems = FileNames(illegal=_ILLEGAL, limit=_LONGEST)
    found = {name: stems.stem(name) + SUFFIX for name in names}
    odd = [
        f"tensor {name} is in {file}: its plain name would be that of another, or is one that no disk takes"
        for name, file in found.items()
        if file != _ILLEGAL.sub("_", name) + SUFFIX
    ]
    return found, tuple(odd)


def read_cases(path: Path | None) -> tuple[str, ...]:
    """The sub-folders that a list file names, one per line; one without a name when there is no list.

    Raises:
        BadInput: It names none, one twice, or one outside of the folder.
    """
    if path is None:
        return ("",)
    text = read_small(path, what="The list").decode("utf-8-sig", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise BadInput(f"The list {shown(path)} names no folders.", fix="write one name per line")
    seen: set[PurePosixPath] = set()
    for line in lines:
        place = PurePosixPath(line)
        if place.is_absolute() or ".." in place.parts or "\\" in line or "\0" in line:
            what = f"The list {shown(path)} names {line!r:.100}, which is not a folder inside of another."
            raise BadInput(what, fix="name folders relative to --input_dir, without ..")
        if place in seen:
            raise BadInput(f"The list {shown(path)} names {line!r:.100} twice.", fix="remove one of them")
        seen.add(place)
    return tuple(lines)


def read_input(path: Path, spec: InputSpec, *, batch: int = 1) -> list[Array]:
    """The values of an input, once for each of `batch` runs.

    Raises:
        BadInput: The file is missing, or does not hold so many values.
    """
    dtype = np.dtype(spec.dtype).newbyteorder("<")
    if not path.exists():
        there = sorted(each.name for each in path.parent.glob(f"*{SUFFIX}")) if path.parent.is_dir() else []
        found = f"found {', '.join(there[:5])}" if there else "there are no .bin files"
        what = (
            f"There is no file for the input {spec.name!r} ({spec.describe()}): expected {shown(path)}; {found}."
        )
        raise BadInput(what, fix="write it there, or add --random_input")
    try:
        with reading(path, what="The input file"):
            held = stat_file(path)
            shape = _shape(spec, held // max(1, dtype.itemsize * batch), where=shown(path))
            wanted = dtype.itemsize * math.prod(shape) * batch
            if held != wanted:
                times = f" {batch} times" if batch > 1 else ""
                what = f"{shown(path)} has {held} bytes; the input {spec.name!r} takes {spec.describe()}{times}"
                raise BadInput(
                    f"{what}, {wanted} bytes.", fix="write raw little-endian values of that type and shape"
                )
            values = map_array(path, offset=0, dtype=dtype, shape=(batch, *shape))
    except Unreadable as error:
        raise BadInput(f"{shown(path)} {error.problem}.", fix="give a regular file") from error
    return [np.asarray(values[index], dtype.newbyteorder("=")) for index in range(batch)]


def _shape(spec: InputSpec, count: int, *, where: str) -> tuple[int, ...]:
    """The input's shape; one free axis is found from the number of values."""
    axes = spec.shape
    free = [place for place, axis in enumerate(axes or ()) if not isinstance(axis, int)]
    if axes is None or len(free) > 1:
        what = f"{where} says nothing of its shape, and the input {spec.name!r} leaves it open: {spec.describe()}."
        raise BadInput(what, fix="fix the shapes of the model's inputs")
    fixed = math.prod(axis for axis in axes if isinstance(axis, int))
    size = count // fixed if fixed else 0
    return tuple(axis if isinstance(axis, int) else size for axis in axes)


def random_input(spec: InputSpec, rng: np.random.Generator, *, batch: int = 1) -> Array:
    """Values for an input: floats from 0 to 1, bytes over their range, other whole numbers 0 or 1.

    Args:
        spec: The input; free axes get the size 1.
        rng: Where chance comes from.
        batch: How many times.

    Raises:
        BadInput: Even the number of its axes is free.
    """
    if spec.shape is None:
        what = f"The input {spec.name!r} is of any shape; no values can be made up for it."
        raise BadInput(what, fix="write its files yourself")
    shape = (batch, *(axis if isinstance(axis, int) else 1 for axis in spec.shape))
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "f":
        return rng.random(shape, np.float32).astype(dtype)
    if dtype.itemsize == 1 and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return rng.integers(0, 2, shape).astype(dtype)


def are_numbers(arrays: Sequence[object]) -> bool:
    """Whether values have bytes that a raw file can hold: text and sequences of tensors have none."""
    return all(isinstance(array, np.ndarray) and array.dtype.kind not in "OSU" for array in arrays)


def write_tensor(path: Path, arrays: Sequence[Array]) -> None:
    """Write values one after the other, raw and little-endian."""
    write_bytes(path, b"".join(np.asarray(array).astype(_little(array), order="C").tobytes() for array in arrays))


def _little(array: Array) -> "np.dtype[np.generic]":
    return array.dtype.newbyteorder("<") if array.dtype.kind in "iufc" else array.dtype


def case_folder(root: Path, case: str) -> Path:
    """The folder of one line of the list."""
    return root / PurePosixPath(case) if case else root
