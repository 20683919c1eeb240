"""What goes into a model, what comes out, and how its nodes hang together."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, TypeAlias

import numpy as np
from onnx import TensorProto

from roundoff.core.tensors import Array, InputSpec, NodeInfo, Topology
from roundoff.errors import BadInput, nearest
from roundoff.graph.load import Model
from roundoff.graph.nodes import (
    STANDARD_DOMAINS,
    by_number,
    constants,
    initializers,
    input_at,
    producers,
    reads,
    subgraphs,
)
from roundoff.graph.shapes import values
from roundoff.graph.weights import Weights
from roundoff.messages.message import Message, english, message, some


def inputs(model: Model) -> tuple[InputSpec, ...]:
    """The inputs that must be fed; those with a default value in the model are not among them.

    Raises:
        BadInput: An input is not a tensor.
    """
    graph = model.proto.graph
    known = initializers(graph)
    return tuple(_input_spec(value, model) for value in graph.input if value.name not in known)


def _input_spec(value: Any, model: Model) -> InputSpec:
    kind = by_number(value.type.tensor_type.elem_type)
    if kind is None:
        form = (value.type.WhichOneof("value") or "untyped").removesuffix("_type")
        raise BadInput(
            english(
                "Input {name!r} of {path} is of the kind {form}; only tensors can be fed.",
                name=value.name,
                path=model.path,
                form=form,
            ),
            fix=english("export the model with tensors as inputs"),
        )
    if not value.type.tensor_type.HasField("shape"):
        return InputSpec(value.name, kind.dtype, None)
    return InputSpec(value.name, kind.dtype, tuple(map(_axis, value.type.tensor_type.shape.dim)))


def _axis(dim: Any) -> int | str | None:
    # Some exporters write -1 where they mean "any".
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return int(dim.dim_value)
    return dim.dim_param or None


def outputs(model: Model) -> tuple[str, ...]:
    """Names of the model's outputs."""
    return tuple(value.name for value in model.proto.graph.output)


def topology(model: Model) -> Topology:
    """Who computes what from what; constants, and the nodes that only hold one, are left out.

    What the subgraphs of If, Loop and Scan take from outside counts as an input of that node.
    """
    graph = model.proto.graph
    known = constants(graph)
    nodes = tuple(
        NodeInfo(
            name=node.name,
            op_type=node.op_type,
            inputs=tuple(name for name in reads(node) if name not in known),
            outputs=tuple(name for name in node.output if name),
        )
        for node in graph.node
        if node.op_type != "Constant"
    )
    fed = tuple(value.name for value in graph.input if value.name not in known)
    return Topology(nodes, fed, outputs(model))


def hidden_tensors(model: Model) -> dict[str, str]:
    """Tensors computed inside subgraphs, which nothing outside can see, each with the node that holds it."""
    return {
        name: node.name
        for node in model.proto.graph.node
        for graph in subgraphs(node)
        for name in _computed_in(graph)
    }


def _computed_in(graph: Any) -> list[str]:
    names = [name for node in graph.node if node.op_type != "Constant" for name in node.output if name]
    for node in graph.node:
        for inner in subgraphs(node):
            names += _computed_in(inner)
    return names


# Nodes that give other values in each run, and the outputs that depend on them.

