"""Quantizers found in a quantized model, moved onto the float model that it was made from."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roundoff.core.quantizers import Consumer, Quantizer, QuantSpec, quantize
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.block_weights import block_products, split_weights
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.nodes import attribute, producers, readers
from roundoff.graph.preparation.steps import Prepared, prepare
from roundoff.graph.quantized_model import Oddity, QuantizedModel
from roundoff.graph.readers.extraction import Extraction
from roundoff.graph.readers.float_model import codes_of, float_model_of, quantizers_of, values_of
from roundoff.graph.units import derived_constants
from roundoff.graph.weights import Weights
from roundoff.messages.message import Message, english, message
from roundoff.messages.numbers import share_text

# Which node of a float model is which node of another, although names, fused nodes and folded ones differ.

# What may stand between two nodes on one side only: folded into its neighbour, or done by the limits of the codes.
_MAY_BE_MISSING = frozenset({"BatchNormalization", "Relu", "Clip", "Identity", "Dropout", "Cast", "Pad"})
_MAY_BE_FOLDED = frozenset({"Mul", "Add", "Sub", "Div"})
_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# Operators that tools turn into one another.
_ALIKE = {"MatMul": "Gemm", "Gemm": "MatMul"}
_TOLD_APART_BY = ("kernel_shape", "strides", "group", "axis", "perm", "dilations")
_FARTHEST = 6
"""Nodes that may be missing in a row: Conv, BatchNormalization, Relu, Pad, and some to spare."""
_COMPARED_VALUES = 4096
_TELLING_SIZE = 16
"""Fewer weights than this may agree by chance."""
_SAME_WEIGHTS = 0.98


Values = Callable[[str], Array]


class _TwinGraph:
    """Wiring of one model, without its constants."""

    def __init__(self, model: Model, values: Values) -> None:
        graph = model.proto.graph
        self._weights = Weights(model)
        self._values = values
        self.constants = derived_constants(graph)
        self.nodes = [
            node for node in graph.node if not all(name in self.constants for name in node.output if name)
        ]
        self.outputs = [value.name for value in graph.output]
        self.inputs = [value.name for value in graph.input if value.name not in self.constants]
        self.producers = producers(self.nodes)
        self.readers = readers(self.nodes)

    def weight_shape(self, node: Any) -> tuple[int, ...] | None:
        """Shape of a layer's second operand, if that is a constant of the model."""
        name = self._weight(node)
        return self._weights.shape(name) if name else None

    def weight(self, node: Any) -> Array | None:
        """Values of a layer's second operand, if that is a constant of the model."""
        name = self._weight(node)
        return self._values(name) if name else None

    def _weight(self, node: Any) -> str:
        name = node.input[1] if node.op_type in _LAYERS and len(node.input) > 1 else ""
        return str(name) if name in self._weights.protos else ""

    def live(self, node: Any) -> list[str]:
        """The inputs of a node that are computed."""
        return [name for name in node.input if name and name not in self.constants]

    def behind(self, tensor: str) -> Iterator[tuple[str, int]]:
        """A tensor and those that differ from it only by nodes that may be missing, each with its distance."""
        front, seen = [tensor], {tensor}
        for distance in range(_FARTHEST):
            yield from ((name, distance) for name in front)
            found = [node for name in front for node in self.readers[name] if self._may_be_missing(node)]
            front = [node.output[0] for node in found if node.output[0] not in seen]
            seen.update(front)

    def before(self, tensor: str) -> Iterator[Any]:
        """The node that computes a tensor, and those before it as long as the ones between may be missing."""
        for _ in range(_FARTHEST):
            node = self.producers.get(tensor)
            if node is None:
                return
            yield node
            live = self.live(node)
            if not self._may_be_missing(node) or not live:
                return
            tensor = live[0]

    def _may_be_missing(self, node: Any) -> bool:
        if node.op_type in _MAY_BE_MISSING:
            return True
        return node.op_type in _MAY_BE_FOLDED and len(self.live(node)) == 1


