"""Quantizers found in a quantized model, moved onto the float model that it was made from."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.quantization import quantize
from roundoff.core.quantizer import Consumer, Quantizer, QuantSpec
from roundoff.core.tensors import Array
from roundoff.core.wording import counted
from roundoff.errors import BadInput
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.preparation import Prepared, prepare
from roundoff.graph.quantized_model import Oddity, QuantizedModel
from roundoff.graph.reading.constants import attribute
from roundoff.graph.reading.extraction import Extraction
from roundoff.graph.reading.matching import match_nodes
from roundoff.graph.reading.twin import codes_of, quantizers_of, twin_of, values_of
from roundoff.graph.weights import Weights

__all__ = ["onto_float_model"]

_LEAST_MAPPED = 0.5
_STEPS_APART = 1
"""A learned rounding moves a weight by one step at most."""
_SHARE_APART = 0.01


def onto_float_model(extraction: Extraction, float_model: Model) -> QuantizedModel:
    """The given float model with the quantizers of the quantized one.

    Raises:
        BadInput: Most quantizers have no place in the float model.
    """
    twin = twin_of(extraction, empty=True)
    quantizers = quantizers_of(extraction, twin, with_codes=False)
    best = _attempt(extraction, twin, quantizers, float_model)
    notes: list[str] = []
    if best.problems:
        # Tools fold batch normalization and other constant factors into the weights before they quantize.
        prepared = _prepared(float_model)
        folded = None if prepared is None else _attempt(extraction, twin, quantizers, prepared.model)
        if prepared is not None and folded is not None and folded.problems < best.problems:
            best = folded
            notes += [f"{float_model.path} was folded, as the quantized model is", *prepared.notes]
    path, missing = extraction.draft.model.path, best.missing
    if len(missing) > _LEAST_MAPPED * len(quantizers):
        raise BadInput(
            f"{len(missing)} of {counted(len(quantizers), 'quantizer')} of {path} have no place in "
            f"{float_model.path}: it does not seem to be the float model it was made from.",
            fix="give the float model that was quantized, or none",
        )
    lost = tuple(
        Oddity("not_represented", name, f"quantizer {name!r} has no place in {float_model.path}, and was left out")
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
        self._twin_producers = {name: node for node in twin.proto.graph.node for name in node.output if name}
        self._nodes = {node.name: node for node in target.proto.graph.node}
        self._outputs = dict(zip(outputs(twin), outputs(target), strict=False))
        self._outputs.update((name, name) for name in outputs(target))
        self._matched = match_nodes(twin, target, twin_values=lambda name: values_of(extraction, name))
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
            node = self._nodes.get(self._matched.get(consumer.node, ""))
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
            text = f"{apart:.0%} of the weights of {node!r} differ from the float model's by more than a step"
            self.oddities.append(Oddity("disagreement", node, text))


def _transposed(spec: QuantSpec) -> QuantSpec:
    return spec if spec.axis is None else spec.along(1 - spec.axis)
