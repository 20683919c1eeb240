"""Archives of .npy members: one .npz file, or a folder with one per sample."""

import functools
from collections.abc import Sequence
from pathlib import Path

from roundoff.core.tensors import Array, TensorInfo, TensorSource
from roundoff.formats.folders import files_with, is_tensor_file, sniff_files
from roundoff.formats.npy_header import MAX_HEADER_BYTES, NpyHeader, parse_header
from roundoff.formats.opening import as_source, open_folder
from roundoff.formats.settle import settle
from roundoff.formats.stored import Content, Declared, Unreadable
from roundoff.formats.units import Unit, arrange_archives, unreadable_unit
from roundoff.formats.zip_members import Member, list_members

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
            f"{archive}/{member.info.filename}",
            member.info.filename.removesuffix(_MEMBER_SUFFIX),
            path,
            functools.partial(_probe, member),
            archive,
        )
        for member in members
    ]


def _probe(member: Member, declared: Declared | None) -> Content:
    if not member.info.filename.endswith(_MEMBER_SUFFIX):
        raise Unreadable("is not a .npy member")
    header = parse_header(member.head(MAX_HEADER_BYTES))
    if header.file_bytes != member.size:
        raise Unreadable(
            f"truncated or damaged: {member.size} bytes in the archive, {header.file_bytes} by its header",
            dtype=header.dtype.name,
            shape=header.shape,
        )
    load = functools.partial(_load, member, header)
    return settle(header.dtype, header.shape, load=load, declared=declared)


def _load(member: Member, header: NpyHeader) -> Array:
    values = member.content()[header.offset :].view(header.dtype)
    return values.reshape(header.shape, order="F" if header.fortran else "C")
