"""Models with constants that are computed when they are written, so that they need not all fit in memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.element_types import ElementType, by_number
from roundoff.graph.external import stored_bytes
from roundoff.graph.load import Model

__all__ = ["LARGEST_MESSAGE_BYTES", "DeferredModel", "fill", "packed", "pending_bytes"]

LARGEST_MESSAGE_BYTES = 1_800_000_000
"""The format behind ONNX ends at 2 GiB for everything that is not kept in files of its own; some room is left."""


@dataclass(frozen=True, slots=True)
class DeferredModel:
    """A model and what some of its constants will be.

    Attributes:
        model: The initializers named in `arrays` have their type and shape, but no values.
        arrays: What computes these values, by name; each call reads and computes them anew.
    """

    model: Model
    arrays: Mapping[str, Callable[[], Array]] = field(default_factory=dict)


def pending_bytes(deferred: DeferredModel) -> int:
    """Size of all values that are not there yet."""
    graph = deferred.model.proto.graph
    return sum(stored_bytes(tensor) for tensor in graph.initializer if tensor.name in deferred.arrays)


def fill(deferred: DeferredModel) -> Model:
    """The model with all values in place. They are put into the given one, which is not to be used any more.

    Raises:
        BadInput: Together they are larger than one message of the format behind ONNX can be.
    """
    pending = pending_bytes(deferred)
    if pending > LARGEST_MESSAGE_BYTES:
        raise BadInput(
            f"The weights of {deferred.model.path} take {pending} bytes as codes, too many to run from memory.",
            fix="write the model to a file, where weights of any size go beside it, and run that",
        )
    for tensor in deferred.model.proto.graph.initializer:
        compute = deferred.arrays.get(tensor.name)
        if compute is not None:
            tensor.raw_data = packed(compute(), tensor)
    return deferred.model


def packed(values: Array, tensor: Any) -> bytes:
    """Values as the bytes of a model file.

    Args:
        values: Of any type that holds them; two elements of 4 bits share a byte, the first in its lower half.
        tensor: The `onnx.TensorProto` they are for.
    """
    element = by_number(tensor.data_type)
    if element is None:
        raise ValueError(f"{tensor.name!r} has the unknown element type {tensor.data_type}")
    if element.bits >= 8:
        return np.ascontiguousarray(values, dtype=_stored(element)).tobytes()
    halves = values.astype(np.int8).view(np.uint8).ravel() & 0xF
    if halves.size % 2:
        halves = np.append(halves, np.uint8(0))
    return (halves[0::2] | (halves[1::2] << 4)).tobytes()


def _stored(element: ElementType) -> np.dtype[Any]:
    return np.dtype(element.dtype).newbyteorder("<")
