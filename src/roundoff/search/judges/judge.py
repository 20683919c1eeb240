"""What everything offers that candidates can be measured by."""

from collections.abc import Sequence
from typing import Protocol

from roundoff.core.tensors import Array
from roundoff.graph.load import Model

__all__ = ["Judge"]


class Judge(Protocol):
    """Measures networks on a fixed set of samples."""

    @property
    def name(self) -> str:
        """What the metric is called."""
        ...

    @property
    def higher_is_better(self) -> bool:
        """Which way it is better."""
        ...

    @property
    def total(self) -> int:
        """How many samples there are; 0 when only the user knows."""
        ...

    @property
    def by_sample(self) -> bool:
        """Whether the metric is a mean over samples, and any of them can be measured alone."""
        ...

    @property
    def limits(self) -> tuple[float, float] | None:
        """Smallest and largest value that a sample can have; None when that is not known."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader should know of how it measures."""
        ...

    def float_values(self) -> Array:
        """What the float network scores: of shape (samples,), or of shape () where samples have no values."""
        ...

    def measure(self, model: Model, indices: Sequence[int]) -> Array:
        """What a network scores on some samples: a value for each, or one for all where samples have none.

        Args:
            model: The network, quantizers among its nodes.
            indices: Which samples; all of them where samples have no values.

        Raises:
            BadInput: The user's function failed.
            ModelFailed: The network cannot be run.
        """
        ...

    def satisfied(self, float_score: float, score: float) -> tuple[bool, float] | None:
        """What the user's own rule says of a score, and the loss; None when there is no such rule."""
        ...
