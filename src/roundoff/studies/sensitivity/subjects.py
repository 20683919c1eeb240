"""What is switched: nodes, single quantizers, and groups that the user names."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from onnx import TensorProto

from roundoff.core.quantizers import Quantizer
from roundoff.errors import BadInput, nearest
from roundoff.graph.interface import hidden_tensors
from roundoff.graph.interface import outputs as model_outputs
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.messages.message import Message, message, some
from roundoff.studies.sensitivity.result import Subject, SubjectKind

__all__ = ["find_outputs", "find_subjects", "group_subject", "other_outputs", "switched_off"]

_MOST_NAMED = 5


def find_subjects(
    quantized: QuantizedModel,
    kinds: Sequence[SubjectKind],
    *,
    patterns: Sequence[str] = (),
    groups: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Subject, ...]:
    """All subjects of some kinds, each kind in execution order.

    A node is quantized by the quantizers on its inputs, whoever else reads those. Groups come in addition, whether
    or not their kind is asked for.

    Args:
        quantized: The model.
        kinds: Which kinds.
        patterns: Only subjects that one of these matches; see `group_subject`.
        groups: Names of groups, each with its patterns.

    Raises:
        BadInput: There is nothing to switch, or a pattern matches nothing.
    """
    index = _Index(quantized)
    chosen = None if not patterns else frozenset(name for pattern in patterns for name in index.match(pattern))
    found: list[Subject] = []
    for kind in dict.fromkeys(kinds):
        every = index.nodes() if kind == "node" else index.single(kind)
        found += [subject for subject in every if chosen is None or index.labels(subject) & chosen]
    found += [group_subject(quantized, name, members) for name, members in (groups or {}).items()]
    if found:
        return tuple(found)
    if not quantized.quantizers:
        raise BadInput(
            f"{quantized.float_model.path} has no quantizers, so there is nothing to switch.",
            fix="give a quantized model, or quantize it first with 'roundoff quantize'",
        )
    raise BadInput(
        f"Nothing of the kind {' or '.join(kinds)} is quantized{' among these nodes' if patterns else ''}.",
        fix=f"choose among these quantizers: {_few(each.name for each in quantized.quantizers)}",
    )


def group_subject(quantized: QuantizedModel, name: str, patterns: Sequence[str]) -> Subject:
    """Quantizers switched together.

    Args:
        quantized: The model.
        name: What to call the group.
        patterns: Names or globs of nodes (the quantizers on their inputs are meant), tensors or quantizers. A
            pattern that is exactly a name means only that; else ``*`` stands for any characters, ``?`` for one.

    Raises:
        BadInput: A pattern matches nothing, or nothing that is quantized.
    """
    index = _Index(quantized)
    members = frozenset(label for pattern in patterns for label in index.match(pattern))
    names = tuple(each.name for each in quantized.quantizers if not members.isdisjoint(index.labels_of(each)))
    return Subject(name, "group", names)


def switched_off(quantizers: Iterable[Quantizer], subject: Subject) -> tuple[Quantizer, ...]:
    """All quantizers but those of a subject."""
    off = frozenset(subject.quantizers)
    return tuple(each for each in quantizers if each.name not in off)


class _Index:
    """What names mean in a quantized model."""

    def __init__(self, quantized: QuantizedModel) -> None:
        self._quantized = quantized
        self._op_types = {node.name: node.op_type for node in quantized.float_model.proto.graph.node}
        self._on_inputs: dict[str, list[Quantizer]] = {}
        for quantizer in quantized.quantizers:
            for node in dict.fromkeys(consumer.node for consumer in quantizer.consumers):
                self._on_inputs.setdefault(node, []).append(quantizer)

    def nodes(self) -> list[Subject]:
        return [
            Subject(node, "node", tuple(each.name for each in self._on_inputs[node]), node, op_type)
            for node, op_type in self._op_types.items()
            if node in self._on_inputs
        ]

    def single(self, kind: SubjectKind) -> list[Subject]:
        return [
            Subject(each.name, kind, (each.name,), *self._first_reader(each), each.tensor)
            for each in self._quantized.quantizers
            if each.kind == kind
        ]

    def labels(self, subject: Subject) -> frozenset[str]:
        """What a pattern may call a subject."""
        if subject.kind == "node":
            return frozenset({subject.node})
        return self.labels_of(next(q for q in self._quantized.quantizers if q.name == subject.name))

    def labels_of(self, quantizer: Quantizer) -> frozenset[str]:
        """What a pattern may call a quantizer."""
        return frozenset({quantizer.name, quantizer.tensor, *(each.node for each in quantizer.consumers)})

    def match(self, pattern: str) -> list[str]:
        """The labels that a pattern matches."""
        known = dict.fromkeys(label for each in self._quantized.quantizers for label in self.labels_of(each))
        if pattern in known:
            return [pattern]
        found = [name for name in known if fnmatchcase(name, pattern)]
        if found:
            return found
        if pattern in self._op_types:
            what = f"Node {pattern!r} ({self._op_types[pattern]}) has no quantizer on its inputs."
            raise BadInput(what, fix=f"choose nodes that are quantized: {_few(self._on_inputs)}")
        what = f"{pattern!r} matches no quantized node, tensor or quantizer of {self._quantized.float_model.path}."
        raise BadInput(what, fix=nearest(pattern.strip("*?"), known))

    def _first_reader(self, quantizer: Quantizer) -> tuple[str, str]:
        node = quantizer.consumers[0].node if quantizer.consumers else ""
        return node, self._op_types.get(node, "")


def find_outputs(model: Model, names: Sequence[str]) -> tuple[str, ...]:
    """The tensors to compare: the model's outputs that are numbers, or those named, or the outputs of nodes named.

    Raises:
        BadInput: There is no tensor or node of that name.
    """
    graph = model.proto.graph
    if not names:
        every = tuple(dict.fromkeys(model_outputs(model)))
        numbers = {each.name for each in graph.output if _is_of_numbers(each.type)}
        return tuple(name for name in every if name in numbers) or every
    nodes = {node.name: [name for name in node.output if name] for node in graph.node}
    tensors = {value.name for value in graph.input} | {name for node in graph.node for name in node.output if name}
    found: dict[str, None] = {}
    for name in names:
        if name in tensors:
            found[name] = None
        elif name in nodes:
            found |= dict.fromkeys(nodes[name])
        else:
            holder = hidden_tensors(model).get(name)
            fix = (
                f"it is computed inside of node {holder!r}; take that"
                if holder
                else nearest(name, (*nodes, *tensors))
            )
            raise BadInput(f"{model.path} has no tensor or node {name!r} to compare at.", fix=fix)
    return tuple(found)


def other_outputs(model: Model, compared: Sequence[str]) -> list[Message]:
    """A note on the model's outputs that are no numbers and so are not compared; none when all are."""
    left = [name for name in dict.fromkeys(model_outputs(model)) if name not in frozenset(compared)]
    names = some(left, _MOST_NAMED, quoted=True)
    return [message("sensitivity.note_not_numbers", names=names, count=len(left))] if left else []


def _is_of_numbers(kind: Any) -> bool:
    if kind.WhichOneof("value") is None:
        return True
    return bool(kind.HasField("tensor_type") and kind.tensor_type.elem_type != TensorProto.STRING)


def _few(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _MOST_NAMED
    return ", ".join(listed[:_MOST_NAMED]) + (f" ... and {more} more" if more > 0 else "")
