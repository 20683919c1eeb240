"""Changing single nodes of a draft."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.preparation.draft import Draft

__all__ = ["CannotFold", "attribute", "change_constants", "set_attribute"]


class CannotFold(Exception):
    """A node stays as it is; the message says why."""


def change_constants(draft: Draft, changes: Sequence[tuple[Any, int, Array]], *, dtype_of: str) -> None:
    """Give inputs of nodes new constant values; other nodes that read the same constants keep the old ones.

    Args:
        draft: What the nodes are part of.
        changes: Nodes, which of their inputs, and the values in any float type.
        dtype_of: The constant whose type they get.

    Raises:
        CannotFold: They are not finite in that type, or do not fit into one file. Nothing is changed then.
    """
    dtype = draft.constant(dtype_of).dtype
    with np.errstate(over="ignore"):
        typed = [array.astype(dtype) for _, _, array in changes]
    if not all(np.isfinite(array).all() for array in typed):
        raise CannotFold(f"the result would not be finite in {dtype}")
    if not draft.has_room(sum(array.nbytes for array in typed)):
        raise CannotFold("the model would exceed one file")
    for (node, position, _), array in zip(changes, typed, strict=True):
        old = node.input[position] if len(node.input) > position else ""
        own = bool(old) and draft.read_once(old)
        name = old if own else draft.free_tensor(f"{old}_{node.name}" if old else f"{node.name}_bias")
        draft.set_constant(name, array)
        draft.set_input(node, position, name)


def attribute(node: Any, name: str, default: Any = None) -> Any:
    """The value of a node's attribute."""
    from onnx.helper import get_attribute_value

    found = next((each for each in node.attribute if each.name == name), None)
    return default if found is None else get_attribute_value(found)


def set_attribute(node: Any, name: str, value: Any) -> None:
    """Give a node's attribute a value; None takes it away."""
    from onnx.helper import make_attribute

    for index in reversed(range(len(node.attribute))):
        if node.attribute[index].name == name:
            del node.attribute[index]
    if value is not None:
        node.attribute.append(make_attribute(name, value))
