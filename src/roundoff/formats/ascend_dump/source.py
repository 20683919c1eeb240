"""Dump files of a folder as named tensors: the newest of each operator, slices joined, in order of execution."""

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from roundoff.core.names import natural_key, shown
from roundoff.core.unreadable import Unreadable
from roundoff.formats.ascend_dump.header import read_dump
from roundoff.formats.ascend_dump.names import DumpName, logical_op, parse_dump_name, true_name
from roundoff.formats.ascend_dump.schema import DumpTensor
from roundoff.formats.ascend_dump.slices import Slice, sliced_content
from roundoff.formats.ascend_dump.statistics import TensorStatistics, read_statistics
from roundoff.formats.ascend_dump.values import content_of
from roundoff.formats.folders import walk_files
from roundoff.formats.stored import Content, Declared
from roundoff.formats.units import Arranged, Unit, arrange_files

__all__ = ["DumpFile", "arrange_dumps", "list_dumps", "tensors_of"]

_OVERFLOW = "a record of an overflow, not a tensor"
_OUTSIDE = "a link that leads out of the folder, which is not followed"
_READ_OVERFLOW = "read it with: roundoff ascend overflow -d FOLDER -out FOLDER"


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A file that is named like a dump.

    Attributes:
        path: The file.
        file: Its path below the folder that was given.
        name: The fields of its name, or of the over-long name that it stands for.
        outside: Whether it is a link to a place outside that folder, and so is not read.
    """

    path: Path
    file: str
    name: DumpName
    outside: bool = False

    @property
    def home(self) -> str:
        """The folder it lies in, below the one that was given."""
        return self.file.rpartition("/")[0]


def list_dumps(folder: Path) -> list[DumpFile]:
    """List the dump files below a folder, in the order in which they were written."""
    found = []
    root = os.path.realpath(folder)
    mappings: dict[Path, dict[str, str]] = {}
    for file in walk_files(folder):
        path = folder / file
        name = parse_dump_name(true_name(path, mappings))
        if name is not None:
            inside = Path(os.path.realpath(path)).is_relative_to(root)
            found.append(DumpFile(path, file, name, outside=not inside))
    return sorted(found, key=lambda dump: (dump.name.time, natural_key(dump.file)))


def arrange_dumps(dumps: Sequence[DumpFile]) -> Arranged:
    """Name the tensors of all files; folders that hold the same operators are samples."""
    common = _common([dump.home for dump in dumps])
    units: list[Unit] = []
    types: list[str] = []
    groups: dict[tuple[str, str], list[DumpFile]] = {}
    for dump in dumps:
        op = logical_op(dump.name.op) if dump.name.sliced else dump.name.op
        groups.setdefault((dump.home, op), []).append(dump)
    ordered = sorted(groups.items(), key=lambda item: item[1][-1].name.time)
    for (home, op), files in ordered:
        below = f"{home[len(common) :].strip('/')}/".removeprefix("/")
        for unit in tensors_of(op, files):
            units.append(replace(unit, name=f"{below}{unit.name}"))
            types.append(files[-1].name.op_type)
    arranged = arrange_files(units)
    # arrange_files keeps the order of its units.
    stored = [replace(place, op_type=kind) for place, kind in zip(arranged.stored, types, strict=True)]
    return replace(arranged, stored=stored, ordered=_times_tell(list(groups.values())))


def tensors_of(op: str, files: Sequence[DumpFile]) -> list[Unit]:
    """The tensors of one operator: of its newest file, or of all its slices; older files are listed as such."""
    links = [
        _refused(dump, f"{op}.0", _OUTSIDE, fix="copy the file into the folder") for dump in files if dump.outside
    ]
    files = [dump for dump in files if not dump.outside]
    return [*links, *(_inside(op, files) if files else ())]


def _inside(op: str, files: Sequence[DumpFile]) -> list[Unit]:
    newest = files[-1]
    if newest.name.overflow:
        return [_refused(dump, f"{op}@{dump.name.time}", _OVERFLOW, fix=_READ_OVERFLOW) for dump in files]
    if newest.name.statistics:
        return [unit for dump in files for unit in _of_statistics(op, dump)]
    values = [dump for dump in files if not dump.name.statistics]
    if newest.name.sliced:
        return _of_slices(op, [dump for dump in values if dump.name.sliced])
    older = [
        _refused(
            dump,
            f"{op}@{dump.name.time}",
            f"an older dump of the same operator; the one of {newest.name.time} is used",
            fix="move the newer file away",
        )
        for dump in values[:-1]
    ]
    return [*_of_file(op, newest), *older]


def _of_file(op: str, dump: DumpFile) -> list[Unit]:
    try:
        header = read_dump(dump.path)
    except (Unreadable, OSError) as error:
        return [_failing(dump, f"{op}.0", error)]
    units = [
        _of_tensor(
            dump, op, header.op_name, tensor=tensor, content=functools.partial(content_of, dump.path, tensor)
        )
        for tensor in header.tensors
    ]
    return units or [_refused(dump, f"{op}.0", "holds no tensor", fix="dump this operator again")]


def _of_slices(op: str, dumps: Sequence[DumpFile]) -> list[Unit]:
    latest = {(dump.name.thread, dump.name.piece): dump for dump in dumps}
    ordered = sorted(latest.values(), key=lambda dump: (dump.name.piece, dump.name.thread))
    try:
        slices = [Slice(dump.path, read_dump(dump.path)) for dump in ordered]
    except (Unreadable, OSError) as error:
        return [_failing(ordered[0], f"{op}.0", error)]
    node = logical_op(slices[0].dump.op_name)
    return [
        _of_tensor(
            ordered[0],
            op,
            node,
            tensor=tensor,
            content=functools.partial(sliced_content, slices, tensor.role, tensor.index),
        )
        for tensor in slices[0].dump.tensors
    ]


def _of_statistics(op: str, dump: DumpFile) -> list[Unit]:
    try:
        found = read_statistics(dump.path)
    except (Unreadable, OSError) as error:
        return [_failing(dump, f"{op}.0", error)]
    return [
        _refused(
            dump,
            f"{op}.{line.index}" if line.role == "output" else f"{op}.{line.role}.{line.index}",
            f"only statistics were dumped: {_told(line)}",
            fix='dump values, with "dump_data": "tensor" in acl.json',
        )
        for line in found
    ]


def _told(line: TensorStatistics) -> str:
    odd = "".join(
        f", {count} {what}" for count, what in ((line.not_numbers, "NaN"), (line.infinities, "infinite")) if count
    )
    return f"{line.minimum:.6g} to {line.maximum:.6g}, mean {line.mean:.6g}{odd}"


def _tensor_name(op: str, tensor: DumpTensor) -> str:
    return f"{op}.{tensor.index}" if tensor.role == "output" else f"{op}.input.{tensor.index}"


def _of_tensor(dump: DumpFile, op: str, node: str, *, tensor: DumpTensor, content: Callable[[], Content]) -> Unit:
    """One input or output, with the output of the original model that the header says it is."""
    name, index = tensor.origin
    return replace(_unit(dump, _tensor_name(op, tensor), node, content), origin=f"{name}.{index}" if name else "")


def _unit(dump: DumpFile, name: str, node: str, content: Callable[[], Content]) -> Unit:
    def probe(declared: Declared | None) -> Content:
        return content()

    return Unit(dump.file, shown(name), dump.path, probe, node=node or dump.name.op)


def _refused(dump: DumpFile, name: str, problem: str, *, fix: str) -> Unit:
    return _failing(dump, name, Unreadable(problem, fix=fix))


def _failing(dump: DumpFile, name: str, error: Unreadable | OSError) -> Unit:
    def fail() -> Content:
        raise error

    return _unit(dump, name, dump.name.op, fail)


def _common(homes: Sequence[str]) -> str:
    """The path that all folders begin with."""
    parts = [home.split("/") for home in set(homes)]
    shared: list[str] = []
    for names in zip(*parts, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return "/".join(shared)


def _times_tell(groups: Sequence[Sequence[DumpFile]]) -> bool:
    """Whether timestamps show the order of execution: no two operators of a folder were written at one time."""
    moments = {(files[-1].home, files[-1].name.time) for files in groups}
    return len(groups) > 1 and len(moments) == len(groups)
