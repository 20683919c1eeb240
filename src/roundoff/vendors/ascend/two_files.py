"""Two arrays in two files, compared without names or rules."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from roundoff.core.dtypes import as_values
from roundoff.core.files import regular_file
from roundoff.core.mapped import map_array
from roundoff.core.npy_header import read_header
from roundoff.core.tensors import Array
from roundoff.core.unreadable import Unreadable
from roundoff.formats import open_source
from roundoff.vendors.ascend.algorithms import Algorithm, Case, compare_values
from roundoff.vendors.ascend.errors import Code, Refused
from roundoff.vendors.ascend.passes import Pair

__all__ = ["compare_files"]


def compare_files(
    mine: Path, golden: Path, *, algorithms: dict[str, Algorithm], warn: Callable[[str], None], most: int = 0
) -> tuple[dict[str, str], list[str]]:
    """Compare two .npy files, files of text, or dumps with one output.

    Returns:
        What the algorithms print by name, and the messages.

    Raises:
        Refused: They cannot be read, or their shapes differ.
    """
    left, right = (_read(path) for path in (mine, golden))
    if left.shape != right.shape:
        what = (
            f"My output shape {left.shape} in '{mine}' does not match the ground truth shape {right.shape} "
            f"in '{golden}'."
        )
        raise Refused(
            what, code=Code.SHAPE, fix="give arrays of one shape, or use 'roundoff compare', which aligns"
        )
    flat = [side.reshape(-1)[: most or None] for side in (left, right)]
    case = Case(Pair(*flat), all(size == 1 for size in left.shape), str(mine), str(golden))
    values, messages = compare_values(case, algorithms, warn=warn)
    return dict(zip(algorithms, values, strict=True)), messages


def _of_dump(path: Path) -> Array:
    """The one output of a dump file."""
    source = open_source(path, format="ascend-dump")
    outputs = [info.name for info in source.tensors if ".input." not in info.name]
    if len(outputs) != 1:
        what = f"{path} holds {len(outputs)} outputs."
        raise Refused(what, code=Code.DATA, fix="give folders and -op, or convert it to .npy first")
    return source.read(outputs[0], source.samples[0])


def _read(path: Path) -> Array:
    regular_file(path, what="The file")
    try:
        if path.suffix == ".txt":
            return np.loadtxt(path, dtype=np.float32)
        if path.suffix != ".npy":
            return _of_dump(path)
        header = read_header(path)
        mapped = map_array(
            path, offset=header.offset, dtype=header.dtype, shape=header.shape, fortran=header.fortran
        )
        return as_values(mapped)
    except Unreadable as error:
        raise Refused(f"{path} cannot be read: {error.problem}.", code=Code.DATA, fix=error.fix) from error
    except ValueError as error:
        what = f"{path} cannot be read: {error}."
        raise Refused(what, code=Code.DATA, fix="give a .npy file, or numbers as text") from error
