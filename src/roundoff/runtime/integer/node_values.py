"""Values that nodes run one at a time hand on, with the types that numpy and Python do not tell."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.element_types import ElementType, by_dtype, by_session_name

__all__ = [
    "NonTensor",
    "declare",
    "holds_floats",
    "is_tensor",
    "narrow_element",
    "narrowed",
    "plain_value",
    "type_name",
    "widened",
]

_NESTED = re.compile(r"(tensor|seq|optional|map)\((.*)\)")
_FLOATS = re.compile(r"float|double")
_UNKNOWN = "tensor()"


@dataclass(frozen=True, slots=True, eq=False)
class NonTensor:
    """A sequence, an optional or a map.

    Python shows none of them with its whole type: an empty list has no elements to tell, and an optional tensor
    looks like a tensor, or like nothing.

    Attributes:
        value: What onnxruntime takes and gives.
        type_name: What onnxruntime calls its type.
    """

    value: Any
    type_name: str


def type_name(value: Any) -> str:
    """What onnxruntime calls the type of a value."""
    if isinstance(value, NonTensor):
        return value.type_name
    if isinstance(value, list):
        return f"seq({type_name(value[0]) if value else 'tensor(float)'})"
    dtype = np.asarray(value).dtype
    element = by_dtype("string" if dtype.kind in "OUS" else dtype.name)
    return f"tensor({element.session_name})" if element else _UNKNOWN


def is_tensor(name: str) -> bool:
    """Whether a type is that of a tensor."""
    return name.startswith("tensor(")


def holds_floats(value: Any) -> bool:
    """Whether a value is made of numbers of a float type."""
    return _FLOATS.search(type_name(value)) is not None


def narrow_element(name: str) -> ElementType | None:
    """The element type within a type if numpy does not have it; None when it has."""
    inner = re.search(r"tensor\((\w+)\)", name)
    element = by_session_name(inner.group(1)) if inner else None
    return element if element is not None and element.widened != element.dtype else None


def widened(value: Any) -> Any:
    """An array in a type that numpy has, without loss; anything else as it is."""
    if not isinstance(value, np.ndarray) or value.dtype.isbuiltin == 1:
        return value
    element = by_dtype(value.dtype.name)
    return value if element is None or element.widened == element.dtype else value.astype(element.widened)


def narrowed(array: Array, dtype: str) -> Array:
    """An array in a type that numpy may not have."""
    import ml_dtypes

    return array.astype(getattr(ml_dtypes, dtype, dtype), copy=False)


def plain_value(value: Any) -> Any:
    """A value as users read it: in types that numpy has, without the type beside it."""
    return value.value if isinstance(value, NonTensor) else widened(value)


def declare(declared: Any, name: str) -> bool:
    """Write a type that onnxruntime names into an `onnx.TypeProto`.

    Returns:
        False when a model cannot declare it.
    """
    found = _NESTED.fullmatch(name)
    if found is None:
        return False
    kind, inner = found.groups()
    if kind == "tensor":
        element = by_session_name(inner)
        declared.tensor_type.elem_type = element.number if element else 0
        return True
    if kind == "map":
        key, _, inner = inner.partition(",")
        element = by_session_name(key)
        declared.map_type.key_type = element.number if element else 0
        return declare(declared.map_type.value_type, inner)
    holder = declared.sequence_type if kind == "seq" else declared.optional_type
    return declare(holder.elem_type, inner)
