"""Tensors of one operator out of its dump files, or out of a golden file, with what rows say of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from roundoff.core.dtypes import as_values, why_refused
from roundoff.core.mapped import map_array
from roundoff.core.npy_header import read_header
from roundoff.core.tensors import Array
from roundoff.core.unreadable import Unreadable
from roundoff.formats.ascend_dump.element_types import element_type
from roundoff.formats.ascend_dump.header import read_dump
from roundoff.formats.ascend_dump.schema import ELEMENT_TYPES, Dump, DumpTensor
from roundoff.formats.ascend_dump.slices import Slice, expected_slices, merge
from roundoff.formats.ascend_dump.values import device_shape, map_tensor
from roundoff.vendors.ascend.errors import Code, NotCompared
from roundoff.vendors.ascend.folders import Found

__all__ = ["Loaded", "Tensor", "load_golden", "load_operator"]


_UNREAD = frozenset(ELEMENT_TYPES) - {
    "UNDEFINED", "FLOAT", "FLOAT16", "INT8", "UINT8", "INT16", "UINT16", "INT32", "INT64", "UINT32", "UINT64",
    "BOOL", "DOUBLE", "COMPLEX64", "COMPLEX128", "RESOURCE", "BF16", "UINT1",
}  # fmt: skip
"""Element types that the vendor's tool cannot read."""


class Tensor:
    """An input or output of an operator; its values are read when asked for.

    Args:
        about: What the header says of it.
        path: The file it lies in.
        slices: All slices of the operator, when there are several.
        problem: Why it cannot be read; empty when it can.
    """

    def __init__(self, about: DumpTensor, path: Path, *, slices: Sequence[Slice] = (), problem: str = "") -> None:
        self.about = about
        self.path = path
        self.problem = problem
        self._slices = slices

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Its shape on the device, of all slices together."""
        if self._slices:
            return merge(self._slices, self.about.role, index=self.about.index, complete=False).shape
        return device_shape(self.about)

    @cached_property
    def values(self) -> Array:
        """Its values as the device laid them out."""
        if self._slices:
            return merge(self._slices, self.about.role, index=self.about.index, complete=False).load()
        return map_tensor(self.path, self.about)

    @property
    def sliced(self) -> bool:
        """Whether it was put together from slices."""
        return bool(self._slices)

    @property
    def address(self) -> str:
        """Its address as the rows show it."""
        return str(self.about.address) if self.about.address else "NaN"

    @property
    def dtype(self) -> str:
        """Its element type as the rows show it."""
        try:
            return element_type(self.about.element_type).name
        except Unreadable:
            return "NaN"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The tensors of an operator.

    Attributes:
        path: The file they come from; of slices, the first with a star for what differs.
        inputs: Its inputs.
        outputs: Its outputs.
        op_name: Its name in the model's spelling, when the dump says so.
        sliced: Whether it ran in slices.
        complete: Whether all slices are there.
        damage: What is wrong with the file as a whole; empty when nothing is.
    """

    path: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    op_name: str = ""
    sliced: bool = False
    complete: bool = True
    damage: str = ""


def load_operator(files: Sequence[Found], *, strict: bool) -> Loaded:
    """Read the headers of an operator's files: of the newest, or of all slices.

    Args:
        files: In the order in which they count.
        strict: Take a file of another length than its header says for an empty one, as the vendor does.

    Raises:
        NotCompared: The file cannot be read.
    """
    last = files[-1]
    if last.name is None:
        return _golden(last)
    if last.name.sliced:
        return _of_slices(files, strict=strict)
    dump = _read(last.path)
    damage = ""
    if dump.missing or dump.extra:
        damage = (
            f"{dump.missing} bytes are missing at its end"
            if dump.missing
            else f"{dump.extra} bytes too many at its end"
        )
        if strict:
            return Loaded(str(last.path), (), (), dump.op_name)
    if strict and any(tensor.element_type in _UNREAD for tensor in dump.tensors):
        raise NotCompared("", code=Code.ELEMENT_TYPE)
    return Loaded(
        str(last.path),
        tuple(Tensor(tensor, last.path) for tensor in dump.inputs),
        tuple(Tensor(tensor, last.path) for tensor in dump.outputs),
        dump.op_name,
        damage=damage,
    )


def load_golden(found: Found) -> Tensor:
    """One golden tensor."""
    return _golden(found).outputs[0]


def _of_slices(files: Sequence[Found], *, strict: bool) -> Loaded:
    slices = [Slice(found.path, _read(found.path)) for found in files]
    first = slices[0].dump
    several = slices if len(slices) > 1 else ()
    expected = expected_slices(first)
    stem = ".".join(str(files[0].path).split(".")[:4])
    return Loaded(
        f"{stem}.*" if several else str(files[0].path),
        # The vendor joins outputs only.
        tuple(Tensor(tensor, files[0].path, slices=() if strict else several) for tensor in first.inputs),
        tuple(Tensor(tensor, files[0].path, slices=several) for tensor in first.outputs),
        first.op_name,
        sliced=True,
        complete=expected in (None, len(slices)),
    )


def _read(path: Path) -> Dump:
    try:
        return read_dump(path)
    except (Unreadable, OSError) as error:
        reason = error.problem if isinstance(error, Unreadable) else error.strerror
        raise NotCompared(f"{path.name} cannot be read: {reason}.", code=Code.DATA) from error


class _Golden(Tensor):
    """A golden tensor: a .npy file."""

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return self.about.shape

    @cached_property
    def values(self) -> Array:
        header = read_header(self.path)
        mapped = map_array(
            self.path, offset=header.offset, dtype=header.dtype, shape=header.shape, fortran=header.fortran
        )
        return as_values(mapped)

    @property
    def dtype(self) -> str:
        return self.about.element_type


def _golden(found: Found) -> Loaded:
    if found.path.suffix != ".npy":
        return _legacy(found)
    try:
        header = read_header(found.path)
    except (Unreadable, OSError) as error:
        reason = error.problem if isinstance(error, Unreadable) else error.strerror
        raise NotCompared(f"{found.path.name} cannot be read: {reason}.", code=Code.DATA) from error
    if refused := why_refused(header.dtype):
        raise NotCompared(f"{found.path.name} cannot be read: it {refused}.", code=Code.ELEMENT_TYPE)
    dtype = "float32" if header.dtype.kind == "V" else np.dtype(header.dtype).name
    about = DumpTensor("output", 0, dtype, "RESERVED", header.shape, (), 0, 0, 0, 0)
    return Loaded(str(found.path), (), (_Golden(about, found.path),))


def _legacy(found: Found) -> Loaded:
    """Golden data of old tools, in the layout of a dump."""
    dump = _read(found.path)
    if not dump.outputs:
        raise NotCompared(f"{found.path.name} holds no tensor.", code=Code.DATA)
    return Loaded(str(found.path), (), tuple(Tensor(tensor, found.path) for tensor in dump.outputs))
