"""Arrays in .npy and raw files: their type and shape at once, their values when asked."""

import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roundoff.core.array_files import (
    MAX_HEADER_BYTES,
    Member,
    NpyHeader,
    Pieces,
    Unreadable,
    list_members,
    map_array,
    parse_header,
    read_header,
)
from roundoff.core.files import reading
from roundoff.core.names import names_by_stem, shown
from roundoff.core.tensors import Array, DType, InputSpec, is_extended, parse_dtype
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.samples.arrays import StoredArray, input_dtype, input_error
from roundoff.samples.options import SampleOptions


@contextlib.contextmanager
def intact(where: str, spec: InputSpec, *, fix: str) -> Iterator[None]:
    """Turn what is wrong with a file into an error that names it, the input, and what it expects.

    Args:
        where: File and member for messages.
        spec: The input it is read for.
        fix: How to make a file that can be read.
    """
    what = english(
        "{where} cannot be read for the input {name!r} (expected {describe})",
        where=where,
        name=spec.name,
        describe=spec.describe(),
    )
    try:
        yield
    except Unreadable as error:
        found = english(" of {dtype} {shape}", dtype=error.dtype, shape=list(error.shape)) if error.dtype else ""
        raise BadInput(
            english("{what}: {problem}{found}.", what=what, problem=error.problem, found=found), fix=fix
        ) from error
    except MemoryError as error:
        uncompressed = english("store it uncompressed, so that it can be mapped")
        raise BadInput(english("{what}: it does not fit into memory.", what=what), fix=uncompressed) from error


def open_npy(path: Path, spec: InputSpec) -> StoredArray:
    """Open an .npy file; it is mapped into memory when values are asked for.

    Raises:
        BadInput: It is no .npy file, is damaged, or holds something that is not plain numbers.
    """
    with _sample_file(path, spec):
        header = read_header(path)
    dtype, shape = header.dtype, header.shape
    return _on_disk(path, spec, dtype=dtype, shape=shape, offset=header.offset, fortran=header.fortran)


def open_raw(path: Path, spec: InputSpec, options: SampleOptions) -> StoredArray:
    """Open a file of bare little-endian values, whose type and shape come from the options or the input.

    A file may hold several samples one after the other; they become a leading axis.

    Raises:
        BadInput: The shape is not known, or the file does not hold whole samples.
    """
    where = shown(path)
    dtype, shape, fixed = _raw_layout(spec, options, where=where)
    with reading(path, what=english("The sample file")):
        held = path.stat().st_size
    one = dtype.itemsize * math.prod(shape)
    if held == 0 or one == 0 or held % one:
        unit = "sample" if fixed else "row"
        raise input_error(
            spec,
            "{where} does not fit the input {name!r}: expected {describe}, one {unit} of {name2} "
            "{shape} takes {one} bytes, got a file of {held} bytes.",
            fix=english("give the right type and shape of one sample with --raw-dtype and --raw-shape"),
            where=where,
            unit=unit,
            name2=dtype.name,
            shape=list(shape),
            one=one,
            held=held,
        )
    count = held // one
    full = shape if fixed and count == 1 else (count, *shape)
    return _on_disk(path, spec, dtype=dtype, shape=full)


def _on_disk(
    path: Path,
    spec: InputSpec,
    *,
    dtype: DType,
    shape: tuple[int, ...],
    offset: int = 0,
    fortran: bool = False,
) -> StoredArray:
    """Values that are mapped into memory only when they are asked for."""

    def load(rows: slice | None) -> Array:
        with _sample_file(path, spec):
            array = map_array(path, offset=offset, dtype=dtype, shape=shape, fortran=fortran)
        return array if rows is None else array[rows]

    return StoredArray(shown(path), dtype, shape, load)


@contextlib.contextmanager
def _sample_file(path: Path, spec: InputSpec) -> Iterator[None]:
    fix = english(
        "save it again with numpy.save(path, array.astype('{dtype}'), allow_pickle=False)", dtype=spec.dtype
    )
    with reading(path, what=english("The sample file")), intact(shown(path), spec, fix=fix):
        yield


