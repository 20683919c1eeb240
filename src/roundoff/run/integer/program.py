"""A model and its quantizers laid out for running: who needs what, quantized how, and until when."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from roundoff.core.quantizers import Consumer, Quantizer
from roundoff.graph.insertion import Edges
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.units import Units, derived_constants, units
from roundoff.graph.wiring import captured

__all__ = ["Program", "Step"]


@dataclass(frozen=True, slots=True)
class Step:
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

    def required(self, tensors: Collection[str], given: Collection[str], *, local: bool) -> list[Step]:
        """The nodes that must run for some tensors, in execution order.

        Args:
            tensors: What is asked for.
            given: What is known already; its nodes need not run unless asked for.
            local: Whether what is known is used wherever a unit begins; otherwise only inputs are.
        """
        wanted = {name for name in tensors if name in self.producer}
        chosen: list[Step] = []
        for step in reversed(self.steps):
            if wanted.isdisjoint(step.node.output):
                continue
            chosen.append(step)
            wanted.update(name for name in self._needed(step, given, local=local) if name in self.producer)
        return chosen[::-1]

    def _needed(self, step: Step, given: Collection[str], *, local: bool) -> list[str]:
        if not local:
            return list(step.needs)
        inside = {
            name
            for index, name in enumerate(step.node.input)
            if Consumer(step.node.name, index) in self.units.inside
        }
        return [name for name in step.needs if name in inside or name not in given]


def _is_constant(step: Step, constant: frozenset[str]) -> bool:
    return all(name in constant for name in step.node.output if name)


def _step(node: Any) -> Step:
    from onnx.helper import get_attribute_value

    attributes = {}
    for attribute in node.attribute:
        if attribute.HasField("g") or attribute.graphs:
            continue
        value = get_attribute_value(attribute)
        attributes[attribute.name] = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return Step(node, attributes, captured(node))
