"""Named arrays of a program as a source of tensors."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from roundoff.core.tensors import Array, TensorInfo
from roundoff.errors import BadInput, nearest

__all__ = ["MappingSource"]

_ONLY = ""


class MappingSource:
    """Arrays by name; they stand in the order of the mapping, which need not be that of execution.

    Args:
        arrays: The arrays.
        label: Where they come from, for messages.

    Raises:
        BadInput: There are none, or one is no array of numbers.
    """

    def __init__(self, arrays: Mapping[str, Any], *, label: str = "arrays") -> None:
        if not arrays:
            raise BadInput(f"{label} is an empty dictionary.", fix="give at least one array, by its name")
        self._arrays: dict[str, Array] = {}
        for name, given in arrays.items():
            try:
                array = np.asarray(given)
            except (TypeError, ValueError, RuntimeError) as error:
                text = " ".join(str(error).split())
                what = f"{label}: {name!r} is no array: {text}."
                raise BadInput(what, fix="give numpy arrays of numbers") from error
            if not isinstance(name, str) or array.dtype.kind not in "biufc":
                what = f"{label}: {name!r} is of type {type(given).__name__} ({array.dtype.name})."
                raise BadInput(what, fix="give numpy arrays of numbers, by their names")
            self._arrays[name] = array
        self.label = label
        self.samples: tuple[str, ...] = (_ONLY,)
        self.ordered = False
        self.tensors = tuple(TensorInfo(name, each.dtype.name, each.shape) for name, each in self._arrays.items())

    def read(self, name: str, sample: str) -> Array:
        """The values of one of them."""
        if name not in self._arrays:
            raise BadInput(f"{self.label} has no tensor {name!r}.", fix=nearest(name, self._arrays))
        return self._arrays[name]
