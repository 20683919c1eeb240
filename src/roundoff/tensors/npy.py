"""NumPy's files: folders of .npy files, nested or not, single ones, and .npz archives of them."""

import functools
from collections.abc import Sequence
from pathlib import Path

from roundoff.core.array_files import (
    MAX_HEADER_BYTES,
    Member,
    Unreadable,
    list_members,
    map_array,
    parse_header,
    read_header,
)
from roundoff.core.names import shown
from roundoff.core.tensors import TensorInfo, TensorSource
from roundoff.messages.message import english
from roundoff.messages.numbers import format_size
from roundoff.tensors import ascend_npy as ascend_names
from roundoff.tensors.folders import (
    LIKELY,
    POSSIBLE,
    TensorPlace,
    arrange_files,
    files_with,
    is_tensor_file,
    locate,
    sniff_files,
    walk_files,
    without_suffix,
)
from roundoff.tensors.sources import ANY_RUN, RunSelection, open_archives, open_folder
from roundoff.tensors.stored import Content, Declared, StoredSource, resolve_content

SUFFIXES = (".npy",)


def sniff(path: Path) -> int:
    """Score how well a path fits: .npy files, unless their names are of the kind that has its own reader."""
    score = sniff_files(path, suffixes=SUFFIXES)
    if score == LIKELY and ascend_names.fits(walk_files(locate(path)[0])):
        return POSSIBLE
    return score


def open(  # noqa: A001 - every format has an `open`
    path: Path, shapes: Sequence[TensorInfo] | None = None, run: RunSelection = ANY_RUN
) -> TensorSource:
    """Open a folder of .npy files, its manifest, or one .npy file, whose only tensor is named by its stem."""
    if is_tensor_file(path):
        run.found((), path)
        return StoredSource([_unit(path.parent, path.name).stored(shown(path.stem))], label=shown(path))
    return open_folder(path, list_units=list_units, arrange=arrange_files, kind=english(".npy files"), run=run)


def list_units(folder: Path) -> list[TensorPlace]:
    """List the .npy files below a folder."""
    return [_unit(folder, file) for file in files_with(folder, SUFFIXES)]


def _unit(folder: Path, file: str) -> TensorPlace:
    path = folder / file
    return TensorPlace(file, shown(without_suffix(file)), path, functools.partial(probe, path))


def probe(path: Path, declared: Declared | None) -> Content:
    """Read the header of a .npy file."""
    header = read_header(path)
    load = functools.partial(
        map_array, path, offset=header.offset, dtype=header.dtype, shape=header.shape, fortran=header.fortran
    )
    return resolve_content(header.dtype, header.shape, load=load, declared=declared)


# Archives of .npy members: one .npz file, or a folder with one per sample.

_ARCHIVES = (".npz",)
_MAX_UNPACKED_BYTES = 2**30
"""A compressed member is in memory whole, and a few bytes of archive can unpack to a thousand times as many."""
_LIMIT = "1 GiB"


class NpzFormat:
    """The format of .npz archives; `roundoff.tensors.Format`."""

    def sniff(self, path: Path) -> int:
        """Score how well a path fits: .npz files."""
        return sniff_files(path, suffixes=_ARCHIVES)

    def open(
        self, path: Path, shapes: Sequence[TensorInfo] | None = None, run: RunSelection = ANY_RUN
    ) -> TensorSource:
        """Open one .npz file, or a folder of them, which is one sample per file."""
        return open_archives(path, suffixes=_ARCHIVES, members=list_archive, run=run)


def list_archive(path: Path, archive: str) -> list[TensorPlace]:
    """List the members of an archive, given its file and its path below the folder."""
    return [
        TensorPlace(
            f"{archive}/{member.name}",
            member.name.removesuffix(SUFFIXES[0]),
            path,
            functools.partial(_probe_member, member),
            archive,
        )
        for member in list_members(path)
    ]


def _probe_member(member: Member, declared: Declared | None) -> Content:
    if not member.name.endswith(SUFFIXES[0]):
        raise Unreadable(english("is not a .npy member"))
    header = parse_header(member.head(MAX_HEADER_BYTES), length=member.size)
    if not member.is_stored and member.size > _MAX_UNPACKED_BYTES:
        raise Unreadable(
            english(
                "is compressed and takes {format_size} of memory, more than {limit}",
                format_size=format_size(member.size),
                limit=_LIMIT,
            ),
            fix=english("write the archive uncompressed with np.savez; such members are not unpacked but mapped"),
            dtype=header.dtype.name,
            shape=header.shape,
        )
    return resolve_content(
        header.dtype, header.shape, load=lambda: header.values(member.content()), declared=declared
    )
