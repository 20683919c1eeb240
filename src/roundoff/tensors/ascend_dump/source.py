"""Dump files of a folder as named tensors: the newest of each operator, slices joined, in order of execution."""

import functools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.array_files import Unreadable, check_shape, map_bytes, stat_file
from roundoff.core.names import natural_key, shown
from roundoff.core.tensors import Array
from roundoff.core.untrusted import parse_json
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.tensors.ascend_dump.element_types import AscendType, element_type, values_of
from roundoff.tensors.ascend_dump.header import NOWHERE, Dump, DumpTensor, read_dump
from roundoff.tensors.ascend_dump.layouts import LaidOutValues, LayoutUndo, inverse_layout, restore
from roundoff.tensors.ascend_dump.names import (
    DumpName,
    TensorStatistics,
    logical_op,
    parse_dump_name,
    read_statistics,
    true_name,
)
from roundoff.tensors.folders import Arranged, TensorPlace, arrange_files, walk_files
from roundoff.tensors.stored import Content, Declared

# From a tensor's place in a dump file to its values, in the device's layout or in the original one.

_DECODED_BYTES = 8
_AGAIN = english("copy the dump from the device again, or leave this tensor out")


def device_shape(tensor: DumpTensor) -> tuple[int, ...]:
    """The shape of its values in the file: as declared, or as many as there are bytes when nothing is declared."""
    if tensor.element_type == "UNDEFINED" or (not tensor.shape and tensor.size > 0):
        kind = element_type(tensor.element_type)
        count = tensor.size * 8 // kind.bits
        return () if count == 1 and not tensor.shape else (count,)
    return tensor.shape


def map_tensor(path: Path, tensor: DumpTensor) -> Array:
    """Map the values of a tensor as the device laid them out; converted only where numpy has no such type.

    Raises:
        Unreadable: The file is too short for it, its type holds no numbers, or its shape is impossible.
    """
    kind, shape = _checked(path, tensor)
    count = math.prod(shape)
    raw = map_bytes(path, offset=tensor.offset, length=min(tensor.size, max(kind.bytes_for(count), count)))
    return values_of(kind, raw, count).reshape(shape)


def original_values(path: Path, tensor: DumpTensor) -> LaidOutValues:
    """The values of a tensor with the device's format undone."""
    return restore(map_tensor(path, tensor), _way(tensor))


def content_of(path: Path, tensor: DumpTensor) -> Content:
    """What is known of a tensor without reading its values, and how to read them.

    Raises:
        Unreadable: It cannot be read; see `map_tensor`.
    """
    kind, _ = _checked(path, tensor)
    return Content(kind.name, _way(tensor).shape, functools.partial(_load, path, tensor))


def _load(path: Path, tensor: DumpTensor) -> Array:
    return original_values(path, tensor).array


def _way(tensor: DumpTensor) -> LayoutUndo:
    return inverse_layout(
        tensor.format, device_shape(tensor), original=tensor.original_shape, groups=tensor.groups
    )


