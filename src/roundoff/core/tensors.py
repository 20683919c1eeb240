"""Named tensors from anywhere: a dump folder, an archive or a live run all look alike."""

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "Array",
    "DType",
    "InputSpec",
    "NodeInfo",
    "TensorInfo",
    "TensorSource",
    "Topology",
]


Array: TypeAlias = npt.NDArray[Any]
DType: TypeAlias = np.dtype[Any]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What is known of a tensor without reading its values.

    Attributes:
        name: Its name in the source; unique there.
        dtype: numpy dtype name, e.g. ``float32``; empty when unknown.
        shape: Its shape in the first sample that holds it; empty tuple for a scalar.
        problem: Why it cannot be read ("truncated: 40 of 400 bytes"); empty when it can.
        node: The node that computes it, when the source knows.
        op_type: That node's operation, when the source knows.
        origin: What it was in the model that a compiler made the source's model from, when the source records it.
    """

    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    problem: str = ""
    node: str = ""
    op_type: str = ""
    origin: str = ""

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


class TensorSource(Protocol):
    """Lazily readable named tensors of one or more samples.

    Read sample by sample (all tensors of one sample, then the next): a live run holds one sample at a time,
    so reading in any other order is correct but runs the model again.
    """

    @property
    def label(self) -> str:
        """Where the tensors come from, as the user would name it; for messages."""
        ...

    @property
    def samples(self) -> tuple[str, ...]:
        """Sample names, at least one; a source that is not split by sample has the one name ``""``."""
        ...

    @property
    def tensors(self) -> tuple[TensorInfo, ...]:
        """All tensors, in execution order when `ordered`, else in a stable order."""
        ...

    @property
    def ordered(self) -> bool:
        """Whether `tensors` is known to be in execution order."""
        ...

    def read(self, name: str, sample: str) -> Array:
        """Values of one tensor in one sample, possibly memory-mapped; treat as read-only.

        Raises:
            BadInput: The tensor is missing from this sample, damaged, or of a type that is refused.
        """
        ...


@dataclass(frozen=True, slots=True)
class InputSpec:
    """What a model expects of one of its inputs.

    Attributes:
        name: The input's name.
        dtype: numpy dtype name.
        shape: One entry per axis: an int when fixed, a str when symbolic, None when unknown.
            ``None`` in place of the whole shape means that even the rank is unknown.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None

    def describe(self) -> str:
        """The expectation in words, e.g. ``float32 [N, 3, 224, 224]``."""
        if self.shape is None:
            return f"{self.dtype} of any shape"
        axes = ", ".join("?" if axis is None else str(axis) for axis in self.shape)
        return f"{self.dtype} [{axes}]"


# Who computes what from what: the shape of a network without its weights.


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """One operation. Optional inputs that are absent and constants are not listed."""

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """Nodes in execution order, and the tensors that enter and leave the network."""

    nodes: tuple[NodeInfo, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def producers(self) -> dict[str, NodeInfo]:
        """The node that computes each tensor; inputs of the network have none."""
        return {tensor: node for node in self.nodes for tensor in node.outputs}
