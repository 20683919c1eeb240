"""What computes one tensor of a device from others that it wrote, as a small model that can be changed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roundoff.core.quantizers import Quantizer, fake_quantize
from roundoff.core.tensors import Array
from roundoff.errors import RoundoffError
from roundoff.graph.load import Model, checked_model
from roundoff.graph.nodes import by_dtype, set_attribute, subgraphs
from roundoff.graph.patterns import attributes
from roundoff.graph.weights import Weights
from roundoff.messages.message import Message
from roundoff.run.session import open_session

# More constants than these are not copied for every way to be tried: 64 MB of float.
_MOST_CONSTANTS = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class DeviceKernel:
    """Some nodes that compute one tensor; changes give another one.

    Attributes:
        model: Where the nodes come from: its opsets and functions count.
        nodes: The nodes (`onnx.NodeProto`) in execution order; they are shared and never changed in place.
        constants: Values that they read, as the device holds them.
        reads: Tensors that they read.
        tensor: What they compute.
    """

    model: Model
    nodes: tuple[Any, ...]
    constants: Mapping[str, Array]
    reads: tuple[str, ...]
    tensor: str

    def node(self, name: str) -> Any:
        """The node of this name."""
        return next(each for each in self.nodes if each.name == name)

    def with_constant(self, name: str, values: Array) -> "DeviceKernel":
        """The same with other values of a constant."""
        kept = values.astype(self.constants[name].dtype) if name in self.constants else values
        return replace(self, constants={**self.constants, name: np.ascontiguousarray(kept)})

    def with_attributes(self, name: str, **changes: Any) -> "DeviceKernel":
        """The same with other attributes of a node."""

        def change(node: Any) -> None:
            for key, value in changes.items():
                set_attribute(node, key, value)

        return self._with_node(name, change)

    def with_inputs(self, name: str, inputs: Sequence[str]) -> "DeviceKernel":
        """The same with other inputs of a node."""

        def change(node: Any) -> None:
            node.input[:] = inputs

        return self._with_node(name, change)

    def with_outputs(self, name: str, outputs: Sequence[str]) -> "DeviceKernel":
        """The same with other names of what a node computes."""

        def change(node: Any) -> None:
            node.output[:] = outputs

        return self._with_node(name, change)

    def with_type(
        self, name: str, op_type: str, inputs: Sequence[str] | None = None, **named: Any
    ) -> "DeviceKernel":
        """The same with another operation in the place of a node: of its attributes only those given."""
        from onnx import helper

        old = self.node(name)
        given = list(old.input) if inputs is None else list(inputs)
        made = helper.make_node(op_type, given, list(old.output), name=name, **named)
        return replace(self, nodes=tuple(made if each.name == name else each for each in self.nodes))

    def before(
        self, name: str, position: int, op_type: str, more: Sequence[str] = (), **named: Any
    ) -> "DeviceKernel":
        """The same with one more node between a node and one of its inputs."""
        from onnx import helper

        old = self.node(name)
        between = f"{name}/before{len(self.nodes)}"
        added = helper.make_node(op_type, [old.input[position], *more], [between], name=between, **named)
        inputs = [between if at == position else each for at, each in enumerate(old.input)]
        changed = self.with_inputs(name, inputs)
        place = next(at for at, each in enumerate(changed.nodes) if each.name == name)
        return replace(changed, nodes=(*changed.nodes[:place], added, *changed.nodes[place:]))

    def behind(self, name: str, steps: Sequence[tuple[str, Sequence[str], Mapping[str, Any]]]) -> "DeviceKernel":
        """The same with more nodes between a node and who reads its first output.

        Args:
            name: The node.
            steps: Operation, inputs and attributes of each; the input ``$`` is the step before, ``$0`` what the
                node itself computes.
        """
        from onnx import helper

        old = self.node(name)
        last = old.output[0]
        first = f"{name}/plain"

        def change(node: Any) -> None:
            node.output[0] = first

        changed = self._with_node(name, change)
        before, added = first, []
        for number, (op_type, inputs, named) in enumerate(steps):
            result = last if number == len(steps) - 1 else f"{name}/behind{number}"
            read = [{"$": before, "$0": first}.get(each, each) for each in inputs]
            added.append(helper.make_node(op_type, read, [result], name=f"{name}/behind{number}", **named))
            before = result
        place = next(at for at, each in enumerate(changed.nodes) if each.name == name)
        return replace(changed, nodes=(*changed.nodes[: place + 1], *added, *changed.nodes[place + 1 :]))

    def _with_node(self, name: str, change: Callable[[Any], object]) -> "DeviceKernel":
        from onnx import NodeProto

        copy = NodeProto()
        copy.CopyFrom(self.node(name))
        change(copy)
        return replace(self, nodes=tuple(copy if each.name == name else each for each in self.nodes))

    def run(
        self, feeds: Sequence[Mapping[str, Array]], *, tensors: Sequence[str] = ()
    ) -> list[dict[str, Array]] | None:
        """What it computes of each feed: its tensor, or others; None where it cannot be computed."""
        asked = list(tensors) or [self.tensor]
        try:
            session = open_session(self._model(feeds[0], asked), threads=1)
            return [
                dict(zip(asked, session.run({name: feed[name] for name in self.reads}), strict=True))
                for feed in feeds
            ]
        except RoundoffError:
            return None

    def _model(self, feed: Mapping[str, Array], asked: Sequence[str]) -> Model:
        from onnx import GraphProto, ModelProto, ValueInfoProto, numpy_helper

        source = self.model.proto
        graph = GraphProto(name="kernel", node=self.nodes)
        for name in self.reads:
            entry = graph.input.add(name=name).type.tensor_type
            element = by_dtype(feed[name].dtype.name)
            entry.elem_type = 1 if element is None else element.number
            # The shape is fixed by the feed; kernels for one shape need not ask for it.
            entry.shape.SetInParent()
            for size in feed[name].shape:
                entry.shape.dim.add(dim_value=size)
        graph.output.extend(ValueInfoProto(name=name) for name in asked)
        graph.initializer.extend(numpy_helper.from_array(each, name) for name, each in self.constants.items())
        proto = ModelProto(
            ir_version=source.ir_version, opset_import=source.opset_import, functions=source.functions
        )
        proto.graph.CopyFrom(graph)
        return checked_model(proto, path=self.model.path, size=proto.ByteSize())


@dataclass(frozen=True, slots=True, eq=False)
class KernelNode:
    """One node of a kernel, with what it reads and computes in one sample.

    Attributes:
        kernel: The kernel.
        node: The node.
        values: Tensors of one sample by name; those inside of the kernel, too.
        lowest: Where the codes of tensors begin, as far as they are known.
    """

    kernel: DeviceKernel
    node: Any
    values: Mapping[str, Array]
    lowest: Mapping[str, float]

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.node.name)

    @property
    def op(self) -> str:
        """Its operation, as texts call it."""
        return str(self.node.op_type)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of its inputs; empty where one is left out."""
        return tuple(self.node.input)

    @property
    def attributes(self) -> dict[str, Any]:
        """Its attributes by name."""
        return attributes(self.node)

    @property
    def result(self) -> Array:
        """Its first output."""
        return self.values[self.node.output[0]]

    def value(self, position: int) -> Array | None:
        """An input; None where it is left out."""
        name = self.inputs[position] if position < len(self.inputs) else ""
        return self.kernel.constants.get(name, self.values.get(name)) if name else None

    def constant(self, position: int) -> Array | None:
        """An input that is a constant; None where it is something else."""
        name = self.inputs[position] if position < len(self.inputs) else ""
        return self.kernel.constants.get(name)

    def with_input(self, position: int, values: Array) -> DeviceKernel:
        """The kernel with other values of a constant input, for this node alone."""
        name = f"{self.name}/input{position}"
        inputs = [name if at == position else each for at, each in enumerate(self.inputs)]
        kept = values.astype(self.kernel.constants[self.inputs[position]].dtype)
        return self.kernel.with_constant(name, kept).with_inputs(self.name, inputs)

    def with_attributes(self, **changes: Any) -> DeviceKernel:
        """The kernel with other attributes of this node."""
        return self.kernel.with_attributes(self.name, **changes)


