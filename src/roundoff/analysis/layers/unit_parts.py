"""What "in float" means for a unit: which quantizers are off then, and what a user types for it."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from roundoff.core.quantizer import Quantizer
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.units import derived_constants, units

__all__ = ["Parts", "UnitParts", "switched_on"]


@dataclass(frozen=True, slots=True)
class Parts:
    """Names of the quantizers that belong to a unit.

    Attributes:
        weights: Those of its weights and biases.
        constants: Those of its other constants.
        copies: Those that quantize once more, for this unit alone, what others have written.
        result: Those of the tensor it writes, whoever reads it, and of tensors that are only made of its values.
    """

    weights: frozenset[str] = frozenset()
    constants: frozenset[str] = frozenset()
    copies: frozenset[str] = frozenset()
    result: frozenset[str] = frozenset()

    @property
    def inside(self) -> frozenset[str]:
        """All but those of what it writes."""
        return self.weights | self.constants | self.copies

    @property
    def all(self) -> frozenset[str]:
        """All of them."""
        return self.inside | self.result

    def rule(self, node: str) -> str:
        """What ``--set`` takes for a node of the unit to have all but its result in float."""
        return f"{node}=float" if self.constants or self.copies else f"{node}=weight=float"


class UnitParts:
    """The quantizers of a network by the unit that is to blame for them.

    A unit in float has float weights and biases and writes float values, which its readers take as they are; what
    others write for it stays quantized, because that is their affair.

    Args:
        quantized: The network.
        forwarded: Tensors that are only passed on, with those their values come from.
    """

    def __init__(self, quantized: QuantizedModel, forwarded: Mapping[str, tuple[str, ...]]) -> None:
        graph = quantized.float_model.proto.graph
        constant = derived_constants(graph)
        unit_of = units(quantized.float_model, quantized.quantizers).unit_of
        self._weights: dict[str, set[str]] = {}
        self._constants: dict[str, set[str]] = {}
        self._copies: dict[str, set[str]] = {}
        self._results: dict[str, set[str]] = {}
        for quantizer in quantized.quantizers:
            readers = {unit_of.get(consumer.node, consumer.node) for consumer in quantizer.consumers}
            if quantizer.tensor in constant:
                held = self._constants if quantizer.kind == "activation" else self._weights
                for unit in readers:
                    held.setdefault(unit, set()).add(quantizer.name)
                continue
            self._results.setdefault(quantizer.tensor, set()).add(quantizer.name)
            if quantizer.after and len(readers) == 1:
                self._copies.setdefault(readers.pop(), set()).add(quantizer.name)
        self._made_of: dict[str, list[str]] = {}
        for tensor, sources in forwarded.items():
            for source in sources:
                self._made_of.setdefault(source, []).append(tensor)

    def of(self, tensor: str, unit: str) -> Parts:
        """The quantizers of the unit that writes a tensor.

        Args:
            tensor: The tensor.
            unit: Its unit; empty for an input of the network.
        """
        result: set[str] = set()
        reached = [tensor]
        for name in reached:
            result |= self._results.get(name, set())
            reached += [made for made in self._made_of.get(name, ()) if made not in reached]
        return Parts(
            weights=frozenset(self._weights.get(unit, ())),
            constants=frozenset(self._constants.get(unit, ())),
            copies=frozenset(self._copies.get(unit, ())),
            result=frozenset(result),
        )


def switched_on(quantizers: Iterable[Quantizer], off: Collection[str]) -> tuple[Quantizer, ...]:
    """The quantizers that are on when some are off.

    A bias whose input or weight is in float has nothing to take its scale from, and is in float too.
    """
    everything = tuple(quantizers)
    in_float = {
        consumer.node
        for quantizer in everything
        if quantizer.name in off and quantizer.kind != "bias"
        for consumer in quantizer.consumers
    }
    return tuple(
        quantizer
        for quantizer in everything
        if quantizer.name not in off
        and not (quantizer.kind == "bias" and any(each.node in in_float for each in quantizer.consumers))
    )