def match_nodes(twin: Model, model: Model, *, twin_values: Values) -> dict[str, str]:
    """For each node of one float model the node of another that does the same, as far as there is one.

    Nodes are paired in execution order: what reads the same tensors and computes alike. Where several do, the
    values of the weights decide, then the name, then the name of the result.

    Args:
        twin: The model whose nodes are looked for.
        model: The model in which.
        twin_values: Gives the values of a constant of the first.
    """
    return _Matcher(_TwinGraph(twin, twin_values), _TwinGraph(model, Weights(model).__getitem__)).run()


class _Matcher:
    def __init__(self, twin: _TwinGraph, model: _TwinGraph) -> None:
        self._twin, self._model = twin, model
        self._tensors: dict[str, str] = {}
        self._matched: dict[str, str] = {}
        self._used: set[str] = set()
        self._by_name = {node.name: node for node in model.nodes}
        self._outputs = _paired(twin.outputs, model.outputs)

    def run(self) -> dict[str, str]:
        self._tensors |= _paired(self._twin.inputs, self._model.inputs)
        # A node is found from what it reads, so that one without counterpart ends a branch. Behind it names and
        # weights may find the way again; from there the gap is closed backwards, by what reads a node, and what
        # that gave is followed forward once more.
        self._forth()
        self._back()
        self._forth()
        return self._matched

    def _forth(self) -> None:
        for node in self._twin.nodes:
            if node.name in self._matched:
                continue
            found = self._find(node)
            if found is not None:
                self._pair(node, found)
            else:
                self._skip(node)

    def _back(self) -> None:
        for node in reversed(self._twin.nodes):
            if node.name not in self._matched:
                found = next((other for other in self._leading_to(node) if self._fits(node, other)), None)
                if found is not None:
                    self._pair(node, found)

    def _leading_to(self, node: Any) -> Iterator[Any]:
        """Nodes of the other model in front of those that were found for what reads a node's results."""
        for tensor in node.output:
            if tensor in self._outputs:
                yield from self._model.before(self._outputs[tensor])
            for reader in self._twin.readers[tensor]:
                other = self._by_name.get(self._matched.get(reader.name, ""))
                at = list(reader.input).index(tensor) if tensor in reader.input else len(reader.input)
                if other is not None and at < len(other.input):
                    yield from self._model.before(other.input[at])

    def _pair(self, node: Any, other: Any) -> None:
        self._matched[node.name] = other.name
        self._used.add(other.name)
        self._tensors.update(zip(node.output, other.output, strict=False))

    def _find(self, node: Any) -> Any:
        live = self._twin.live(node)
        known = [self._tensors.get(name) for name in live]
        named = self._by_name.get(node.name)
        if not live or any(name is None for name in known):
            # Behind something that has no counterpart only names and weights can tell.
            return named if named is not None and self._fits(node, named) else self._anywhere(node)
        # The counterpart reads what our inputs are there, or what is made of it by nodes that may be missing here;
        # every input must be in reach. The nearest of the likeliest is taken, unless weights say otherwise.
        reach = [dict(self._model.behind(name)) for name in known if name is not None]
        candidates = [
            (self._likeness(node, other), -distance, other)
            for tensor, distance in reach[0].items()
            for other in self._model.readers[tensor]
            if self._fits(node, other) and self._reads(other, reach)
        ]
        candidates.sort(key=lambda candidate: candidate[:2], reverse=True)
        return self._by_weights(node, [other for _, _, other in candidates])

    def _reads(self, other: Any, reach: list[dict[str, int]]) -> bool:
        live = self._model.live(other)
        return len(live) == len(reach) and all(name in near for name, near in zip(live, reach, strict=True))

    def _fits(self, node: Any, other: Any) -> bool:
        """Whether two nodes can be the same: operation, attributes and shapes of the weights."""
        alike = other.op_type in (node.op_type, _ALIKE.get(node.op_type))
        if other.name in self._used or not alike or len(self._twin.live(node)) != len(self._model.live(other)):
            return False
        for name in _TOLD_APART_BY if node.op_type == other.op_type else ():
            ours, theirs = attribute(node, name), attribute(other, name)
            # Exporters leave out what is the default.
            if ours is not None and theirs is not None and ours != theirs:
                return False
        return self._same_weights_shape(node, other)

    def _same_weights_shape(self, node: Any, other: Any) -> bool:
        ours, theirs = self._twin.weight_shape(node), self._model.weight_shape(other)
        if ours is None or theirs is None:
            return True
        return ours == theirs or (len(ours) == 2 and ours == theirs[::-1])

    def _likeness(self, node: Any, other: Any) -> int:
        same_result = bool(node.output) and node.output[0] in other.output
        return 2 * int(node.name == other.name) + int(same_result)

    def _by_weights(self, node: Any, rivals: list[Any]) -> Any:
        """The first of several candidates that has the same weights; names of exporters often mean nothing."""
        ours = self._twin.weight(node) if len(rivals) > 1 else None
        if ours is None or not rivals:
            return rivals[0] if rivals else None
        likeness = [_similarity(ours, self._model.weight(rival)) for rival in rivals]
        same = next((rival for rival, like in zip(rivals, likeness, strict=True) if like > _SAME_WEIGHTS), None)
        return rivals[int(np.argmax(likeness))] if same is None else same

    def _anywhere(self, node: Any) -> Any:
        """The node with the same weights, wherever it is, if there is only one."""
        ours = self._twin.weight(node)
        if ours is None or ours.size < _TELLING_SIZE:
            return None
        fitting = [other for other in self._model.nodes if self._fits(node, other)]
        same = [other for other in fitting if _similarity(ours, self._model.weight(other)) > _SAME_WEIGHTS]
        # Branches that share their weights cannot be told apart by them.
        return same[0] if len(same) == 1 else None

    def _skip(self, node: Any) -> None:
        """A node without counterpart that may be missing on the other side passes its tensor on."""
        live = self._twin.live(node)
        may = node.op_type in _MAY_BE_MISSING or node.op_type in _MAY_BE_FOLDED
        if len(live) == 1 and may and live[0] in self._tensors and node.output:
            self._tensors[node.output[0]] = self._tensors[live[0]]


