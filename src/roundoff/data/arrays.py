"""Samples that are in memory already."""

from collections.abc import Mapping

from roundoff.core.tensors import Array
from roundoff.errors import BadInput

__all__ = ["ArraySamples"]


class ArraySamples:
    """Arrays as samples: the first axis of each counts them, and stays as a batch axis of one.

    Args:
        arrays: The values of every input; all with the same number of samples.
        label: Where they come from, for messages.

    Raises:
        BadInput: There are no samples, or not equally many for all inputs.
    """

    def __init__(self, arrays: Mapping[str, Array], *, label: str = "arrays") -> None:
        counts = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
        if not counts or len(set(counts.values())) > 1 or 0 in counts.values():
            said = ", ".join(f"{name!r}: {count}" for name, count in counts.items()) or "none at all"
            what = f"Every input needs the same number of samples along its first axis, but there are {said}."
            raise BadInput(what, fix="stack the samples of each input with numpy.stack")
        self._arrays = arrays
        self._label = label
        self._names = tuple(map(str, range(next(iter(counts.values())))))

    @property
    def label(self) -> str:
        """Where they come from."""
        return self._label

    @property
    def names(self) -> tuple[str, ...]:
        """The samples, by their numbers."""
        return self._names

    def feed(self, index: int) -> Mapping[str, Array]:
        """The values of one sample."""
        return {name: array[index : index + 1] for name, array in self._arrays.items()}
