"""What the stages of matching exchange: tensors under a name, and pairs of them."""

from dataclasses import dataclass

from roundoff.core.pairing import Layout, MatchedBy
from roundoff.core.tensors import TensorInfo

__all__ = ["Match", "Named"]


@dataclass(frozen=True, slots=True)
class Named:
    """A tensor under one of the names it goes by.

    Attributes:
        index: Its place in the source.
        name: That name.
        info: What is known of it.
    """

    index: int
    name: str
    info: TensorInfo


@dataclass(frozen=True, slots=True)
class Match:
    """A pair of tensors, by index on both sides; the rest as in `TensorPair`."""

    reference: int
    candidate: int
    how: MatchedBy
    confidence: float = 1.0
    layout: Layout | None = None
