"""A model and its quantizers laid out for running: who needs what, quantized how, and until when."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from roundoff.core.quantizers import Consumer, Quantizer
from roundoff.errors import BadInput, ModelFailed
from roundoff.graph.insertion import Edges
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.nodes import captured, subgraphs
from roundoff.graph.subgraph import tap
from roundoff.graph.units import Units, derived_constants, units
from roundoff.messages.message import english
from roundoff.run.integer.call import (
    NonTensor,
    declare,
    is_tensor,
    narrow_element,
    narrowed,
    plain_value,
    type_name,
)
from roundoff.run.session import Session, open_session


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """One node in execution order.

    Attributes:
        node: The `onnx.NodeProto`.
        attributes: Its attributes by name, without subgraphs; text as str.
        captured: Tensors its subgraphs take from outside; some may be inputs too.
    """

    node: Any
    attributes: Mapping[str, Any]
    captured: tuple[str, ...]

    @property
    def needs(self) -> tuple[str, ...]:
        """Everything it reads."""
        return tuple(dict.fromkeys(name for name in (*self.node.input, *self.captured) if name))


class Program:
    """The fixed facts of a model with quantizers.

    Attributes:
        model: The model.
        edges: Which quantizer each node input reads.
        constant: Tensors that are the same in every run.
        units: Which nodes are computed as one.
        steps: Nodes that compute something from the inputs, in execution order.
        constant_steps: The node that computes each constant that is not stored.

    Raises:
        BadInput: A quantizer names what the model does not have.
    """

    def __init__(self, model: Model, quantizers: Sequence[Quantizer]) -> None:
        self.model = model
        graph = model.proto.graph
        self.edges = Edges(model, quantizers)
        self.constant = derived_constants(graph)
        self.units: Units = units(model, quantizers)
        every = [step for step in map(_step, graph.node) if step.node.op_type != "Constant"]
        self.steps = [step for step in every if not _is_constant(step, self.constant)]
        self.constant_steps = {
            name: step for step in every if _is_constant(step, self.constant) for name in step.node.output if name
        }
        self.outputs = frozenset(outputs(model))
        self.producer = {name: step for step in self.steps for name in step.node.output if name}

    @cached_property
    def read_plain(self) -> frozenset[str]:
        """Tensors that something reads without quantizing them."""
        found: set[str] = set()
        for step in self.steps:
            found.update(step.captured)
            for index, name in enumerate(step.node.input):
                if name and self.edges.read_by(step.node.name, index) is None:
                    found.add(name)
        return frozenset(found)

    @cached_property
    def within_units(self) -> frozenset[str]:
        """Tensors that units hand on within themselves."""
        nodes = {step.node.name: step.node for step in self.steps}
        return frozenset(nodes[edge.node].input[edge.input] for edge in self.units.inside)

    @cached_property
    def opset(self) -> int:
        """Version of the standard operators."""
        versions = {entry.domain: entry.version for entry in self.model.proto.opset_import}
        return int(versions.get("", versions.get("ai.onnx", 1)))

    @cached_property
    def tensors(self) -> frozenset[str]:
        """Everything that can be asked for: inputs, constants and what nodes compute."""
        graph = self.model.proto.graph
        return frozenset((*(value.name for value in graph.input), *self.constant, *self.producer))

    def reported(self, tensor: str) -> Quantizer | None:
        """The quantizer through which a tensor is reported: the first that quantizes its float values.

        An output of the network is reported as it leaves it.
        """
        if tensor in self.outputs:
            return self.edges.leaving.get(tensor)
        found = next(iter(self.edges.of_tensor(tensor)), None)
        while found is not None and (before := self.edges.before(found)) is not None:
            found = before
        return found

    def required(self, tensors: Collection[str], given: Collection[str], *, local: bool) -> list[ProgramStep]:
        """The nodes that must run for some tensors, in execution order.

        Args:
            tensors: What is asked for.
            given: What is known already; its nodes need not run unless asked for.
            local: Whether what is known is used wherever a unit begins; otherwise only inputs are.
        """
        wanted = {name for name in tensors if name in self.producer}
        chosen: list[ProgramStep] = []
        for step in reversed(self.steps):
            if wanted.isdisjoint(step.node.output):
                continue
            chosen.append(step)
            wanted.update(name for name in self._needed(step, given, local=local) if name in self.producer)
        return chosen[::-1]

    def _needed(self, step: ProgramStep, given: Collection[str], *, local: bool) -> list[str]:
        if not local:
            return list(step.needs)
        inside = {
            name
            for index, name in enumerate(step.node.input)
            if Consumer(step.node.name, index) in self.units.inside
        }
        return [name for name in step.needs if name in inside or name not in given]


def _is_constant(step: ProgramStep, constant: frozenset[str]) -> bool:
    return all(name in constant for name in step.node.output if name)


def _step(node: Any) -> ProgramStep:
    from onnx.helper import get_attribute_value

    attributes = {}
    for attribute in node.attribute:
        if attribute.HasField("g") or attribute.graphs:
            continue
        value = get_attribute_value(attribute)
        attributes[attribute.name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return ProgramStep(node, attributes, captured(node))


# Every session has threads of its own, so only operations that are worth it get more than one.
_HEAVY = frozenset({"Attention", "Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN"})
_FIX = english("use --mode reference, which runs the model as a whole")


class _Opened(NamedTuple):
    """A session for one node, and the types of the node's outputs, which it may give widened."""

    session: Session
    types: tuple[str, ...]


