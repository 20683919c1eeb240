"""Arrays in .npz archives, matched to inputs by the names of their members."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roundoff.core.files import reading
from roundoff.core.names import shown
from roundoff.core.npy_header import MAX_HEADER_BYTES, NpyHeader, parse_header
from roundoff.core.tensors import Array, InputSpec
from roundoff.core.zip_members import Member, Pieces, list_members
from roundoff.data.naming import find_named
from roundoff.data.stored import Stored, intact
from roundoff.errors import BadInput

__all__ = ["Archives", "member_of"]

_SUFFIX = ".npy"
_RESAVE = "save it again with numpy.savez(path, **{input_name: array})"


@dataclass(slots=True)
class Archives:
    """Reads members of archives.

    Rows of one large member are read in order without unpacking it again for each, so the member that rows were
    last read from stays open: a file handle and a small buffer per input.

    Attributes:
        inputs: All inputs of the model; a member that belongs to none of them is refused.
    """

    inputs: Sequence[InputSpec]
    _pieces: dict[str, tuple[Path, Pieces]] = field(default_factory=dict)

    def open(self, path: Path, spec: InputSpec) -> Stored:
        """Find the member of an input and read its header.

        Raises:
            BadInput: The archive is damaged, or its members are not the inputs.
        """
        with reading(path, what="The archive"), intact(shown(path), spec, fix=_RESAVE):
            members = list_members(path)
        name = member_of([member.name for member in members], spec, self.inputs, where=shown(path))
        member = next(member for member in members if member.name == name)
        where = f"{shown(path)} (member {name.removesuffix(_SUFFIX)!r})"
        with reading(path, what="The archive"), intact(where, spec, fix=_RESAVE):
            header = parse_header(member.head(MAX_HEADER_BYTES), length=member.size)

        def load(rows: slice | None) -> Array:
            with reading(path, what="The archive"), intact(where, spec, fix=_RESAVE):
                if rows is None or header.fortran or header.size_bytes == 0:
                    whole = header.values(member.content())
                    return whole if rows is None else whole[rows]
                return self._read_rows(member, rows, header=header, input_name=spec.name)

        return Stored(where, header.dtype, header.shape, load)

    def _read_rows(self, member: Member, rows: slice, *, header: NpyHeader, input_name: str) -> Array:
        held, pieces = self._pieces.get(input_name, (None, None))
        if pieces is None or held != member.path:
            pieces = Pieces(member)
            self._pieces[input_name] = member.path, pieces
        row_bytes = header.size_bytes // header.shape[0]
        data = pieces.read(header.offset + rows.start * row_bytes, (rows.stop - rows.start) * row_bytes)
        return data.view(header.dtype).reshape(-1, *header.shape[1:])


def member_of(names: Sequence[str], spec: InputSpec, inputs: Sequence[InputSpec], *, where: str) -> str:
    """The member that holds an input: named like it, or the only member for the only input.

    Raises:
        BadInput: It is missing, is there twice, or there are members that are no input.
    """
    if len(names) == 1 and len(inputs) == 1 and names[0].endswith(_SUFFIX):
        return names[0]
    stems = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
    owners = find_named([one.name for one in inputs], stems)
    listed = ", ".join(repr(name.removesuffix(_SUFFIX)) for name in names)
    found = owners[spec.name]
    # One member must not stand for two inputs whose names differ in odd characters only.
    if found is None or list(owners.values()).count(found) > 1:
        raise BadInput(
            f"{where} has no member of its own for the input {spec.name!r}: expected {spec.describe()}, "
            f"found members {listed}.",
            fix=_RESAVE,
        )
    if stems.count(found) > 1:
        raise BadInput(f"{where} holds the member {found!r} more than once.", fix=_RESAVE)
    taken = [f"{owner}{_SUFFIX}" for owner in owners.values()]
    extra = [name for name in names if name not in taken]
    if extra:
        expected = ", ".join(repr(one.name) for one in inputs)
        raise BadInput(
            f"{where} has a member {extra[0].removesuffix(_SUFFIX)!r}, "
            f"which is no input of the model ({expected}).",
            fix="save an archive with the inputs alone",
        )
    return found + _SUFFIX
