"""From what was decided to the list of quantizers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from roundoff.core.quant_plan import PlannedQuantizer
from roundoff.core.quantizer import Consumer, QuantSpec
from roundoff.quantize.planning.constants import Bias, ConstantOperand, biases, constant_operands
from roundoff.quantize.planning.roles import Roles
from roundoff.quantize.planning.storing import Storage

__all__ = ["BIAS_DTYPE", "Methods", "Quantizers", "make_quantizers"]

_BIAS_BITS = 32
BIAS_DTYPE = f"s{_BIAS_BITS}"
"""What biases are, unless they stay in float."""


@dataclass(frozen=True, slots=True)
class Methods:
    """Calibration methods.

    Attributes:
        activations: Of activations.
        weights: Of constants.
    """

    activations: str
    weights: str


@dataclass(frozen=True, slots=True)
class Quantizers:
    """All quantizers of a plan.

    Attributes:
        planned: In execution order of their tensors.
        weights: How quantized constants are quantized, by who reads them.
        notes: What is unusual about constants of a node, by its name.
        biases: Who reads a quantized bias, and where.
    """

    planned: tuple[PlannedQuantizer, ...]
    weights: Mapping[Consumer, QuantSpec]
    notes: Mapping[str, str]
    biases: frozenset[Consumer]


def make_quantizers(roles: Roles, storage: Storage, methods: Methods) -> Quantizers:
    """List the quantizers that follow from the storage of tensors and the roles of units."""
    operands = tuple(constant_operands(roles, storage))
    weights = {operand.reader: operand.spec for operand in operands}
    found = tuple(biases(roles, weights, storage))
    maker = _Maker(roles, storage, methods)
    maker.add_activations()
    maker.add_constants(operands)
    maker.add_biases(bias for bias in found if not bias.obstacle)
    notes = {operand.reader.node: operand.note for operand in operands if operand.note}
    notes |= {bias.reader.node: bias.obstacle for bias in found if bias.obstacle}
    quantized = frozenset(bias.reader for bias in found if not bias.obstacle)
    return Quantizers(maker.in_order(), weights, notes, quantized)


@dataclass(slots=True)
class _Maker:
    roles: Roles
    storage: Storage
    methods: Methods
    _names: set[str] = field(init=False, default_factory=set)
    # Each with its place in the order.
    _made: list[tuple[tuple[int, int], PlannedQuantizer]] = field(init=False, default_factory=list)
    _by_reader: dict[Consumer, str] = field(init=False, default_factory=dict)

    def in_order(self) -> tuple[PlannedQuantizer, ...]:
        """Everything made, groups of one member dissolved."""
        made = [quantizer for _, quantizer in sorted(self._made, key=lambda each: each[0])]
        sizes: dict[str, int] = {}
        for quantizer in made:
            sizes[quantizer.group] = sizes.get(quantizer.group, 0) + 1
        return tuple(replace(each, group="") if sizes[each.group] == 1 else each for each in made)

    def _name(self, tensor: str, reader: Consumer | None) -> str:
        candidates = self._candidates(tensor, reader)
        name = next(name for name in candidates if name not in self._names)
        self._names.add(name)
        return name

    @staticmethod
    def _candidates(tensor: str, reader: Consumer | None) -> Iterator[str]:
        yield tensor
        wanted = f"{tensor}@{reader.node}" if reader is not None else tensor
        yield wanted
        count = 1
        while True:
            count += 1
            yield f"{wanted}_{count}"

    def _add(self, place: tuple[int, int], quantizer: PlannedQuantizer) -> None:
        self._made.append((place, quantizer))
        self._by_reader.update(dict.fromkeys(quantizer.consumers, quantizer.name))

    def add_activations(self) -> None:
        """Storage and copies of all live tensors."""
        view, storage = self.roles.view, self.storage
        for tensor, readers in storage.readers.items():
            produced = tensor in storage.quantized
            leaves = produced and tensor in view.outputs and self.roles.target.quantize_outputs
            first = ""
            if readers or leaves or (produced and storage.copies[tensor]):
                first = self._name(tensor, None)
                group = storage.group_of[tensor]
                stored = self._activation(first, tensor, storage.stored[group].spec, readers, group)
                self._add(self._place(tensor), replace(stored, output=leaves))
            for copy in storage.copies[tensor]:
                name = self._name(tensor, copy.readers[0])
                again = self._activation(name, tensor, copy.spec, copy.readers, copy.group)
                self._add(self._place(tensor), replace(again, after=first if produced else ""))

    def _place(self, tensor: str) -> tuple[int, int]:
        producer = self.roles.view.producers.get(tensor)
        return (producer.place if producer is not None else -1, 1)

    def _activation(
        self, name: str, tensor: str, spec: QuantSpec, readers: tuple[Consumer, ...], group: str
    ) -> PlannedQuantizer:
        fixed = self.storage.stored[group].fixed_range if group else None
        method = self.methods.activations if fixed is None else ""
        return PlannedQuantizer(
            name, tensor, "activation", spec, readers, group=group, method=method, fixed_range=fixed
        )

    def add_constants(self, operands: Iterable[ConstantOperand]) -> None:
        """Weights and other constants; those that are quantized alike for several readers once."""
        alike: dict[tuple[str, QuantSpec, str], list[Consumer]] = {}
        for operand in operands:
            alike.setdefault((operand.tensor, operand.spec, operand.group), []).append(operand.reader)
        for (tensor, spec, group), readers in alike.items():
            fixed = self.storage.stored[group].fixed_range if group else None
            method = self.methods.weights if fixed is None else ""
            name = self._name(tensor, readers[0])
            place = (self.roles.view.by_name[readers[0].node].place, 0)
            self._add(
                place,
                PlannedQuantizer(
                    name, tensor, "weight", spec, tuple(readers), group=group, method=method, fixed_range=fixed
                ),
            )

    def add_biases(self, found: Iterable[Bias]) -> None:
        """Biases, each at the product of two scales of its own."""
        for bias in found:
            spec = QuantSpec(_BIAS_BITS, signed=True, symmetric=True, axis=bias.axis)
            scales = (self._by_reader[bias.source], self._by_reader[bias.weight])
            name = self._name(bias.tensor, bias.reader)
            place = (self.roles.view.by_name[bias.reader.node].place, 0)
            self._add(place, PlannedQuantizer(name, bias.tensor, "bias", spec, (bias.reader,), scale_of=scales))