RANDOM_OPS = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Every run of these gives something else; a seed only says with what the first one begins."""

# Inputs of Dropout, and operations that tell the shape of what they read, not its values.
_RATIO_AT, _TRAINING_AT = 1, 2
_SHAPE_ONLY = frozenset({"Shape", "Size"})


def random_outputs(model: Model) -> dict[str, str]:
    """The outputs of a model that chance decides, each with the node that does: ``'noise' (RandomNormal)``."""
    found = _random_tensors(model)
    return {name: found[name] for name in outputs(model) if name in found}


def check_repeatable(model: Model, names: Collection[str] | None = None) -> None:
    """Refuse a model whose outputs are other ones in each run.

    Args:
        model: The model.
        names: The outputs that matter; all by default.

    Raises:
        BadInput: Chance decides an output.
    """
    for output, source in random_outputs(model).items():
        if names is not None and output not in names:
            continue
        raise BadInput(
            english(
                "Two runs of {path} cannot be compared: output {output!r} depends on {source}, which "
                "gives other values in each run.",
                path=model.path,
                output=output,
                source=source,
            ),
            fix=english("export the model in evaluation mode, or feed the random values as an input of the model"),
        )


def _random_tensors(model: Model) -> Mapping[str, str]:
    functions = {(each.domain, each.name): each.node for each in model.proto.functions}
    constants = _KnownValues(model)
    found: dict[str, str] = {}
    for node in model.proto.graph.node:
        source = next((found[name] for name in reads(node) if name in found), "")
        if node.op_type in _SHAPE_ONLY:
            source = ""
        if any(_is_random(each, constants) for each in _with_nodes_inside(node, functions)):
            source = f"{node.name!r} ({node.op_type})"
        if source:
            found.update(dict.fromkeys(filter(None, node.output), source))
    return found


def _with_nodes_inside(node: Any, functions: Mapping[tuple[str, str], Any], depth: int = 0) -> Iterator[Any]:
    """A node, those of its subgraphs, and those of the function that it calls."""
    yield node
    inner = [each for graph in subgraphs(node) for each in graph.node]
    # Functions cannot call themselves; a file that claims so would never end.
    if depth <= len(functions):
        inner += functions.get((node.domain, node.op_type), ())
    for each in inner:
        yield from _with_nodes_inside(each, functions, depth + 1)


class _KnownValues:
    """What is known of values before anything runs."""

    def __init__(self, model: Model) -> None:
        graph = model.proto.graph
        self._weights = Weights(model)
        self._computed = {value.name for value in graph.input} | {
            name for node in graph.node for name in node.output
        }

    def may_be_set(self, name: str) -> bool:
        """Whether a tensor is not zero, or may be; of what only a subgraph knows it is not assumed."""
        if name in self._weights:
            return bool(self._weights[name].any())
        return name in self._computed


def _is_random(node: Any, constants: _KnownValues) -> bool:
    if node.domain not in STANDARD_DOMAINS:
        return False
    return node.op_type in RANDOM_OPS or (node.op_type == "Dropout" and _drops(node, constants))


def _drops(node: Any, constants: _KnownValues) -> bool:
    """Whether a Dropout is in training mode, or may be."""
    mode = input_at(node, _TRAINING_AT)
    ratio = input_at(node, _RATIO_AT)
    return bool(mode) and constants.may_be_set(mode) and (not ratio or constants.may_be_set(ratio))


# What is compared of two runs of a model.

_MOST_NAMED = 5


def find_outputs(model: Model, names: Sequence[str]) -> tuple[str, ...]:
    """The tensors to compare: the model's outputs that are numbers, or those named, or the outputs of nodes named.

    Raises:
        BadInput: There is no tensor or node of that name.
    """
    graph = model.proto.graph
    if not names:
        every = tuple(dict.fromkeys(outputs(model)))
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
                english("it is computed inside of node {holder!r}; take that", holder=holder)
                if holder
                else nearest(name, (*nodes, *tensors))
            )
            raise BadInput(
                english("{path} has no tensor or node {name!r} to compare at.", path=model.path, name=name),
                fix=fix,
            )
    return tuple(found)


def other_outputs(model: Model, compared: Sequence[str]) -> list[Message]:
    """A note on the model's outputs that are no numbers and so are not compared; none when all are."""
    left = [name for name in dict.fromkeys(outputs(model)) if name not in frozenset(compared)]
    names = some(left, _MOST_NAMED, quoted=True)
    return [message("coverage.not_compared", names=names, count=len(left))] if left else []


def _is_of_numbers(kind: Any) -> bool:
    if kind.WhichOneof("value") is None:
        return True
    return bool(kind.HasField("tensor_type") and kind.tensor_type.elem_type != TensorProto.STRING)


# The parts of outputs: slices of one tensor that different branches compute. Next to boxes in hundreds of
# pixels, scores between 0 and 1 could vanish without a trace in the energy of all: whoever judges outputs judges
# their parts.


@dataclass(frozen=True, slots=True)
class OutputPart:
    """An output of a network, or a slice of it.

    Attributes:
        output: The output.
        axis: Axis of the slice; None for all of it.
        start: Where the slice starts.
        stop: Where it ends.
        source: What it is called: the output, or the tensor that the slice is.
    """

    output: str
    axis: int | None = None
    start: int = 0
    stop: int = 0
    source: str = ""

    def of(self, array: Array) -> Array:
        """Its elements."""
        if self.axis is None:
            return array
        place = [slice(None)] * array.ndim
        place[self.axis] = slice(self.start, self.stop)
        return np.ascontiguousarray(array[tuple(place)])


# What is only moved keeps its parts: as it is, with the axes in another order, or with others joined or split.
_UNCHANGED = frozenset({"Identity", "Dropout", "Cast"})
_RESHAPING = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})


def joined_slices(node: Any, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, tuple[int, ...]] | None:
    """Axis and sizes of what a Concat joins; None where they are not known.

    Args:
        node: The Concat.
        shapes: Shapes of tensors by name.
    """
    found = [shapes.get(name) for name in node.input]
    known = [shape for shape in found if shape]
    if len(known) < len(found):
        return None
    axis = next((each.i for each in node.attribute if each.name == "axis"), 0) % len(known[0])
    return axis, tuple(shape[axis] for shape in known)


def output_parts(
    model: Model, outputs: Mapping[str, tuple[int, ...]], shapes: Mapping[str, Any]
) -> list[OutputPart]:
    """What to tell apart at the outputs.

    Args:
        model: The float model.
        outputs: The outputs that hold numbers, with their shapes.
        shapes: Shapes of all tensors.
    """
    cuts = _Cuts(model, {**shapes, **outputs})
    parts: list[OutputPart] = []
    for name in outputs:
        # Of several axes the innermost tells kinds of values apart, boxes from scores; the others where they are.
        axis, pieces = next(iter(cuts.of(name).items()), (None, ()))
        parts += [OutputPart(name, axis, *piece) for piece in pieces] or [OutputPart(name)]
    return parts


