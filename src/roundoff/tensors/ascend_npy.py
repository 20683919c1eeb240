"""Folders of golden tensors as Ascend's tools name them, written by them or by roundoff."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from roundoff.core.array_files import Unreadable
from roundoff.core.files import read_small
from roundoff.core.names import natural_key
from roundoff.core.tensors import TensorInfo, TensorSource
from roundoff.messages.message import english
from roundoff.tensors import npy
from roundoff.tensors.folders import LIKELY, Arranged, TensorPlace, arrange_files, is_tensor_file, walk_files
from roundoff.tensors.manifest import find_manifest
from roundoff.tensors.sources import ANY_RUN, RunSelection, open_folder
from roundoff.tensors.stored import Content, Declared

MAPPING_NAME = "mapping.csv"
"""Lines of ``file,original_file_name`` for files whose true name is too long for the disk."""

MAX_NAME_BYTES = 254
"""From 255 bytes on the tools take a number for the name and note the true one in the mapping."""

NOT_IN_OP_NAME = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that become ``_``; a dot would end the op name for the tools."""

_NAME = re.compile(r"(?P<op>.+)\.(?P<index>[0-9]{1,9})\.(?P<time>[0-9]{1,255})\.npy", re.DOTALL)
_NUMBERED = re.compile(r"([0-9]+)(?:\.npy)?")
# Seconds since 1970 have ten digits; the tools write microseconds. Less is an index, not a time.
_TIME_DIGITS = 10


@dataclass(frozen=True, slots=True)
class GoldenName:
    """The three fields of a golden file's name."""

    op: str
    index: int
    timestamp: int


def parse_name(file_name: str) -> GoldenName | None:
    """Split a file name into its fields; None when it is not of this kind."""
    match = _NAME.fullmatch(file_name)
    return GoldenName(match["op"], int(match["index"]), int(match["time"])) if match else None


def fits(files: Iterable[str]) -> bool:
    """Whether most .npy files among these paths are named in this way, with a time in the last field."""
    names = [file.rpartition("/")[2] for file in files if file.lower().endswith(".npy")]
    golden = [name for name in names if (match := _NAME.fullmatch(name)) and len(match["time"]) >= _TIME_DIGITS]
    return len(golden) * 2 > len(names)


def read_mapping(folder: Path) -> dict[str, str]:
    """Read which numbered files of a folder stand for which over-long names; nothing when there is no mapping."""
    path = folder / MAPPING_NAME
    if not path.is_file():
        return {}
    lines = read_small(path, what=english("The mapping")).decode(errors="replace").splitlines()
    pairs = (line.split(",", 1) for line in lines if "," in line)
    return {
        f"{number[1]}.npy": original.strip().strip('"')
        for file, original in pairs
        if (number := _NUMBERED.fullmatch(file.strip().strip('"')))
    }


def sniff(path: Path) -> int:
    """Score how well a path fits: a folder without manifest, most of whose .npy files are named in this way."""
    if not path.is_dir() or find_manifest(path) is not None:
        return 0
    return LIKELY if fits(walk_files(path)) else 0


def open(  # noqa: A001 - every format has an `open`
    path: Path, shapes: Sequence[TensorInfo] | None = None, run: RunSelection = ANY_RUN
) -> TensorSource:
    """Open such a folder; tensors are called ``op_name.output_index`` unless tensors.json knows better."""
    if is_tensor_file(path):
        return npy.open(path, run=run)
    return open_folder(
        path, list_units=npy.list_units, arrange=_arrange, kind=english("golden .npy files"), run=run
    )


@dataclass(frozen=True, slots=True)
class _Golden:
    """A file with its place, its parsed name (through the mapping), and the tensor it holds."""

    unit: TensorPlace
    name: GoldenName

    @property
    def tensor(self) -> str:
        return f"{self.unit.name.rpartition('/')[0]}/{self.name.op}.{self.name.index}".removeprefix("/")


def _arrange(units: Sequence[TensorPlace]) -> Arranged:
    golden, others = _parse(units)
    newest: dict[str, _Golden] = {}
    for item in sorted(golden, key=lambda item: item.name.timestamp):
        newest[item.tensor] = item
    in_order = not others and _times_tell(newest.values())
    listed = sorted(
        newest.values(),
        key=lambda item: (item.name.timestamp if in_order else 0, natural_key(item.tensor)),
    )
    named = [replace(item.unit, name=item.tensor, node=item.name.op) for item in listed]
    older = [_outdated(item, newest[item.tensor]) for item in golden if item is not newest[item.tensor]]
    return replace(arrange_files([*named, *others, *older]), ordered=in_order)


def _parse(units: Sequence[TensorPlace]) -> tuple[list[_Golden], list[TensorPlace]]:
    """Tell golden files from other .npy files, which keep the names of their paths."""
    mappings = {folder: read_mapping(folder) for folder in {unit.path.parent for unit in units}}
    golden: list[_Golden] = []
    others: list[TensorPlace] = []
    for unit in units:
        original = mappings[unit.path.parent].get(unit.path.name, unit.path.name)
        if name := parse_name(original):
            golden.append(_Golden(unit, name))
        else:
            others.append(unit)
    return golden, others


def _times_tell(golden: Collection[_Golden]) -> bool:
    """Whether the timestamps show the order of execution: no two ops of a folder were written at the same time."""
    moments = {(item.unit.home, item.name.timestamp) for item in golden}
    ops = {(item.unit.home, item.name.timestamp, item.name.op) for item in golden}
    return len(golden) > 1 and len(ops) == len(moments) and len(moments) > 1


def _outdated(item: _Golden, newest: _Golden) -> TensorPlace:
    def probe(declared: Declared | None) -> Content:
        raise Unreadable(
            english(
                "an older dump of the same output; the one of {timestamp} is used", timestamp=newest.name.timestamp
            ),
            fix=english("read {tensor!r}, or move the newer file away", tensor=newest.tensor),
        )

    return replace(item.unit, name=f"{item.tensor}@{item.name.timestamp}", probe=probe, node=item.name.op)