@dataclass(frozen=True, slots=True, eq=False)
class WrongKernel:
    """One way to compute it wrongly.

    Attributes:
        text: What the kernel does.
        kernel: What it computes.
        node: Which node does so.
    """

    text: Message
    kernel: DeviceKernel
    node: str


Ways = Callable[[KernelNode], Iterator[tuple[Message, DeviceKernel]]]

KERNELS: dict[str, list[Ways]] = {}
"""Ways to compute an operation wrongly, by its type; ``*`` for any."""


def wrong(*op_types: str) -> Callable[[Ways], Ways]:
    """Declare ways to compute operations of some types wrongly."""

    def declared(ways: Ways) -> Ways:
        for op_type in op_types:
            KERNELS.setdefault(op_type, []).append(ways)
        return ways

    return declared


def cut_kernel(
    model: Model,
    tensor: str,
    *,
    nodes: Sequence[str],
    known: Callable[[str], bool],
    quantizers: Sequence[Quantizer] = (),
) -> DeviceKernel | None:
    """What computes a tensor from known ones, constants rounded as their quantizers say; None if it is too large.

    Args:
        model: The float model.
        tensor: The tensor.
        nodes: Names of the nodes that compute it.
        known: Whether a tensor is known.
        quantizers: How constants are coded.
    """
    weights = Weights(model)
    wanted = set(nodes)
    chosen = [node for node in model.proto.graph.node if node.name in wanted and node.op_type != "Constant"]
    made = {name for node in chosen for name in node.output if name}
    read = dict.fromkeys(name for node in chosen for name in node.input if name)
    constants = [name for name in read if name in weights]
    if any(True for node in chosen for _ in subgraphs(node)):
        return None
    if sum(int(np.prod(weights.shape(name))) for name in constants) > _MOST_CONSTANTS:
        return None
    coded = {each.tensor: each for each in quantizers if each.kind != "activation"}
    held: dict[str, Array] = {}
    for name in constants:
        values = weights[name]
        if name in coded and values.dtype == np.float32:
            values = fake_quantize(values, coded[name].params, coded[name].spec)
        held[name] = np.asarray(values)
    reads = tuple(name for name in read if name not in made and name not in held)
    return DeviceKernel(model, tuple(chosen), held, reads, tensor) if all(map(known, reads)) else None
