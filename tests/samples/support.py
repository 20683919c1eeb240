"""Small helpers for the tests of samples."""

from pathlib import Path

import numpy as np
import pytest

from roundoff.core.tensors import Array, InputSpec
from roundoff.errors import BadInput


def spec(name: str, *shape: int | str | None, dtype: str = "float32") -> InputSpec:
    return InputSpec(name, dtype, shape)


def values(*shape: int, start: int = 0, dtype: str = "float32") -> Array:
    """Numbers that tell every element apart."""
    return (np.arange(np.prod(shape, dtype=int)) + start).reshape(shape).astype(dtype)


def save(path: Path, array: Array) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, array)
    else:
        path.write_bytes(array.tobytes())
    return path


def complaint(caught: pytest.ExceptionInfo[BadInput], *parts: str, fix: str = "") -> None:
    """Check that an error says all of `parts`, and how to go on."""
    for part in parts:
        assert part in caught.value.what
    assert fix in caught.value.fix
    assert caught.value.fix