def parts_of_rows(
    model: Model, outputs: Mapping[str, tuple[int, ...]], feed: Mapping[str, tuple[int, ...]]
) -> list[list[OutputPart]]:
    """What to tell apart at each output; nothing along the axis of samples.

    Args:
        model: The float model.
        outputs: The outputs that hold numbers, with the shapes that a sample gives.
        feed: The shapes of the inputs.
    """
    shapes = {each.name: each.shape for each in values(model, feed) if each.shape is not None}
    found = [output_parts(model, {name: shape}, shapes) for name, shape in outputs.items()]
    whole = ([OutputPart(name)] for name in outputs)
    return [
        parts if all(part.axis != 0 for part in parts) else alone
        for parts, alone in zip(found, whole, strict=True)
    ]


# A constant factor that differs so much along an axis makes parts, too, as long as they are few.
_DIFFERENT_TIMES = 16.0
_MOST_PIECES = 16
_ELEMENTWISE = frozenset({"Add", "Div", "Mul", "Sub"})
_DEEPEST = 64

_Piece: TypeAlias = tuple[int, int, str]


class _Cuts:
    """How tensors are joined of others: by axis, where each piece starts and ends, and what it is called."""

    def __init__(self, model: Model, shapes: Mapping[str, Any]) -> None:
        self._made_by, self._shapes = producers(model.proto.graph.node), shapes
        self._weights = Weights(model)

    def of(self, name: str, depth: int = 0) -> dict[int, tuple[_Piece, ...]]:
        """The axes along which a tensor is joined, the one that was joined first in front."""
        node = self._made_by.get(name)
        if node is None or depth > _DEEPEST:
            return {}
        if node.op_type == "Concat":
            return self._joined(node, depth)
        if node.op_type in _ELEMENTWISE and len(node.input) == 2:
            return self._scaled(node, depth)
        if node.op_type not in {*_UNCHANGED, *_RESHAPING, "Transpose"}:
            return {}
        found = {}
        for axis, pieces in self.of(node.input[0], depth + 1).items():
            moved = _moved_axis(node, axis, self._shapes)
            if moved is not None:
                found[moved] = pieces
        return found

    def _joined(self, node: Any, depth: int) -> dict[int, tuple[_Piece, ...]]:
        known = joined_slices(node, self._shapes)
        if known is None:
            return {}
        axis, sizes = known
        within = [self.of(name, depth + 1) for name in node.input]
        # Each input is joined in the same way along another axis: levels of boxes and scores.
        found = {
            other: pieces
            for other, pieces in within[0].items()
            if other != axis and all(_ends(each.get(other)) == _ends(pieces) for each in within)
        }
        start, own = 0, []
        for name, size in zip(node.input, sizes, strict=True):
            own.append((start, start + size, name))
            start += size
        return {**found, axis: tuple(own)}

    def _scaled(self, node: Any, depth: int) -> dict[int, tuple[_Piece, ...]]:
        """Pieces of what a constant is added to or multiplied with, which may make others."""
        constant = next((name for name in node.input if name in self._weights), None)
        other = next((name for name in node.input if name != constant), None)
        shape = self._shapes.get(node.output[0])
        if constant is None or other is None or shape is None or self._shapes.get(other) != shape:
            return {}
        found = self.of(other, depth + 1)
        if found or node.op_type not in ("Div", "Mul"):
            return found
        sizes = self._weights.shape(constant)
        long = [at for at, size in enumerate(sizes) if size > 1]
        if len(long) != 1 or sizes[long[0]] != shape[len(shape) - len(sizes) + long[0]]:
            return {}
        factors = np.abs(np.asarray(self._weights[constant], np.float64).reshape(-1))
        if not np.isfinite(factors).all() or not factors.all():
            return {}
        steps = np.flatnonzero(np.abs(np.diff(np.log(factors))) >= np.log(_DIFFERENT_TIMES)) + 1
        if not 0 < len(steps) < _MOST_PIECES:
            return {}
        ends = [0, *(int(each) for each in steps), len(factors)]
        pieces = tuple((first, last, f"{node.output[0]}[{first}:{last}]") for first, last in pairwise(ends))
        return {len(shape) - len(sizes) + long[0]: pieces}


def _ends(pieces: tuple[_Piece, ...] | None) -> tuple[int, ...]:
    return tuple(last for _, last, _ in pieces or ())


def _moved_axis(node: Any, axis: int, shapes: Mapping[str, Any]) -> int | None:
    """Where a node puts an axis; None where it does not stay one."""
    before, after = shapes.get(node.input[0]), shapes.get(node.output[0])
    if node.op_type in _UNCHANGED:
        return axis
    if before is None or after is None:
        return None
    if node.op_type == "Transpose":
        order = next((list(each.ints) for each in node.attribute if each.name == "perm"), None)
        return (order or list(range(len(before)))[::-1]).index(axis)
    ahead = prod(before[:axis])
    same = (at for at, size in enumerate(after) if size == before[axis] and prod(after[:at]) == ahead)
    return next(same, None)
