"""What a subject changes, node by node: the terms whose effects on the outputs add up, to first order."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roundoff.core.quantizer import Consumer, Quantizer
from roundoff.core.sensitivity import Subject
from roundoff.core.tensors import Array
from roundoff.graph.backward.probing import Variant
from roundoff.graph.block_variants import BlockVariants, leave
from roundoff.graph.blocks import Reading, Substitute
from roundoff.graph.evaluation import CannotEvaluate, evaluate
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.units import derived_constants
from roundoff.graph.weights import Weights

__all__ = ["Terms", "find_terms"]


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """All that subjects change.

    Attributes:
        variants: Nodes that read something else, each once.
        parts: For each subject the places of its variants.
        leaving: For each subject what outputs pass on their way out.
        unknown: Subjects whose terms cannot be told, and why.
    """

    variants: tuple[Variant, ...]
    parts: Mapping[Subject, tuple[int, ...]]
    leaving: Mapping[Subject, Mapping[str, tuple[Quantizer, ...]]]
    unknown: Mapping[Subject, str]


def find_terms(quantized: QuantizedModel, whole: BlockVariants, subjects: Iterable[Subject]) -> Terms:
    """Find what each subject changes.

    Args:
        quantized: The model.
        whole: What quantizers change in it as one block.
        subjects: The subjects.
    """
    by_name = {each.name: each for each in quantized.quantizers}
    constants = _Constants(quantized)
    made: dict[tuple[str, ...], Substitute] = {}
    places: dict[object, int] = {}
    variants: list[Variant] = []
    parts: dict[Subject, tuple[int, ...]] = {}
    leaving, unknown = {}, {}
    for subject in subjects:
        switched = whole.switch([by_name[name] for name in subject.quantizers])
        try:
            readings = constants.pushed(whole.readings(0, switched, made))
        except CannotEvaluate as reason:
            unknown[subject] = f"constants that are computed from what it changes are not known: {reason}"
            continue
        own = []
        for node, read in _by_node(readings).items():
            key = node, tuple(sorted((consumer.input, _key(reading)) for consumer, reading in read.items()))
            if key not in places:
                places[key] = len(variants)
                variants.append(Variant(node, read))
            own.append(places[key])
        parts[subject], leaving[subject] = tuple(own), switched.leaving
    return Terms(tuple(variants), parts, leaving, unknown)


def _by_node(readings: Mapping[Consumer, Reading]) -> dict[str, dict[Consumer, Reading]]:
    found: dict[str, dict[Consumer, Reading]] = {}
    for consumer, reading in readings.items():
        found.setdefault(consumer.node, {})[consumer] = reading
    return found


def _key(reading: Reading) -> tuple[str, ...]:
    # The same constants are the same object: they are made once.
    return (str(id(reading)),) if isinstance(reading, Substitute) else tuple(each.name for each in reading)


class _Constants:
    """Constants that are computed from others, with some of these changed."""

    def __init__(self, quantized: QuantizedModel) -> None:
        self._model = quantized.float_model
        graph = self._model.proto.graph
        known = derived_constants(graph)
        self._nodes: Sequence[Any] = [
            node
            for node in graph.node
            if node.op_type != "Constant" and all(name in known for name in node.output if name)
        ]
        self._names = frozenset(node.name for node in self._nodes)
        self._weights = Weights(self._model)
        self._base: dict[str, Array] = {}
        self._readers: dict[str, list[Consumer]] = {}
        for node in graph.node if self._nodes else ():
            for position, name in enumerate(node.input):
                self._readers.setdefault(name, []).append(Consumer(node.name, position))

    def pushed(self, readings: Mapping[Consumer, Reading]) -> Mapping[Consumer, Reading]:
        """What node inputs read, where nodes that only compute constants are computed and left out.

        Raises:
            CannotEvaluate: They cannot be computed on their own.
        """
        if all(consumer.node not in self._names for consumer in readings):
            return readings
        changed: dict[str, Array] = {}
        for node in self._nodes:
            if any(Consumer(node.name, at) in readings or name in changed for at, name in enumerate(node.input)):
                feeds = {name: self._value(name) for name in node.input if name}
                other = type(node)()
                other.CopyFrom(node)
                for at, name in enumerate(node.input):
                    if name:
                        # Each input by a name of its own, as only some may be changed.
                        other.input[at] = f"{name}//{at}"
                        feeds[f"{name}//{at}"] = self._read(name, readings.get(Consumer(node.name, at)), changed)
                        feeds.pop(name, None)
                wanted = [name for name in node.output if name]
                changed |= zip(wanted, evaluate([other], feeds, wanted, model=self._model), strict=True)
        found = {consumer: each for consumer, each in readings.items() if consumer.node not in self._names}
        for name, values in changed.items():
            substitute = Substitute(f"{name}_changed", values)
            for consumer in self._readers.get(name, ()):
                if consumer.node in self._names:
                    continue
                again = found.get(consumer)
                found[consumer] = (
                    Substitute(substitute.name, leave(values, again)) if isinstance(again, tuple) else substitute
                )
        return found

    def _read(self, name: str, reading: Reading | None, changed: Mapping[str, Array]) -> Array:
        if isinstance(reading, Substitute):
            return reading.values
        values = changed[name] if name in changed else self._value(name)
        return values if reading is None else leave(values, reading)

    def _value(self, name: str) -> Array:
        if name in self._weights:
            return self._weights[name]
        if not self._base:
            wanted = [made for node in self._nodes for made in node.output if made]
            fed = {read for node in self._nodes for read in node.input if read} - {*wanted}
            feeds = {read: self._weights[read] for read in sorted(fed)}
            self._base = dict(zip(wanted, evaluate(self._nodes, feeds, wanted, model=self._model), strict=True))
        return self._base[name]
