"""Making intermediate tensors of a model readable from outside, without changing what it computes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.graph.beside import add_declared
from roundoff.graph.element_types import by_dtype
from roundoff.graph.interface import hidden_tensors, outputs
from roundoff.graph.load import Model

__all__ = ["Taps", "detached", "tap", "tap_shapes"]


@dataclass(frozen=True, slots=True)
class Taps:
    """A model with more outputs than it had.

    Attributes:
        data: The model, serialized.
        outputs: The output that carries each tensor asked for, in the order asked.
        constants: Values of initializers that the model declares as external data and has nowhere; the session
            gets them beside it, so that they need not be serialized and read again.
    """

    data: bytes
    outputs: tuple[str, ...]
    constants: Mapping[str, Array] = field(default_factory=dict)


def tap(model: Model, tensors: Sequence[str], *, widen: Mapping[str, str] | None = None) -> Taps:
    """Add tensors to the outputs of a model.

    Args:
        model: The model; its own outputs stay.
        tensors: Any tensors of the main graph, its inputs, outputs and weights included.
        widen: Tensors to cast first, with the dtype to cast to; for types numpy does not have.

    Raises:
        BadInput: There is no such tensor, or it is inside a subgraph.
    """
    from onnx.helper import make_node

    _check_known(model, tensors)
    patch, names = _Patch(model), []
    for tensor in tensors:
        kind = by_dtype(widen[tensor]) if widen and tensor in widen else None
        if kind is None:
            names.append(patch.add_output(tensor))
        else:
            name = f"{tensor}//{kind.dtype}"
            names.append(patch.add_output(name, make_node("Cast", [tensor], [name], to=kind.number)))
    return Taps(patch.serialize(), tuple(names), model.beside)


def tap_shapes(model: Model, tensors: Sequence[str]) -> Taps:
    """Add the shapes of tensors to the outputs of a model, so that they can be known at no cost in memory.

    Raises:
        BadInput: There is no such tensor, or it is inside a subgraph.
    """
    from onnx.helper import make_node

    _check_known(model, tensors)
    patch = _Patch(model)
    names = [f"{tensor}//shape" for tensor in tensors]
    for tensor, name in zip(tensors, names, strict=True):
        patch.add_output(name, make_node("Shape", [tensor], [name]))
    return Taps(patch.serialize(), tuple(names), model.beside)


def detached(model: Model) -> Taps:
    """The model with its larger weights beside it, so that these are not serialized and read again."""
    from onnx import ModelProto

    source = model.proto
    light = ModelProto(ir_version=source.ir_version, opset_import=source.opset_import, functions=source.functions)
    graph = light.graph
    graph.name = source.graph.name
    for field_name in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(graph, field_name).extend(getattr(source.graph, field_name))
    constants = {**model.beside, **add_declared(graph, source.graph.initializer)}
    return Taps(light.SerializeToString(), tuple(value.name for value in graph.output), constants)


class _Patch:
    """Additions to a model that leave the model itself alone.

    Serialized messages that follow one another are read as one, with their lists joined (protobuf defines this).
    """

    def __init__(self, model: Model) -> None:
        from onnx import ModelProto

        self._model = model
        self._added = ModelProto()
        self._outputs = set(outputs(model))

    def add_output(self, name: str, node: Any = None) -> str:
        if node is not None:
            self._added.graph.node.append(node)
        if name not in self._outputs:
            self._added.graph.output.add(name=name)
            self._outputs.add(name)
        return name

    def serialize(self) -> bytes:
        return bytes(self._model.proto.SerializeToString() + self._added.SerializeToString())


def _check_known(model: Model, tensors: Sequence[str]) -> None:
    graph = model.proto.graph
    known = {value.name for value in (*graph.input, *graph.initializer)}
    known.update(name for node in graph.node for name in node.output if name)
    for tensor in tensors:
        if tensor in known:
            continue
        holder = hidden_tensors(model).get(tensor)
        if holder is not None:
            raise BadInput(
                f"Tensor {tensor!r} is computed inside node {holder!r} and cannot be seen from outside.",
                fix=f"take the outputs of {holder!r} instead",
            )
        raise BadInput(f"{model.path} has no tensor {tensor!r}.", fix=nearest(tensor, sorted(known)))
