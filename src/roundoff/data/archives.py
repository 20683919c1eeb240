"""Arrays in .npz archives, matched to inputs by the names of their members."""

import contextlib
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from roundoff.core.files import reading
from roundoff.core.tensors import Array, InputSpec
from roundoff.data.files import sanitized, shown
from roundoff.data.stored import Header, Stored, read_header
from roundoff.errors import BadInput

__all__ = ["Archives", "member_of"]

_SUFFIX = ".npy"
_RESAVE = "save it again with numpy.savez(path, **{input_name: array})"
# What the zip modules raise on damaged, encrypted or foreign archives.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
)


@dataclass(slots=True)
class Archives:
    """Reads members of archives.

    Rows of one large compressed member are read in order by going on where the last read stopped, so the
    member that rows were last read from stays open: a file handle and a small buffer per input.

    Attributes:
        inputs: All inputs of the model; a member that belongs to none of them is refused.
    """

    inputs: Sequence[InputSpec]
    _streams: dict[str, tuple[Path, IO[bytes]]] = field(default_factory=dict)

    def open(self, path: Path, spec: InputSpec) -> Stored:
        """Find the member of an input and read its header.

        Raises:
            BadInput: The archive is damaged, or its members are not the inputs.
        """
        with _archive(path) as archive:
            member = member_of(archive.namelist(), spec, self.inputs, where=shown(path))
            where = f"{shown(path)} (member {member.removesuffix(_SUFFIX)!r})"
            with archive.open(member) as stream:
                header = read_header(stream, where=where, size_bytes=archive.getinfo(member).file_size)

        def load(rows: slice | None) -> Array:
            if rows is None or header.fortran_order or header.size_bytes == 0:
                whole = _read_whole(path, member, header)
                return whole if rows is None else whole[rows]
            return self._read_rows(path, member, rows, header=header, input_name=spec.name)

        return Stored(where, header.dtype, header.shape, load)

    def _read_rows(self, path: Path, member: str, rows: slice, *, header: Header, input_name: str) -> Array:
        row_bytes = header.size_bytes // header.shape[0]
        with _damage(path), reading(path, what="The archive"):
            held_path, stream = self._streams.get(input_name, (None, None))
            if stream is None or held_path != path:
                stream = zipfile.ZipFile(path).open(member)  # noqa: SIM115 - for the rows that follow
                self._streams[input_name] = path, stream
            stream.seek(header.offset + rows.start * row_bytes)
            data = stream.read((rows.stop - rows.start) * row_bytes)
            return np.frombuffer(data, header.dtype).reshape(-1, *header.shape[1:])


def member_of(names: Sequence[str], spec: InputSpec, inputs: Sequence[InputSpec], *, where: str) -> str:
    """The member that holds an input: named like it, or the only member for the only input.

    Raises:
        BadInput: It is missing, or there are members that are no input.
    """
    members = [name for name in names if not name.endswith("/")]
    if len(members) == 1 and len(inputs) == 1 and members[0].endswith(_SUFFIX):
        return members[0]
    owners = {one.name: _named(one.name, members) for one in inputs}
    listed = ", ".join(repr(name.removesuffix(_SUFFIX)) for name in members) or "none"
    found = owners[spec.name]
    # One member must not stand for two inputs whose names differ in odd characters only.
    if found is None or list(owners.values()).count(found) > 1:
        raise BadInput(
            f"{where} has no member of its own for the input {spec.name!r}: expected {spec.describe()}, "
            f"found members {listed}.",
            fix=_RESAVE,
        )
    extra = [name for name in members if name not in owners.values()]
    if extra:
        expected = ", ".join(repr(one.name) for one in inputs)
        raise BadInput(
            f"{where} has a member {extra[0].removesuffix(_SUFFIX)!r}, "
            f"which is no input of the model ({expected}).",
            fix="save an archive with the inputs alone",
        )
    return found


def _named(name: str, members: Sequence[str]) -> str | None:
    if name + _SUFFIX in members:
        return name + _SUFFIX
    alike = [member for member in members if sanitized(member) == sanitized(name) + _SUFFIX]
    return alike[0] if len(alike) == 1 else None


def _read_whole(path: Path, member: str, header: Header) -> Array:
    with _archive(path) as archive:
        data = archive.read(member)[header.offset :]
    flat: Array = np.frombuffer(data, header.dtype)
    return flat.reshape(header.shape, order="F" if header.fortran_order else "C")


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    with _damage(path), reading(path, what="The archive"), zipfile.ZipFile(path) as archive:
        yield archive


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise BadInput(f"{shown(path)} is not a valid .npz archive: {error}.", fix=_RESAVE) from error
