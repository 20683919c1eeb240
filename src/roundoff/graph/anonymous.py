"""A model without any name, remark or text of its author: what it computes stays, what it is called does not."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roundoff.errors import BadInput
from roundoff.graph.load import Model, checked_model, is_external, weight_tensors
from roundoff.graph.nodes import STANDARD_DOMAINS, all_nodes, subgraphs
from roundoff.graph.weights import constant_value
from roundoff.messages.message import english

# Domains that everyone knows; others are names of someone's own.
_KNOWN_DOMAINS = (*STANDARD_DOMAINS, "ai.onnx.ml", "com.microsoft")
# Attributes of standard operations that hold texts of the author's: words, labels, patterns.
_OWN_TEXT = ("_strings", "_string", "stopwords", "tokenexp", "separators", "vocabulary")
_NAMED_PARTS = ("doc_string", "producer_name", "producer_version", "domain", "model_version")


@dataclass(frozen=True, slots=True)
class Anonymous:
    """An anonymous model and what things were called before.

    Attributes:
        model: The model.
        tensors: New name of each tensor.
        nodes: New name of each node.
        others: New name of everything else: sizes of axes, texts.
    """

    model: Model
    tensors: dict[str, str]
    nodes: dict[str, str]
    others: dict[str, str]


def anonymized(model: Model, *, like: Anonymous | None = None) -> Anonymous:
    """Rename all nodes and tensors, and remove every remark.

    Operations keep their names, which are those of ONNX; a node is called after its operation and place.

    Args:
        model: The model; it is not changed. Weights outside its file are taken in.
        like: Another model that was renamed: what is called alike in both gets the same name again.

    Raises:
        BadInput: It has functions or operations of its own, whose names would tell.
    """
    _check(model)
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    for tensor, original in zip(weight_tensors(proto), weight_tensors(model.proto), strict=True):
        if is_external(original):
            _take_in(tensor, original, model)
    renaming = _Renaming(like)
    renaming.model(proto)
    path = Path("model.onnx")
    found = checked_model(proto, path=path, size=proto.ByteSize())
    return Anonymous(found, renaming.tensors, renaming.nodes, renaming.others)


def texts_of(model: Model) -> Iterator[str]:
    """Every name and remark of a model that its author chose."""
    for message in _messages(model.proto):
        for field, value in message.ListFields():
            if field.type == field.TYPE_STRING and field.name not in ("op_type", "version"):
                yield from [value] if isinstance(value, str) else value
            elif field.name == "string_data":
                yield from (each.decode(errors="replace") for each in value)


def _messages(message: Any) -> Iterator[Any]:
    """A message of the format and all below it; operations' attributes count only where they hold graphs."""
    yield message
    for field, value in message.ListFields():
        if field.type != field.TYPE_MESSAGE:
            continue
        several = not hasattr(value, "ListFields")
        for each in value if several else [value]:
            if field.name in ("opset_import", "external_data"):
                continue
            if field.name == "attribute":
                for graph in ([each.g] if each.HasField("g") else []) + list(each.graphs):
                    yield from _messages(graph)
                if each.HasField("t"):
                    yield from _messages(each.t)
            else:
                yield from _messages(each)


def _check(model: Model) -> None:
    inline = english("inline them first: onnx.inliner.inline_local_functions(model)")
    if model.proto.functions:
        names = ", ".join(function.name for function in model.proto.functions[:3])
        raise BadInput(
            english(
                "{path} has functions of its own, whose names would tell: {names}.", path=model.path, names=names
            ),
            fix=inline,
        )
    foreign = {node.domain for node in all_nodes(model.proto.graph) if node.domain not in _KNOWN_DOMAINS}
    if foreign:
        what = english(
            "{path} has operations of the domain {foreign!r}, whose names would tell.",
            path=model.path,
            foreign=sorted(foreign)[0],
        )
        raise BadInput(what, fix=english("export the model with standard operations"))


def _take_in(tensor: Any, original: Any, model: Model) -> None:
    from onnx.numpy_helper import from_array

    values = constant_value(original, model)
    name = tensor.name
    tensor.CopyFrom(from_array(values, name))


