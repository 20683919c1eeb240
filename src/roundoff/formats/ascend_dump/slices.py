"""Operators that ran in slices (FFTS+): their dumps put together along the axis that was cut."""

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.core.unreadable import Unreadable
from roundoff.formats.ascend_dump.element_types import element_type
from roundoff.formats.ascend_dump.layouts import Way, restore, way_back
from roundoff.formats.ascend_dump.schema import Dump, DumpTensor
from roundoff.formats.ascend_dump.values import device_shape, map_tensor
from roundoff.formats.stored import Content

__all__ = ["Slice", "SlicedTensor", "cut_axes", "expected_slices", "merge", "sliced_content"]

_FIX = "dump all slices again"


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
        what = f"has {len(slices)} slices, but its dump speaks of {expected}"
        raise Unreadable(what, fix=_FIX, shape=tensors[0].shape)
    axes = cut_axes(first, role)
    axis = axes[index] if index < len(axes) else _bounded_axis(about, role, index=index)
    shapes = [_slice_shape(about, role, tensor=tensor, thread=place) for place, tensor in enumerate(tensors)]
    if axis is None:
        axis = _differing(shapes)
    same = {shape[:axis] + shape[axis + 1 :] for shape in shapes} if axis is not None else set(shapes)
    if len(same) != 1 or (axis is not None and any(axis >= len(shape) for shape in shapes)):
        shown = " and ".join(str(list(shape)) for shape in dict.fromkeys(shapes))
        raise Unreadable(f"its slices {shown} do not fit together", fix=_FIX)
    return SlicedTensor([(item.path, tensor) for item, tensor in zip(slices, tensors, strict=True)], axis, shapes)


def sliced_content(slices: Sequence[Slice], role: str, index: int) -> Content:
    """What is known of a tensor of a sliced operator, and how to read it."""
    whole = merge(slices, role, index=index)
    tensor = whole.places[0][1]
    way = way_back(tensor.format, whole.shape, original=tensor.original_shape, groups=tensor.groups)
    kind = element_type(tensor.element_type).name
    return Content(kind, way.shape, functools.partial(_restored, whole, way))


def _restored(whole: SlicedTensor, way: Way) -> Array:
    return restore(whole.load(), way).array


def _tensor(item: Slice, role: str, index: int) -> DumpTensor:
    tensors = item.dump.inputs if role == "input" else item.dump.outputs
    if index >= len(tensors):
        raise Unreadable(f"its slice {item.path.name} has no {role} {index}", fix=_FIX)
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
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
