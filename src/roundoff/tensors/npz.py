"""Archives of .npy members: one .npz file, or a folder with one per sample."""

import functools
from collections.abc import Sequence
from pathlib import Path

from roundoff.core.array_files import MAX_HEADER_BYTES, Member, Unreadable, list_members, parse_header
from roundoff.core.tensors import TensorInfo, TensorSource
from roundoff.messages.message import english
from roundoff.messages.numbers import format_size
from roundoff.tensors.folders import TensorPlace, sniff_files
from roundoff.tensors.sources import ANY_RUN, RunSelection, open_archives
from roundoff.tensors.stored import Content, Declared, resolve_content

SUFFIXES = (".npz",)
_MEMBER_SUFFIX = ".npy"
_MAX_UNPACKED_BYTES = 2**30
"""A compressed member is in memory whole, and a few bytes of archive can unpack to a thousand times as many."""
_LIMIT = "1 GiB"


def sniff(path: Path) -> int:
    """Score how well a path fits: .npz files."""
    return sniff_files(path, suffixes=SUFFIXES)


def open(  # noqa: A001 - every format has an `open`
    path: Path, shapes: Sequence[TensorInfo] | None = None, run: RunSelection = ANY_RUN
) -> TensorSource:
    """Open one .npz file, or a folder of them, which is one sample per file."""
    return open_archives(path, suffixes=SUFFIXES, members=_members, run=run)


def _members(path: Path, archive: str) -> list[TensorPlace]:
    return [
        TensorPlace(
            f"{archive}/{member.name}",
            member.name.removesuffix(_MEMBER_SUFFIX),
            path,
            functools.partial(_probe, member),
            archive,
        )
        for member in list_members(path)
    ]


def _probe(member: Member, declared: Declared | None) -> Content:
    if not member.name.endswith(_MEMBER_SUFFIX):
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
