"""A part of a model as a model of its own, with all it needs in one file."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.graph.interface import hidden_tensors, outputs
from roundoff.graph.load import MAPPED_BYTES, Model, checked_model, is_external
from roundoff.graph.nodes import by_dtype, producer_names, readers, reads
from roundoff.graph.save import add_declared
from roundoff.graph.shapes import Value
from roundoff.graph.units import derived_constants, with_constant_nodes
from roundoff.graph.weights import constant_value
from roundoff.messages.message import english

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelPart:
    """Some nodes of a model.

    Attributes:
        nodes: Their names, in execution order.
        reads: What they read of others: inputs of the model, and what other nodes compute.
        writes: What others read of theirs, and outputs of the model.
    """

    nodes: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


class ModelParts:
    """Cuts parts out of a model; constants, and the nodes that compute them, belong to every part that reads them.

    Args:
        model: The model.
        values: All its tensors, with their types.
    """

    def __init__(self, model: Model, values: Iterable[Value]) -> None:
        graph = model.proto.graph
        self._model = model
        self._values = {value.name: value for value in values}
        self.constant = derived_constants(graph)
        self._nodes = {node.name: node for node in graph.node}
        self.computing = tuple(
            node.name for node in graph.node if any(name and name not in self.constant for name in node.output)
        )
        self._readers = {name: {node.name for node in found} for name, found in readers(graph.node).items()}
        self._outputs = {value.name for value in graph.output}

    def part(self, nodes: Collection[str]) -> ModelPart:
        """What some nodes read and write."""
        chosen = [name for name in self.computing if name in nodes]
        inside = set(chosen)
        made = {name for node in chosen for name in self._nodes[node].output if name}
        read = dict.fromkeys(name for node in chosen for name in reads(self._nodes[node]))
        written = [
            name
            for node in chosen
            for name in self._nodes[node].output
            if name and (name in self._outputs or self._readers.get(name, set()) - inside)
        ]
        outside = tuple(name for name in read if name not in made and name not in self.constant)
        return ModelPart(tuple(chosen), outside, tuple(written))

    def can_be_fed(self, part: ModelPart) -> bool:
        """Whether all that a part reads are tensors of types that numpy has."""
        found = [self._values.get(name) for name in part.reads]
        return all(
            value is not None
            and value.kind == "tensor"
            and value.element is not None
            and value.element.widened == value.element.dtype
            for value in found
        )

    def model(self, part: ModelPart, shapes: Mapping[str, Shape] | None = None) -> Model:
        """A part as a model.

        Args:
            part: The part.
            shapes: Shapes of what it reads and writes, where they are always the same.
        """
        from onnx import ModelProto

        source = self._model.proto
        proto = ModelProto(
            ir_version=source.ir_version, opset_import=source.opset_import, functions=source.functions
        )
        graph = proto.graph
        graph.name = "part"
        makers = {name: node for name, node in producer_names(source.graph.node).items() if name in self.constant}
        nodes = with_constant_nodes(self._nodes, part.nodes, makers)
        graph.node.extend(nodes)
        for entries, names in ((graph.input, part.reads), (graph.output, part.writes)):
            for name in names:
                self._declare(entries.add(name=name), (shapes or {}).get(name))
        read = {name for node in nodes for name in reads(node)} | set(part.writes)
        for tensor in source.graph.initializer:
            if tensor.name in read:
                graph.initializer.append(self._whole(tensor))
        graph.sparse_initializer.extend(
            each for each in source.graph.sparse_initializer if each.values.name in read
        )
        return checked_model(proto, path=self._model.path, size=proto.ByteSize())

    def _declare(self, entry: Any, shape: Shape | None) -> None:
        value = self._values.get(entry.name)
        tensor = entry.type.tensor_type
        tensor.elem_type = value.element.number if value is not None and value.element is not None else 0
        if shape is not None:
            tensor.shape.SetInParent()
            for size in shape:
                tensor.shape.dim.add(dim_value=size)

    def _whole(self, tensor: Any) -> Any:
        from onnx.numpy_helper import from_array

        return from_array(constant_value(tensor, self._model), tensor.name) if is_external(tensor) else tensor


# Making intermediate tensors of a model readable from outside, without changing what it computes.


@dataclass(frozen=True, slots=True)
class TappedModel:
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


def tap(model: Model, tensors: Sequence[str], *, widen: Mapping[str, str] | None = None) -> TappedModel:
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
    return patch.tapped(names)


def tap_shapes(model: Model, tensors: Sequence[str]) -> TappedModel:
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
    return patch.tapped(names)


def detached(model: Model) -> TappedModel:
    """The model with its larger weights beside it, so that these are not serialized and read again."""
    from onnx import ModelProto

    source = model.proto
    light = ModelProto(ir_version=source.ir_version, opset_import=source.opset_import, functions=source.functions)
    graph = light.graph
    graph.name = source.graph.name
    for field_name in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(graph, field_name).extend(getattr(source.graph, field_name))
    constants = {**model.beside, **add_declared(graph, source.graph.initializer)}
    return TappedModel(light.SerializeToString(), tuple(value.name for value in graph.output), constants)


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

    def tapped(self, names: Sequence[str]) -> TappedModel:
        """The model with the additions; weights of a large one are not serialized, which takes them twice."""
        large, added = self._model.file_bytes >= MAPPED_BYTES, self._added.SerializeToString()
        if large:
            light = detached(self._model)
            return TappedModel(light.data + added, tuple(names), light.constants)
        return TappedModel(self._model.proto.SerializeToString() + added, tuple(names), self._model.beside)


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
                english(
                    "Tensor {tensor!r} is computed inside node {holder!r} and cannot be seen from outside.",
                    tensor=tensor,
                    holder=holder,
                ),
                fix=english("take the outputs of {holder!r} instead", holder=holder),
            )
        raise BadInput(
            english("{path} has no tensor {tensor!r}.", path=model.path, tensor=tensor),
            fix=nearest(tensor, sorted(known)),
        )
