"""Samples as a run sees them, and the check that a sample fits the model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from roundoff.core.tensors import Array, InputSpec
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.shapes import Kind, Value
from roundoff.graph.subgraph import tap, tap_shapes
from roundoff.graph.wiring import by_session_name
from roundoff.run.session import open_session
from roundoff.samples.arrays import matches

__all__ = [
    "NO_INPUTS",
    "Samples",
    "check_feed",
    "complete_values",
]


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


# Finding out types and shapes that only a run can tell, without keeping any of the tensors.

# How onnxruntime writes the kinds of values, as in "seq(tensor(float))".
_KINDS: Mapping[str, Kind] = {
    "tensor": "tensor",
    "seq": "sequence",
    "optional": "optional",
    "map": "map",
    "sparse_tensor": "sparse_tensor",
}


def complete_values(
    model: Model, values: Sequence[Value], feed: Mapping[str, Array], *, threads: int | None = None
) -> tuple[Value, ...]:
    """Fill in what shape inference left open: types from a session, shapes from one run on `feed`.

    Raises:
        ModelFailed: The model cannot be opened or run.
    """
    found = {value.name: value for value in values}
    untyped = [value for value in values if value.kind == "tensor" and value.element is None]
    if untyped:
        session = open_session(model, outputs=tap(model, [value.name for value in untyped]), threads=threads)
        found |= {value.name: _typed(value, text) for value, text in zip(untyped, session.types, strict=True)}
    unshaped = [value for value in found.values() if not value.obstacle() and value.shape is None]
    if unshaped:
        taps = tap_shapes(model, [value.name for value in unshaped])
        shapes = open_session(model, outputs=taps, threads=threads).run(feed)
        found |= {
            value.name: replace(value, shape=tuple(map(int, shape)))
            for value, shape in zip(unshaped, shapes, strict=True)
        }
    return tuple(found.values())


def _typed(value: Value, session_type: str) -> Value:
    kind, _, element = session_type.partition("(")
    return replace(value, kind=_KINDS.get(kind, "opaque"), element=by_session_name(element.rstrip(")")))