def _raw_layout(spec: InputSpec, options: SampleOptions, *, where: str) -> tuple[DType, tuple[int, ...], bool]:
    """Type, shape, and whether the shape is that of a sample rather than of a row of a free batch."""
    dtype = _raw_dtype(spec, options)
    axes = spec.shape
    if options.raw_shape is not None:
        shape = options.raw_shape
        if axes is not None and len(shape) == len(axes) - 1 and not (isinstance(axes[0], int) and axes[0] != 1):
            shape = (1, *shape)
        return dtype, shape, True
    if axes is not None:
        sizes = tuple(axis for axis in axes if isinstance(axis, int))
        if len(sizes) == len(axes):
            return dtype, sizes, True
        if len(sizes) == len(axes) - 1 and not isinstance(axes[0], int):
            return dtype, sizes, False
    raise input_error(
        spec,
        "{where} says nothing of its shape, and the input {name!r} leaves it open: {describe}.",
        fix=english("give the shape of one sample, as in --raw-shape 1x3x224x224, or save the samples as .npy"),
        where=where,
    )


def _raw_dtype(spec: InputSpec, options: SampleOptions) -> DType:
    if options.raw_dtype is None:
        return input_dtype(spec).newbyteorder("<")
    try:
        dtype = parse_dtype(options.raw_dtype)
    except ValueError as error:
        raise BadInput(
            english("{raw_dtype!r} is not a numeric type.", raw_dtype=options.raw_dtype),
            fix=english("give --raw-dtype float32, int8, uint8 or the like; {error}", error=error),
        ) from error
    if is_extended(dtype):
        raise BadInput(
            english("Samples cannot be read from raw files of {name}.", name=dtype.name),
            fix=english("save them as float32, which holds them"),
        )
    return dtype.newbyteorder("<") if dtype.byteorder == "=" else dtype


# Which folder or member of an archive is meant for which input.

_ODD = re.compile(r"[^A-Za-z0-9]")


def find_named(names: Sequence[str], stems: Sequence[str]) -> dict[str, str | None]:
    """Find the stem that stands for each name, None where there is none or more than one may be meant.

    A stem may be the name itself, the name as roundoff writes it to disk, or, as other programs do it, the name
    with ``_`` for any of its odd characters.
    """
    means = names_by_stem(names)
    # Backwards, because the stems that count most come first and must have the last word.
    known = {means[stem]: stem for stem in reversed(means) if stem in stems}
    return {name: known.get(name) or _alike(name, stems) for name in names}


def _alike(name: str, stems: Sequence[str]) -> str | None:
    alike = [stem for stem in stems if _ODD.sub("_", stem) == _ODD.sub("_", name)]
    return alike[0] if len(alike) == 1 else None


# Arrays in .npz archives, matched to inputs by the names of their members.

_SUFFIX = ".npy"
_RESAVE = english("save it again with numpy.savez(path, **{{input_name: array}})")


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

    def open(self, path: Path, spec: InputSpec) -> StoredArray:
        """Find the member of an input and read its header.

        Raises:
            BadInput: The archive is damaged, or its members are not the inputs.
        """
        with reading(path, what=english("The archive")), intact(shown(path), spec, fix=_RESAVE):
            members = list_members(path)
        name = member_of([member.name for member in members], spec, self.inputs, where=shown(path))
        member = next(member for member in members if member.name == name)
        where = english("{path} (member {suffix!r})", path=shown(path), suffix=name.removesuffix(_SUFFIX))
        with reading(path, what=english("The archive")), intact(where, spec, fix=_RESAVE):
            header = parse_header(member.head(MAX_HEADER_BYTES), length=member.size)

        def load(rows: slice | None) -> Array:
            with reading(path, what=english("The archive")), intact(where, spec, fix=_RESAVE):
                if rows is None or header.fortran or header.size_bytes == 0:
                    whole = header.values(member.content())
                    return whole if rows is None else whole[rows]
                return self._read_rows(member, rows, header=header, input_name=spec.name)

        return StoredArray(where, header.dtype, header.shape, load)

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
        raise input_error(
            spec,
            "{where} has no member of its own for the input {name!r}: expected {describe}, found "
            "members {listed}.",
            fix=_RESAVE,
            where=where,
            listed=listed,
        )
    if stems.count(found) > 1:
        raise BadInput("{where} holds the member {found!r} more than once.", fix=_RESAVE, where=where, found=found)
    taken = [f"{owner}{_SUFFIX}" for owner in owners.values()]
    extra = [name for name in names if name not in taken]
    if extra:
        expected = ", ".join(repr(one.name) for one in inputs)
        raise BadInput(
            "{where} has a member {suffix!r}, which is no input of the model ({expected}).",
            fix=english("save an archive with the inputs alone"),
            where=where,
            suffix=extra[0].removesuffix(_SUFFIX),
            expected=expected,
        )
    return found + _SUFFIX
