"""The parts of a network's outputs: slices of one tensor that different branches compute.

Next to boxes in hundreds of pixels, scores between 0 and 1 could vanish without a trace in the energy of all:
whoever judges outputs judges their parts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.graph.wiring import producers

__all__ = ["OutputPart", "joined_slices", "output_parts"]


@dataclass(frozen=True, slots=True)
class OutputPart:
    """An output of a network, or a slice of it.

    Attributes:
        output: The output.
        axis: Axis of the slice; None for all of it.
        start: Where the slice starts.
        stop: Where it ends.
        source: What it is called: the output, or the tensor that the slice is.
    """

    output: str
    axis: int | None = None
    start: int = 0
    stop: int = 0
    source: str = ""

    def of(self, array: Array) -> Array:
        """Its elements."""
        if self.axis is None:
            return array
        place = [slice(None)] * array.ndim
        place[self.axis] = slice(self.start, self.stop)
        return array[tuple(place)]


# What is only moved keeps its parts: as it is, with the axes in another order, or with others joined or split.
_UNCHANGED = frozenset({"Identity", "Dropout", "Cast"})
_RESHAPING = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})


def joined_slices(node: Any, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, tuple[int, ...]] | None:
    """Axis and sizes of what a Concat joins; None where they are not known.

    Args:
        node: The Concat.
        shapes: Shapes of tensors by name.
    """
    found = [shapes.get(name) for name in node.input]
    known = [shape for shape in found if shape]
    if len(known) < len(found):
        return None
    axis = next((each.i for each in node.attribute if each.name == "axis"), 0) % len(known[0])
    return axis, tuple(shape[axis] for shape in known)


def output_parts(
    model: Model, outputs: Mapping[str, tuple[int, ...]], shapes: Mapping[str, Any]
) -> list[OutputPart]:
    """What to tell apart at the outputs.

    Args:
        model: The float model.
        outputs: The outputs that hold numbers, with their shapes.
        shapes: Shapes of all tensors.
    """
    made_by = producers(model.proto.graph.node)
    parts: list[OutputPart] = []
    known = {**shapes, **outputs}
    for name in outputs:
        slices = list(_slices(name, made_by, known))
        parts += slices or [OutputPart(name)]
    return parts


def _slices(output: str, made_by: Mapping[str, Any], shapes: Mapping[str, Any]) -> Iterator[OutputPart]:
    """The slices of an output; none where it is not joined."""
    moved = []
    node = made_by.get(output)
    while node is not None and node.op_type in {*_UNCHANGED, *_RESHAPING, "Transpose"}:
        moved.append(node)
        node = made_by.get(node.input[0])
    found = joined_slices(node, shapes) if node is not None and node.op_type == "Concat" else None
    if node is None or found is None:
        return
    axis: int | None = found[0]
    for each in reversed(moved):
        axis = None if axis is None else _moved_axis(each, axis, shapes)
    if axis is None:
        return
    start = 0
    for name, size in zip(node.input, found[1], strict=True):
        yield OutputPart(output, axis, start, start + size, name)
        start += size


def _moved_axis(node: Any, axis: int, shapes: Mapping[str, Any]) -> int | None:
    """Where a node puts an axis; None where it does not stay one."""
    before, after = shapes.get(node.input[0]), shapes.get(node.output[0])
    if node.op_type in _UNCHANGED:
        return axis
    if before is None or after is None:
        return None
    if node.op_type == "Transpose":
        order = next((list(each.ints) for each in node.attribute if each.name == "perm"), None)
        return (order or list(range(len(before)))[::-1]).index(axis)
    ahead = prod(before[:axis])
    same = (at for at, size in enumerate(after) if size == before[axis] and prod(after[:at]) == ahead)
    return next(same, None)