def _paired(ours: Sequence[str], theirs: Sequence[str]) -> dict[str, str]:
    """Inputs, or outputs, of two models: by name, and by place where they have as many."""
    by_place = dict(zip(ours, theirs, strict=True)) if len(ours) == len(theirs) else {}
    free = {name: other for name, other in by_place.items() if name not in theirs and other not in ours}
    return free | {name: name for name in ours if name in theirs}


def _similarity(ours: Array, theirs: Array | None) -> float:
    """Mean cosine of the rows of two weights: rows that were scaled, as folding does, still agree."""
    if theirs is None or ours.size != theirs.size or not ours.size or ours.ndim == 0:
        return -1.0
    if ours.shape != theirs.shape:
        theirs = theirs.T
    rows = [
        values.reshape(len(values), -1)[:64, :_COMPARED_VALUES].astype(np.float64) for values in (ours, theirs)
    ]
    norms = [np.sqrt(np.vecdot(row, row)) for row in rows]
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = np.vecdot(rows[0], rows[1]) / (norms[0] * norms[1])
    return float(np.nan_to_num(cosines).mean())


_LEAST_MAPPED = 0.5
_STEPS_APART = 1
"""A learned rounding moves a weight by one step at most."""
_SHARE_APART = 0.01


def transfer_quantizers(extraction: Extraction, float_model: Model) -> QuantizedModel:
    """The given float model with the quantizers of the quantized one.

    Raises:
        BadInput: Most quantizers have no place in the float model.
    """
    twin = float_model_of(extraction, empty=True)
    quantizers = quantizers_of(extraction, twin, with_codes=False)
    best = _attempt(extraction, twin, quantizers, float_model)
    notes: list[Message] = []
    if best.problems:
        # Tools fold batch normalization and other constant factors into the weights before they quantize.
        prepared = _prepared(float_model)
        folded = None if prepared is None else _attempt(extraction, twin, quantizers, prepared.model)
        if prepared is not None and folded is not None and folded.problems < best.problems:
            best = folded
            notes += [message("graph.folded_too", path=str(float_model.path)), *prepared.notes]
    path, missing = extraction.draft.model.path, best.missing
    if len(missing) > _LEAST_MAPPED * len(quantizers):
        raise BadInput(
            english(
                "{count} of {count2} {count2:quantizer|quantizers} of {path} have no place in "
                "{path2}: it does not seem to be the float model it was made from.",
                count=len(missing),
                count2=len(quantizers),
                path=path,
                path2=float_model.path,
            ),
            fix=english("give the float model that was quantized, or none"),
        )
    lost = tuple(
        Oddity("not_represented", name, message("graph.no_place", name=name, path=str(float_model.path)))
        for name in missing
    )
    return QuantizedModel(best.model, best.quantizers, (), (*best.oddities, *lost), tuple(notes))


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Quantizers moved onto a model.

    Attributes:
        model: The model.
        quantizers: Those that have a place in it.
        missing: Names of those that have none.
        oddities: What does not fit.
    """

    model: Model
    quantizers: tuple[Quantizer, ...]
    missing: tuple[str, ...]
    oddities: tuple[Oddity, ...]

    @property
    def problems(self) -> int:
        """How much does not fit."""
        return len(self.missing) + len(self.oddities)


def _attempt(extraction: Extraction, twin: Model, quantizers: Sequence[Quantizer], target: Model) -> _Attempt:
    parts = block_products(twin)
    if parts:
        matched = match_nodes(twin, target, twin_values=lambda name: values_of(extraction, name))
        for size in {part.size for part in parts.values()}:
            alike = [matched[part.node] for part in parts.values() if part.size == size and part.node in matched]
            target = split_weights(target, size, alike)[0] if alike else target
    move = _Move(extraction, twin, target)
    moved = move.run(quantizers)
    missing = tuple(quantizer.name for quantizer in quantizers if quantizer.name not in move.placed)
    return _Attempt(target, moved, missing, tuple(move.oddities))


def _prepared(model: Model) -> Prepared | None:
    """The model with everything folded; None when it cannot be."""
    try:
        return prepare(model)
    except BadInput:
        return None


class _Move:
    """One model's quantizers on their way to another."""

    def __init__(self, extraction: Extraction, twin: Model, target: Model) -> None:
        self.placed: set[str] = set()
        self.oddities: list[Oddity] = []
        self._extraction = extraction
        self._target = target
        self._weights = Weights(target)
        self._twin_nodes = {node.name: node for node in twin.proto.graph.node}
        self._twin_producers = producers(twin.proto.graph.node)
        self._nodes = {node.name: node for node in target.proto.graph.node}
        self._outputs = dict(zip(outputs(twin), outputs(target), strict=False))
        self._outputs.update((name, name) for name in outputs(target))
        self._matched = match_nodes(twin, target, twin_values=lambda name: values_of(extraction, name))
        theirs = block_products(target)
        for part in block_products(twin).values():
            other = theirs.get(self._matched.get(part.node, ""))
            if other is not None:
                self._matched[part.joined] = other.joined
        self._taken: set[Consumer] = set()

    def run(self, quantizers: Sequence[Quantizer]) -> tuple[Quantizer, ...]:
        found = {quantizer.name: self._place(quantizer, self._by_consumers(quantizer)) for quantizer in quantizers}
        for quantizer in quantizers:
            if not found[quantizer.name] and quantizer.kind == "activation":
                found[quantizer.name] = self._place(quantizer, self._by_producer(quantizer))
        self.placed = {name for name, placed in found.items() if placed}
        return tuple(
            each if each.after in self.placed else replace(each, after="")
            for placed in found.values()
            for each in placed
        )

    def _by_consumers(self, quantizer: Quantizer) -> dict[str, list[Consumer]]:
        """The tensors that the counterparts of its consumers read, each with those."""
        places: dict[str, list[Consumer]] = defaultdict(list)
        for consumer in quantizer.consumers:
            # What a toolchain writes otherwise, such as a mean as convolutions, still reads the same tensor.
            same = self._nodes.get(consumer.node)
            reads = (
                same is not None
                and same.op_type != self._twin_nodes[consumer.node].op_type
                and list(same.input[consumer.input :])[:1] == [quantizer.tensor]
            )
            node = self._nodes.get(self._matched.get(consumer.node, consumer.node if reads else ""))
            if node is None or consumer.input >= len(node.input) or not node.input[consumer.input]:
                continue
            there = Consumer(node.name, consumer.input)
            if there not in self._taken:
                self._taken.add(there)
                places[node.input[consumer.input]].append(there)
        if quantizer.output and quantizer.tensor in self._outputs:
            places.setdefault(self._outputs[quantizer.tensor], [])
        return places

    def _place(self, quantizer: Quantizer, places: dict[str, list[Consumer]]) -> list[Quantizer]:
        output = self._outputs.get(quantizer.tensor) if quantizer.output else None
        result = []
        for count, (tensor, consumers) in enumerate(places.items(), start=1):
            name = quantizer.name if count == 1 else f"{quantizer.name}_{count}"
            moved = replace(
                quantizer, name=name, tensor=tensor, consumers=tuple(consumers), output=tensor == output
            )
            placed = moved if quantizer.kind == "activation" else self._with_codes(quantizer, moved)
            if placed is not None:
                result.append(placed)
        return result

    def _by_producer(self, quantizer: Quantizer) -> dict[str, list[Consumer]]:
        """The tensor of the node that computes it, for all that read it: what read it here has no counterpart."""
        node = self._twin_producers.get(quantizer.tensor)
        other = None if node is None else self._nodes.get(self._matched.get(node.name, ""))
        at = 0 if node is None else list(node.output).index(quantizer.tensor)
        if other is None or at >= len(other.output):
            return {}
        tensor = other.output[at]
        free = [
            there
            for reader in self._target.proto.graph.node
            for position, name in enumerate(reader.input)
            if name == tensor and (there := Consumer(reader.name, position)) not in self._taken
        ]
        self._taken.update(free)
        return {tensor: free} if free else {}

    def _with_codes(self, quantizer: Quantizer, moved: Quantizer) -> Quantizer | None:
        """A quantizer of a constant, with the codes the quantized model has where rounding would give others."""
        codes = codes_of(self._extraction, quantizer.name) if moved.tensor in self._weights.protos else None
        if codes is None:
            return moved
        spec = quantizer.spec
        if self._is_transposed(quantizer, moved):
            codes, spec = codes.T, _transposed(spec)
        if codes.shape != self._weights.shape(moved.tensor):
            return None
        moved = replace(moved, spec=spec)
        # A scale of zero gives other codes than those of the model, which is all that counts here.
        with np.errstate(divide="ignore", invalid="ignore"):
            wanted = quantize(self._weights[moved.tensor].astype(np.float32), moved.params, spec)
        if np.array_equal(codes, wanted):
            return moved
        if quantizer.kind == "weight":
            self._compare(moved, wanted, codes)
        return replace(moved, codes=np.ascontiguousarray(codes))

    def _is_transposed(self, quantizer: Quantizer, moved: Quantizer) -> bool:
        if not quantizer.consumers or not moved.consumers or quantizer.spec.bits > 16:
            return False
        here = self._twin_nodes[quantizer.consumers[0].node]
        there = self._nodes[moved.consumers[0].node]
        flags = [bool(attribute(node, "transB", 0)) for node in (here, there)]
        return quantizer.consumers[0].input == 1 and flags[0] != flags[1]

    def _compare(self, quantizer: Quantizer, wanted: Array, codes: Array) -> None:
        """Say when weights are so different that the float model cannot be the one that was quantized."""
        apart = float(np.mean(np.abs(wanted.astype(np.int64) - codes.astype(np.int64)) > _STEPS_APART))
        if apart > _SHARE_APART:
            node = quantizer.consumers[0].node
            text = message("graph.weights_differ", share=share_text(apart, 0), node=node)
            self.oddities.append(Oddity("disagreement", node, text))


def _transposed(spec: QuantSpec) -> QuantSpec:
    return spec if spec.axis is None else spec.along(1 - spec.axis)