class SingleNodes:
    """Runs nodes of a model one at a time; a session is opened once for each node and types of inputs.

    Args:
        model: The model.
        threads: Threads of nodes with much to compute; all cores by default.
    """

    def __init__(self, model: Model, threads: int | None) -> None:
        self._model, self._threads = model, threads
        self._opened: dict[tuple[str, tuple[str, ...]], _Opened] = {}

    def run(self, node: Any, inputs: Sequence[Any], captured: Mapping[str, Any] | None = None) -> list[Any]:
        """Outputs of a node, those without a name left out.

        Tensors are arrays, also of types that numpy does not have; everything else is a `NonTensor`.

        Args:
            node: The `onnx.NodeProto`.
            inputs: A value for each of its inputs; None for an absent one.
            captured: Values that its subgraphs take from outside.

        Raises:
            BadInput: It takes or gives values that cannot leave a session.
            ModelFailed: onnxruntime cannot compute it.
        """
        given = {f"input {index}": value for index, value in enumerate(inputs) if value is not None}
        given |= captured or {}
        types = {name: type_name(value) for name, value in given.items()}
        key = node.name, tuple(f"{name}:{kind}" for name, kind in types.items())
        try:
            if key not in self._opened:
                self._opened[key] = self._open(node, types)
            opened = self._opened[key]
            results = opened.session.run({_fed(name, types[name]): plain_value(given[name]) for name in given})
        except ModelFailed as error:
            raise ModelFailed(
                english(
                    "Node {name!r} ({op_type}): {what}", name=node.name, op_type=node.op_type, what=error.what
                ),
                fix=error.fix,
            ) from error
        return [_typed(result, kind) for result, kind in zip(results, opened.types, strict=True)]

    def _open(self, node: Any, types: Mapping[str, str]) -> _Opened:
        outputs = [name for name in node.output if name]
        model = Model(_alone(self._model.proto, node, types), self._model.path, 0)
        threads = self._threads if node.op_type in _HEAVY or next(subgraphs(node), None) is not None else 1
        session = open_session(model, outputs=tap(model, outputs), threads=threads, keep_memory=False)
        widen = {}
        for name, kind in zip(outputs, session.types, strict=True):
            element = narrow_element(kind)
            if element is not None and not is_tensor(kind):
                raise _cannot_pass(node, kind)
            if element is not None:
                widen[name] = element.widened
        types_given = session.types
        if widen:
            taps = tap(model, outputs, widen=widen)
            session = open_session(model, outputs=taps, threads=threads, keep_memory=False)
        return _Opened(session, types_given)


def _alone(source: Any, node: Any, types: Mapping[str, str]) -> Any:
    """A model of one node; what numpy has no type for enters it widened and is narrowed there."""
    from onnx import ModelProto, ValueInfoProto
    from onnx.helper import make_node

    proto = ModelProto(ir_version=source.ir_version, opset_import=source.opset_import)
    proto.functions.extend(source.functions)
    for name, kind in types.items():
        element, fed = narrow_element(kind), _fed(name, kind)
        wide = kind if element is None else type_name(np.empty(0, element.widened))
        if not declare(proto.graph.input.add(name=fed).type, wide):
            raise _cannot_pass(node, kind)
        if element is not None:
            proto.graph.node.append(make_node("Cast", [fed], [name], to=element.number))
    alone = proto.graph.node.add()
    alone.CopyFrom(node)
    for index in range(len(alone.input)):
        name = f"input {index}"
        alone.input[index] = name if name in types else ""
    proto.graph.output.extend([ValueInfoProto(name=name) for name in node.output if name])
    return proto


def _fed(name: str, kind: str) -> str:
    """What the input is called through which a value enters the model of one node."""
    return name if narrow_element(kind) is None else f"{name}//wide"


def _typed(result: Any, kind: str) -> Any:
    if not is_tensor(kind):
        return NonTensor(result, kind)
    element = narrow_element(kind)
    return result if element is None else narrowed(result, element.dtype)


def _cannot_pass(node: Any, kind: str) -> BadInput:
    what = english(
        "Node {name!r} ({op_type}) handles a value of type {kind}, which cannot leave a session.",
        name=node.name,
        op_type=node.op_type,
        kind=kind,
    )
    return BadInput(what, fix=_FIX)
