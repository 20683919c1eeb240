"""Samples as a run sees them, and the check that a sample fits the model."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from roundoff.core.tensors import Array, InputSpec
from roundoff.data.fit import matches
from roundoff.errors import BadInput

__all__ = ["NO_INPUTS", "Samples", "check_feed"]


class Samples(Protocol):
    """Samples of a model's inputs, read one at a time."""

    @property
    def label(self) -> str:
        """Where they come from, as the user would name it."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Sample names, unique, at least one."""
        ...

    def feed(self, index: int) -> Mapping[str, Array]:
        """The value of every input in one sample."""
        ...


class _NoInputs:
    label = "no inputs"
    names = ("",)

    def feed(self, index: int) -> Mapping[str, Array]:
        return {}


NO_INPUTS: Samples = _NoInputs()
"""The one sample of a model that takes none."""


def check_feed(feed: Mapping[str, Array], specs: Sequence[InputSpec], *, sample: str) -> None:
    """Refuse a sample that the model cannot take.

    Raises:
        BadInput: Naming the sample, the input, what is expected and what was given.
    """
    known = [spec.name for spec in specs]
    for name in feed:
        if name not in known:
            what = f"Sample {sample!r} has a value for {name!r}, which is not an input of the model."
            raise BadInput(what, fix=f"the model's inputs are: {', '.join(map(repr, known))}")
    for spec in specs:
        if spec.name not in feed:
            what = f"Sample {sample!r} has no value for input {spec.name!r} ({spec.describe()})."
            raise BadInput(what, fix=f"add data for {spec.name!r}")
        if not _fits(feed[spec.name], spec):
            array = feed[spec.name]
            got = f"{array.dtype.name} [{', '.join(map(str, array.shape))}]"
            raise BadInput(
                f"Sample {sample!r}: input {spec.name!r} must be {spec.describe()}, got {got}.",
                fix="give data of that type and shape",
            )


def _fits(array: Array, spec: InputSpec) -> bool:
    return array.dtype.name == spec.dtype and (spec.shape is None or matches(array.shape, spec.shape))
