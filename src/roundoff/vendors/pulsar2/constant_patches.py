"""New values for a constant of a model, from the configuration or from a file."""

from pathlib import Path

import numpy as np

from roundoff.core.files import read_small, reading
from roundoff.core.mapped import map_array
from roundoff.core.names import shown
from roundoff.core.npy_header import read_header
from roundoff.core.tensors import Array, DType
from roundoff.core.unreadable import Unreadable
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.weights import Weights
from roundoff.vendors.pulsar2.config.schema import ConstProcessor

__all__ = ["new_constant"]

_SUFFIXES = (".bin", ".npy", ".txt")


def new_constant(processor: ConstProcessor, model: Model, *, base: Path | None) -> Array:
    """The values that a constant gets; type and shape stay.

    Args:
        processor: What the configuration says.
        model: The model that has the constant.
        base: Where relative paths are looked for besides the current folder.

    Raises:
        BadInput: There are more or fewer values, or one that the type cannot hold.
    """
    name = processor.name
    had = Weights(model)[name]
    if processor.data and processor.data_path:
        what = f"const_processors: {name!r} has both data and data_path ({processor.data_path})."
        raise BadInput(what, fix="keep one of them")
    given = (
        _from_file(processor.data_path, had.dtype, base, name=name)
        if processor.data_path
        else np.asarray(processor.data, np.float64)
    )
    where = processor.data_path or "data"
    if given.size != had.size:
        what = f"const_processors: {name!r} holds {had.dtype.name} {list(had.shape)}, {had.size} values in all"
        raise BadInput(f"{what}, but {where} has {given.size}.", fix=f"give {had.size} values")
    return _converted(given, had.dtype, f"const_processors: {name!r}").reshape(had.shape)


def _converted(given: Array, dtype: DType, where: str) -> Array:
    """Values in another type: whole numbers exactly, floats rounded."""
    if dtype.kind not in "iufb":
        raise BadInput(f"{where} holds {dtype.name}, which cannot be replaced by numbers.", fix="leave it out")
    with np.errstate(over="ignore", invalid="ignore"):
        result = given.astype(dtype)
        lost = result != given if dtype.kind in "iub" else np.isinf(result) != np.isinf(given)
    if np.any(lost):
        what = f"{where} is of {dtype.name}, which cannot hold {given[np.asarray(lost)].flat[0]}."
        raise BadInput(what, fix="give values of that type")
    return result


def _from_file(given: str, dtype: DType, base: Path | None, *, name: str) -> Array:
    candidates = [Path(given), *([base / given] if base is not None else [])]
    path = next((each for each in candidates if each.exists()), candidates[0])
    if path.suffix.lower() not in _SUFFIXES:
        what = f"const_processors: {name!r} is to come from {shown(path)}, which is of no known kind."
        raise BadInput(what, fix=f"give a file that ends in {', '.join(_SUFFIXES)}")
    if path.suffix.lower() == ".npy":
        return _npy(path)
    content = read_small(path, what="The file of a constant")
    if path.suffix.lower() == ".txt":
        return _text(content, path)
    if len(content) % dtype.itemsize:
        what = f"{shown(path)} has {len(content)} bytes, which are no whole number of {dtype.name}."
        raise BadInput(what, fix="write it as raw little-endian values of that type")
    return np.frombuffer(content, dtype.newbyteorder("<"))


def _npy(path: Path) -> Array:
    try:
        with reading(path, what="The file of a constant"):
            header = read_header(path)
            return map_array(
                path, offset=header.offset, dtype=header.dtype, shape=header.shape, fortran=header.fortran
            )
    except Unreadable as error:
        raise BadInput(f"{shown(path)} {error.problem}.", fix=error.fix) from error


def _text(content: bytes, path: Path) -> Array:
    words = content.decode("utf-8", "replace").replace(",", " ").split()
    try:
        return np.array([float(word) for word in words], np.float64)
    except ValueError as error:
        raise BadInput(
            f"{shown(path)} holds something that is no number: {error}.", fix="write numbers"
        ) from error
