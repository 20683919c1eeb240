"""Blocks of a model with some quantizers switched on in them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from roundoff.core.quantizer import Consumer, Quantizer
from roundoff.core.tensors import Array
from roundoff.graph.blocks import BlockModels, Reading, Substitute
from roundoff.graph.cutting import Block, Cutting
from roundoff.graph.fake_constants import FakeConstants, chain_of, fake_quantized
from roundoff.graph.load import Model
from roundoff.graph.shapes import Value

__all__ = ["BlockVariants", "Switched", "leave"]


@dataclass(frozen=True, slots=True)
class Switched:
    """Quantizers that are on, sorted by where they act.

    Attributes:
        inside: For each block in which they act, what its node inputs read.
        leaving: For each tensor that leaves the model quantized, what it passes, in order.
        by_name: All of them.
    """

    inside: Mapping[int, Mapping[Consumer, Quantizer]]
    leaving: Mapping[str, tuple[Quantizer, ...]]
    by_name: Mapping[str, Quantizer]


class BlockVariants:
    """Makes models of blocks in which quantizers are on.

    Constants hold what quantizers leave of them; nothing of that is computed again when the block runs.

    Args:
        model: The whole float model.
        cutting: Its blocks.
        values: Its tensors, with their types.
        constants: What quantizers leave of its constants, if others ask for that too.
    """

    def __init__(
        self, model: Model, cutting: Cutting, values: Sequence[Value], *, constants: FakeConstants | None = None
    ) -> None:
        self._cutting = cutting
        self._models = BlockModels(model, values)
        self._constants = FakeConstants(model) if constants is None else constants
        self._blocks_of: dict[str, list[int]] = {}
        for index, block in enumerate(cutting.blocks):
            for node in self._models.nodes_in(block):
                self._blocks_of.setdefault(node, []).append(index)

    def switch(self, quantizers: Iterable[Quantizer]) -> Switched:
        """Sort quantizers that are on; of several at one node input the one that follows the others counts.

        What acts only on nodes that no wanted tensor depends on is nowhere.
        """
        by_name = {each.name: each for each in quantizers}
        readers: dict[Consumer, Quantizer] = {}
        for each in by_name.values():
            for consumer in each.consumers:
                other = readers.get(consumer)
                if other is None or any(before is other for before in chain_of(each, by_name)):
                    readers[consumer] = each
        inside: dict[int, dict[Consumer, Quantizer]] = {}
        for consumer, each in readers.items():
            for index in self._blocks_of.get(consumer.node, ()):
                inside.setdefault(index, {})[consumer] = each
        wanted = set(self._cutting.wanted)
        leaving = {
            each.tensor: tuple(chain_of(each, by_name))
            for each in by_name.values()
            if each.output and each.tensor in wanted
        }
        return Switched(dict(sorted(inside.items())), leaving, by_name)

    def rounded(self, switched: Switched, blocks: Iterable[int]) -> frozenset[str]:
        """Tensors that quantizers round when these blocks run; constants are rounded before."""
        acting = (each.tensor for index in blocks for each in switched.inside.get(index, {}).values())
        return frozenset(tensor for tensor in acting if tensor not in self._constants)

    def changes_nothing(self, quantizer: Quantizer) -> bool:
        """Whether its constant already holds exactly what the quantizer would leave of it."""
        return not quantizer.after and self._constants.is_idle(quantizer)

    def model(self, index: int, switched: Switched | None = None, *, part: Block | None = None) -> Model:
        """The model of a block.

        Args:
            index: Which block.
            switched: What is on in it.
            part: What to take of it, or what more to read from it, if not the block as it is.

        Raises:
            BadInput: ONNX has no operators for one of the quantizers.
        """
        block = self._cutting.blocks[index] if part is None else part
        inside = self._models.nodes_in(block)
        readers = switched.inside.get(index, {}) if switched is not None else {}
        acting = {consumer: each for consumer, each in readers.items() if consumer.node in inside}
        if switched is None or not acting:
            return self._models.make(block)
        return self._models.make(block, self._readings(acting, switched))

    def _readings(self, acting: Mapping[Consumer, Quantizer], switched: Switched) -> dict[Consumer, Reading]:
        readings: dict[Consumer, Reading] = {}
        made: dict[tuple[str, ...], Substitute] = {}
        for consumer, quantizer in acting.items():
            chain = tuple(chain_of(quantizer, switched.by_name))
            if quantizer.tensor not in self._constants:
                readings[consumer] = chain
                continue
            passed = tuple(each.name for each in chain)
            if passed not in made:
                values = self._constants.values(quantizer, switched.by_name)
                made[passed] = Substitute(f"{quantizer.name}_values", values)
            readings[consumer] = made[passed]
        return readings


def leave(values: Array, quantizers: Sequence[Quantizer]) -> Array:
    """A tensor that leaves the model, after the quantizers it passes."""
    for quantizer in quantizers:
        values = fake_quantized(values, quantizer)
    return values
