"""Archives of .npy members: one .npz file, or a folder with one per sample."""

import functools
from collections.abc import Sequence
from pathlib import Path

from roundoff.core.tensors import TensorInfo, TensorSource
from roundoff.formats.folders import files_with, is_tensor_file, sniff_files
from roundoff.core.npy_header import MAX_HEADER_BYTES, parse_header
from roundoff.formats.opening import as_source, open_folder
from roundoff.formats.settle import settle
from roundoff.formats.stored import Content, Declared
from roundoff.core.unreadable import Unreadable
from roundoff.formats.units import Unit, arrange_archives, unreadable_unit
from roundoff.core.zip_members import Member, list_members

__all__ = ["SUFFIXES", "open", "sniff"]

SUFFIXES = (".npz",)
_MEMBER_SUFFIX = ".npy"


def sniff(path: Path) -> int:
    """Score how well a path fits: .npz files."""
    return sniff_files(path, suffixes=SUFFIXES)


def open(path: Path, shapes: Sequence[TensorInfo] | None = None) -> TensorSource:  # noqa: A001 - every format has an `open`
    """Open one .npz file, or a folder of them, which is one sample per file."""
    if is_tensor_file(path):
        return as_source(arrange_archives(_members(path.parent, path.name)), label=str(path), kind="tensors")
    return open_folder(path, list_units=_list_units, arrange=arrange_archives, kind=".npz files")


def _list_units(folder: Path) -> list[Unit]:
    return [unit for archive in files_with(folder, SUFFIXES) for unit in _members(folder, archive)]


def _members(folder: Path, archive: str) -> list[Unit]:
    path = folder / archive
    try:
        members = list_members(path)
    except (Unreadable, OSError) as error:
        return [unreadable_unit(archive, path, error)]
    return [
        Unit(
            f"{archive}/{member.name}",
            member.name.removesuffix(_MEMBER_SUFFIX),
            path,
            functools.partial(_probe, member),
            archive,
        )
        for member in members
    ]


def _probe(member: Member, declared: Declared | None) -> Content:
    if not member.name.endswith(_MEMBER_SUFFIX):
        raise Unreadable("is not a .npy member")
    header = parse_header(member.head(MAX_HEADER_BYTES), length=member.size)
    return settle(
        header.dtype, header.shape, load=lambda: header.values(member.content()), declared=declared
    )
