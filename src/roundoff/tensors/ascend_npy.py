"""Folders of golden tensors as Ascend's tools name them, written by them or by roundoff."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from roundoff.core.array_files import Unreadable
from roundoff.core.names import natural_key
from roundoff.core.tensors import TensorInfo, TensorSource
from roundoff.tensors import npy
from roundoff.tensors.ascend_names import GoldenName, fits, parse_name, read_mapping
from roundoff.tensors.folders import LIKELY, is_tensor_file, walk_files
from roundoff.tensors.manifest import find_manifest
from roundoff.tensors.opening import open_folder
from roundoff.tensors.stored import Content, Declared
from roundoff.tensors.units import Arranged, TensorPlace, arrange_files

__all__ = ["open", "sniff"]


def sniff(path: Path) -> int:
    """Score how well a path fits: a folder without manifest, most of whose .npy files are named in this way."""
    if not path.is_dir() or find_manifest(path) is not None:
        return 0
    return LIKELY if fits(walk_files(path)) else 0


def open(path: Path, shapes: Sequence[TensorInfo] | None = None) -> TensorSource:  # noqa: A001 - every format has an `open`
    """Open such a folder; tensors are called ``op_name.output_index`` unless tensors.json knows better."""
    if is_tensor_file(path):
        return npy.open(path)
    return open_folder(path, list_units=npy.list_units, arrange=_arrange, kind="golden .npy files")


@dataclass(frozen=True, slots=True)
class _Golden:
    """A file with its place, its parsed name (through the mapping), and the tensor it holds."""

    unit: TensorPlace
    name: GoldenName

    @property
    def tensor(self) -> str:
        return f"{self.unit.home}/{self.name.op}.{self.name.index}".removeprefix("/")


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
            f"an older dump of the same output; the one of {newest.name.timestamp} is used",
            fix=f"read {newest.tensor!r}, or move the newer file away",
        )

    return replace(item.unit, name=f"{item.tensor}@{item.name.timestamp}", probe=probe, node=item.name.op)