class _Renaming:
    """Renames a model in place, the same name to the same everywhere."""

    def __init__(self, like: Anonymous | None) -> None:
        self.tensors: dict[str, str] = {} if like is None else dict(like.tensors)
        self.nodes: dict[str, str] = {} if like is None else dict(like.nodes)
        self.others: dict[str, str] = {} if like is None else dict(like.others)
        self._known = {} if like is None else like.nodes
        # Numbers go on behind those of the other model, so that no new name is one of its names.
        self._count = 0 if like is None else sum(1 for _ in all_nodes(like.model.proto.graph))

    def model(self, proto: Any) -> None:
        """Rename everything in a model."""
        for name in (*_NAMED_PARTS, "metadata_props", "training_info", "configuration"):
            if name in proto.DESCRIPTOR.fields_by_name:
                proto.ClearField(name)
        used = {node.domain for node in all_nodes(proto.graph)}
        kept = [entry for entry in proto.opset_import if entry.domain in STANDARD_DOMAINS or entry.domain in used]
        copies = [(entry.domain, entry.version) for entry in kept]
        del proto.opset_import[:]
        for domain, version in copies:
            proto.opset_import.add(domain=domain, version=version)
        for number, value in enumerate(proto.graph.input):
            self.tensors.setdefault(value.name, f"input_{number}")
        for number, value in enumerate(proto.graph.output):
            self.tensors.setdefault(value.name, f"output_{number}")
        self._graph(proto.graph)

    def _graph(self, graph: Any) -> None:
        graph.name = "graph"
        for name in ("doc_string", "quantization_annotation", "value_info", "metadata_props"):
            if name in graph.DESCRIPTOR.fields_by_name:
                graph.ClearField(name)
        for value in (*graph.input, *graph.output):
            self._value(value)
        for tensor in graph.initializer:
            self._tensor(tensor, "w")
        for sparse in graph.sparse_initializer:
            self._tensor(sparse.values, "w")
            self._tensor(sparse.indices, "w")
        for node in graph.node:
            self._node(node)

    def _value(self, value: Any) -> None:
        value.name = self._named(value.name, "t")
        for name in ("doc_string", "metadata_props"):
            if name in value.DESCRIPTOR.fields_by_name:
                value.ClearField(name)
        value.type.ClearField("denotation")
        for dim in value.type.tensor_type.shape.dim:
            dim.ClearField("denotation")
            if dim.dim_param:
                dim.dim_param = self._other(dim.dim_param, "d")

    def _tensor(self, tensor: Any, start: str) -> None:
        for name in ("doc_string", "metadata_props"):
            if name in tensor.DESCRIPTOR.fields_by_name:
                tensor.ClearField(name)
        if tensor.name:
            tensor.name = self._named(tensor.name, start)
        for place, text in enumerate(tensor.string_data):
            tensor.string_data[place] = self._other(text.decode(errors="replace"), "s").encode()

    def _node(self, node: Any) -> None:
        new = self._known.get(node.name) or f"{node.op_type}_{self._count}"
        self._count += 1
        # Nodes of subgraphs may have no name, or that of another one.
        if node.name:
            self.nodes.setdefault(node.name, new)
        node.name = new
        for name in ("doc_string", "metadata_props", "device_configurations", "overload"):
            if name in node.DESCRIPTOR.fields_by_name:
                node.ClearField(name)
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = self._named(name, "t") if name else ""
        for attribute in node.attribute:
            self._attribute(attribute, own_text=node.op_type == "Constant")
        for graph in subgraphs(node):
            self._graph(graph)

    def _attribute(self, attribute: Any, *, own_text: bool) -> None:
        attribute.ClearField("doc_string")
        for tensor in (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors):
            self._tensor(tensor, "w")
        if own_text or attribute.name.endswith(_OWN_TEXT):
            for place, text in enumerate(attribute.strings):
                attribute.strings[place] = self._other(text.decode(errors="replace"), "s").encode()
            if attribute.HasField("s"):
                attribute.s = self._other(attribute.s.decode(errors="replace"), "s").encode()

    def _named(self, name: str, start: str) -> str:
        return self.tensors.setdefault(name, f"{start}_{len(self.tensors)}")

    def _other(self, text: str, start: str) -> str:
        return self.others.setdefault(text, f"{start}{len(self.others)}")
