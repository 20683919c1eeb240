"""Outputs that are no tensors of numbers: what they are, and whether two of them are the same."""

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["same_output", "without_numbers"]


def without_numbers(output: Any) -> str:
    """Why an output of a run cannot be measured; empty when it is a tensor of numbers or truth values."""
    if not isinstance(output, np.ndarray):
        return "it is a sequence or map, not a tensor" if isinstance(output, list | dict) else "it holds nothing"
    return "" if output.dtype.kind in "fiub" else "it holds text, not numbers"


def same_output(ours: Any, theirs: Any) -> bool:
    """Whether two outputs that are no tensors of numbers are equal, to the last element."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same_output, ours, theirs))
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return ours.keys() == theirs.keys() and all(same_output(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray):
        return np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == theirs.dtype.kind == "f")
    return bool(ours == theirs)
