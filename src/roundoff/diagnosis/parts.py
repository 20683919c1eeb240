"""The parts of a network's outputs: slices of one tensor that different branches compute."""

from collections.abc import Iterator, Mapping
from typing import Any

from roundoff.diagnosis.loss import Part
from roundoff.graph.load import Model

__all__ = ["joined_slices", "output_parts"]

# What is only moved keeps its parts: as it is, with the axes in another order, or one value at a time.
_UNCHANGED = frozenset({"Identity", "Dropout", "Cast"})


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


def output_parts(model: Model, outputs: Mapping[str, tuple[int, ...]], shapes: Mapping[str, Any]) -> list[Part]:
    """What to tell apart at the outputs.

    Args:
        model: The float model.
        outputs: The outputs that hold numbers, with their shapes.
        shapes: Shapes of all tensors.
    """
    producers = {name: node for node in model.proto.graph.node for name in node.output}
    parts: list[Part] = []
    for name, shape in outputs.items():
        slices = list(_slices(name, len(shape), producers, shapes))
        parts += slices or [Part(name)]
    return parts


def _slices(output: str, rank: int, producers: Mapping[str, Any], shapes: Mapping[str, Any]) -> Iterator[Part]:
    """The slices of an output; none where it is not joined."""
    order = list(range(rank))
    node = producers.get(output)
    while node is not None and node.op_type in {*_UNCHANGED, "Transpose"}:
        if node.op_type == "Transpose":
            perm = next((list(each.ints) for each in node.attribute if each.name == "perm"), order[::-1])
            order = [perm[at] for at in order]
        node = producers.get(node.input[0])
    if node is None or node.op_type != "Concat":
        return
    found = joined_slices(node, shapes)
    if found is None:
        return
    axis, start = order.index(found[0]), 0
    for name, size in zip(node.input, found[1], strict=True):
        yield Part(output, axis, start, start + size, name)
        start += size
