"""Finding out types and shapes that only a run can tell, without keeping any of the tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from roundoff.core.tensors import Array
from roundoff.graph.element_types import by_session_name
from roundoff.graph.load import Model
from roundoff.graph.shapes import Kind, Value
from roundoff.graph.tap import tap, tap_shapes
from roundoff.runtime.session import open_session

__all__ = ["complete_values"]

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