def _checked(path: Path, tensor: DumpTensor) -> tuple[AscendType, tuple[int, ...]]:
    kind = element_type(tensor.element_type)
    shape = device_shape(tensor)
    refuse = functools.partial(Unreadable, dtype=kind.name, shape=shape)
    if tensor.offset == NOWHERE:
        raise refuse(english("the device left it out of the dump"), fix=english("dump this operator again"))
    # Small types are decoded into wider ones.
    check_shape(np.dtype((np.void, max(_DECODED_BYTES, kind.bits // 8))), shape)
    needed = kind.bytes_for(math.prod(shape))
    if needed > tensor.size:
        what = english(
            "its header gives it {size} bytes, but {name} {shape} takes {needed}",
            size=tensor.size,
            name=kind.name,
            shape=list(shape),
            needed=needed,
        )
        raise refuse(what, fix=_AGAIN)
    there = stat_file(path) - tensor.offset
    if there < tensor.size:
        raise refuse(english("truncated: {max} of {size} bytes", max=max(0, there), size=tensor.size), fix=_AGAIN)
    return kind, shape


# Operators that ran in slices (FFTS+): their dumps put together along the axis that was cut.

_FIX = english("dump all slices again")


@dataclass(frozen=True, slots=True)
class Slice:
    """One file of a sliced operator."""

    path: Path
    dump: Dump


@dataclass(frozen=True, slots=True)
class SlicedTensor:
    """One input or output of a sliced operator.

    Attributes:
        places: Where its slices lie, in order.
        axis: The axis along which they were cut; None when every slice holds the whole.
        shapes: The shapes of the slices on the device.
    """

    places: Sequence[tuple[Path, DumpTensor]]
    axis: int | None
    shapes: Sequence[tuple[int, ...]]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole on the device."""
        first = self.shapes[0]
        if self.axis is None:
            return first
        return (*first[: self.axis], sum(shape[self.axis] for shape in self.shapes), *first[self.axis + 1 :])

    def load(self) -> Array:
        """Read and join the slices, as the device laid them out."""
        parts = [
            map_tensor(path, replace(tensor, shape=shape))
            for (path, tensor), shape in zip(self.places, self.shapes, strict=True)
        ]
        return parts[0] if self.axis is None else np.concatenate(parts, self.axis)


def cut_axes(dump: Dump, role: str) -> list[int | None]:
    """Along which axis each input or output was cut, as the dump's attribute says."""
    about = _attribute(dump)
    cuts = about.get(f"{role}CutList") or []
    axes: list[int | None] = []
    for cut in cuts if isinstance(cuts, list) else []:
        found = [place for place, parts in enumerate(cut) if parts != 1] if isinstance(cut, list) else []
        axes.append(found[0] if found else None)
    return axes


def merge(slices: Sequence[Slice], role: str, *, index: int, complete: bool = True) -> SlicedTensor:
    """One tensor of all slices.

    Args:
        slices: The files in the order of their threads or numbers.
        role: ``input`` or ``output``.
        index: Which one.
        complete: Refuse to join fewer slices than the dump speaks of.

    Raises:
        Unreadable: A slice lacks it, or the slices do not fit together.
    """
    first = slices[0].dump
    tensors = [_tensor(item, role, index) for item in slices]
    about = _attribute(first)
    expected = expected_slices(first)
    if complete and expected not in (None, len(slices)):
        what = english(
            "has {count} slices, but its dump speaks of {expected}", count=len(slices), expected=expected
        )
        raise Unreadable(what, fix=_FIX, shape=tensors[0].shape)
    axes = cut_axes(first, role)
    axis = axes[index] if index < len(axes) else _bounded_axis(about, role, index=index)
    shapes = [_slice_shape(about, role, tensor=tensor, thread=place) for place, tensor in enumerate(tensors)]
    if axis is None:
        axis = _differing(shapes)
    same = {shape[:axis] + shape[axis + 1 :] for shape in shapes} if axis is not None else set(shapes)
    if len(same) != 1 or (axis is not None and any(axis >= len(shape) for shape in shapes)):
        shown = " and ".join(str(list(shape)) for shape in dict.fromkeys(shapes))
        raise Unreadable(english("its slices {shown} do not fit together", shown=shown), fix=_FIX)
    return SlicedTensor([(item.path, tensor) for item, tensor in zip(slices, tensors, strict=True)], axis, shapes)


def sliced_content(slices: Sequence[Slice], role: str, index: int) -> Content:
    """What is known of a tensor of a sliced operator, and how to read it."""
    whole = merge(slices, role, index=index)
    tensor = whole.places[0][1]
    way = inverse_layout(tensor.format, whole.shape, original=tensor.original_shape, groups=tensor.groups)
    kind = element_type(tensor.element_type).name
    return Content(kind, way.shape, functools.partial(_restored, whole, way))


def _restored(whole: SlicedTensor, way: LayoutUndo) -> Array:
    return restore(whole.load(), way).array


def _tensor(item: Slice, role: str, index: int) -> DumpTensor:
    tensors = item.dump.inputs if role == "input" else item.dump.outputs
    if index >= len(tensors):
        raise Unreadable(
            english("its slice {name} has no {role} {index}", name=item.path.name, role=role, index=index),
            fix=_FIX,
        )
    return tensors[index]


def _slice_shape(about: dict[str, Any], role: str, *, tensor: DumpTensor, thread: int) -> tuple[int, ...]:
    """The shape of one slice: with automatic slicing the header has that of the whole."""
    declared = device_shape(tensor)
    if about.get("threadMode") is not True:
        return declared
    bounds = _bounds(about, role, index=tensor.index)
    shape = tuple(high - low for low, high in bounds[thread]) if thread < len(bounds) else ()
    possible = shape and all(size >= 0 for size in shape)
    takes = element_type(tensor.element_type).bytes_for(math.prod(shape))
    return shape if possible and takes <= tensor.size else declared


def _bounds(about: dict[str, Any], role: str, *, index: int) -> list[list[tuple[int, int]]]:
    """Where each thread's part of a tensor lies in the whole: begin and end along every axis."""
    try:
        threads = about[f"{role}_tensor_slice"]
        return [[(int(axis["lower"]), int(axis["higher"])) for axis in thread[index]] for thread in threads]
    except (KeyError, IndexError, TypeError, ValueError):
        return []


def _bounded_axis(about: dict[str, Any], role: str, *, index: int) -> int | None:
    """The axis along which the parts of the threads lie one behind the other."""
    bounds = _bounds(about, role, index=index)
    axes = zip(*bounds, strict=False)
    return next((place for place, axis in enumerate(axes) if len(set(axis)) > 1), None)


def expected_slices(dump: Dump) -> int | None:
    """How many slices the operator had, when its dump says so."""
    count = _attribute(dump).get("slice_instance_num")
    return count if isinstance(count, int) else None


def _differing(shapes: Sequence[tuple[int, ...]]) -> int | None:
    ranks = {len(shape) for shape in shapes}
    if len(ranks) != 1:
        return None
    return next((axis for axis in range(ranks.pop()) if len({shape[axis] for shape in shapes}) > 1), None)


def _attribute(dump: Dump) -> dict[str, Any]:
    text = next(iter(dump.attributes.values()), "")
    try:
        found = parse_json(text, dump) if text else {}
    except BadInput:
        return {}
    return found if isinstance(found, dict) else {}


_OVERFLOW = english("a record of an overflow, not a tensor")
_OUTSIDE = english("a link that leads out of the folder, which is not followed")
_READ_OVERFLOW = english("read it with: roundoff ascend overflow -d FOLDER -out FOLDER")


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
    units: list[TensorPlace] = []
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


def tensors_of(op: str, files: Sequence[DumpFile]) -> list[TensorPlace]:
    """The tensors of one operator: of its newest file, or of all its slices; older files are listed as such."""
    links = [
        _refused(dump, f"{op}.0", _OUTSIDE, fix=english("copy the file into the folder"))
        for dump in files
        if dump.outside
    ]
    files = [dump for dump in files if not dump.outside]
    return [*links, *(_inside(op, files) if files else ())]


def _inside(op: str, files: Sequence[DumpFile]) -> list[TensorPlace]:
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
            english("an older dump of the same operator; the one of {time} is used", time=newest.name.time),
            fix=english("move the newer file away"),
        )
        for dump in values[:-1]
    ]
    return [*_of_file(op, newest), *older]


def _of_file(op: str, dump: DumpFile) -> list[TensorPlace]:
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
    return units or [
        _refused(dump, f"{op}.0", english("holds no tensor"), fix=english("dump this operator again"))
    ]


def _of_slices(op: str, dumps: Sequence[DumpFile]) -> list[TensorPlace]:
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


def _of_statistics(op: str, dump: DumpFile) -> list[TensorPlace]:
    try:
        found = read_statistics(dump.path)
    except (Unreadable, OSError) as error:
        return [_failing(dump, f"{op}.0", error)]
    return [
        _refused(
            dump,
            f"{op}.{line.index}" if line.role == "output" else f"{op}.{line.role}.{line.index}",
            english("only statistics were dumped: {told}", told=_told(line)),
            fix=english('dump values, with "dump_data": "tensor" in acl.json'),
        )
        for line in found
    ]


def _told(line: TensorStatistics) -> str:
    odd = "".join(
        f", {count} {what}" for count, what in ((line.not_numbers, "NaN"), (line.infinities, "infinite")) if count
    )
    return english(
        "{minimum:.6g} to {maximum:.6g}, mean {mean:.6g}{odd}",
        minimum=line.minimum,
        maximum=line.maximum,
        mean=line.mean,
        odd=odd,
    )


def _tensor_name(op: str, tensor: DumpTensor) -> str:
    return f"{op}.{tensor.index}" if tensor.role == "output" else f"{op}.input.{tensor.index}"


def _of_tensor(
    dump: DumpFile, op: str, node: str, *, tensor: DumpTensor, content: Callable[[], Content]
) -> TensorPlace:
    """One input or output, with the output of the original model that the header says it is."""
    name, index = tensor.origin
    return replace(_unit(dump, _tensor_name(op, tensor), node, content), origin=f"{name}.{index}" if name else "")


def _unit(dump: DumpFile, name: str, node: str, content: Callable[[], Content]) -> TensorPlace:
    def probe(declared: Declared | None) -> Content:
        return content()

    return TensorPlace(dump.file, shown(name), dump.path, probe, node=node or dump.name.op)


def _refused(dump: DumpFile, name: str, problem: str, *, fix: str) -> TensorPlace:
    return _failing(dump, name, Unreadable(problem, fix=fix))


def _failing(dump: DumpFile, name: str, error: Unreadable | OSError) -> TensorPlace:
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
