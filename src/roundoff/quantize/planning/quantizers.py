"""From what was decided to the list of quantizers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from roundoff.core.plan import FLOAT, PlannedQuantizer
from roundoff.core.quantizers import Consumer, QuantSpec
from roundoff.core.target import Target
from roundoff.messages.message import Message, message
from roundoff.quantize.planning.requested_precision import Roles, outranks, weight_edges
from roundoff.quantize.planning.storage import TensorStorage
from roundoff.quantize.planning.view import BIAS_INPUT, FusedUnit, GraphView, NodeView

# How weights, other constant operands and biases are quantized.


@dataclass(frozen=True, slots=True)
class ConstantOperand:
    """A constant that one node reads quantized.

    Attributes:
        tensor: The constant.
        reader: Who reads it.
        spec: How it is quantized there.
        group: The group whose scale it shares; empty for its own.
        note: What is unusual about it, for the reader's plan.
    """

    tensor: str
    reader: Consumer
    spec: QuantSpec
    group: str = ""
    note: Message | None = None


@dataclass(frozen=True, slots=True)
class Bias:
    """A bias, or why it stays in float.

    Attributes:
        tensor: The constant.
        reader: Who reads it.
        source: The input whose scale it has a part of.
        weight: The weight whose scale it has the other part of.
        axis: Along which each element has its own scale; None for one scale.
        obstacle: Why it stays in float; None when it does not.
    """

    tensor: str
    reader: Consumer
    source: Consumer
    weight: Consumer
    axis: int | None
    obstacle: Message | None = None


def constant_operands(roles: Roles, storage: TensorStorage) -> Iterator[ConstantOperand]:
    """All constants that nodes read quantized, in execution order; biases are not among them."""
    view = roles.view
    for unit in roles.units:
        role = roles.role(unit)
        weights = weight_edges(unit, view)
        if role in ("integer", "weight_only"):
            yield from (found for place in weights if (found := _weight(unit, place, roles)) is not None)
        if (role == "integer" and not weights and not unit.is_pattern) or role == "follow":
            yield from _operands(unit, roles, storage)


def _weight(unit: FusedUnit, place: int, roles: Roles) -> ConstantOperand | None:
    tensor, reader = unit.first.inputs[place], Consumer(unit.first.name, place)
    decision, request = roles.decisions(unit)["weight"], roles.requests.tensors.get(tensor)
    dtype = decision.dtype
    if request is not None and outranks(request, decision) and request.dtype in (*roles.target.weights, FLOAT):
        dtype = request.dtype
    if dtype == FLOAT:
        return None
    axis, note = weight_axis(unit.first, place, roles.view, roles.target)
    return ConstantOperand(tensor, reader, roles.target.weights[dtype].along(axis), note=note)


def _operands(unit: FusedUnit, roles: Roles, storage: TensorStorage) -> Iterator[ConstantOperand]:
    """Constants of operations other than products: like activations, with one scale each."""
    view, requests = roles.view, roles.requests.tensors
    results = view.results(unit.last)
    alone = len(unit.nodes) == 1 and unit.first.operation in roles.target.shared_scale
    tied = roles.role(unit) == "follow" or alone
    for reader, tensor in view.operands(unit.first):
        if not view.is_constant(tensor) or (tensor in requests and requests[tensor].dtype == FLOAT):
            continue
        if tied:
            # An operation that passes on what nobody wants quantized does not quantize it either.
            if results and results[0] in storage.quantized:
                group = storage.group_of[results[0]]
                yield ConstantOperand(tensor, reader, storage.stored[group].spec, group)
            continue
        decision, request = roles.decisions(unit)["activation"], requests.get(tensor)
        dtype = decision.dtype
        if request is not None and outranks(request, decision) and request.dtype in roles.target.activations:
            dtype = request.dtype
        yield ConstantOperand(tensor, reader, roles.target.activations[dtype])


def weight_axis(node: NodeView, place: int, view: GraphView, target: Target) -> tuple[int | None, Message | None]:
    """The axis of a weight along which each slice has its own scale, and what is unusual about it.

    Returns:
        The axis, None when one scale serves the whole weight; and a note, mostly None.
    """
    axis = target.weight_axes.get(node.operation)
    shape = view.shape(node.inputs[place])
    if axis is None or shape is None or len(shape) < 2:
        return None, None
    if node.operation == "ConvTranspose" and (groups := int(node.attribute("group", 1))) > 1:
        # Axis 1 holds the output channels of one group; where that is a single one, axis 0 tells them apart.
        if shape[1] == 1 and shape[0] == groups:
            return 0, None
        return None, message("quantize.why_one_scale", groups=groups)
    if node.operation == "MatMul" and place == 0:
        # Seen from the left operand, rows are what columns are to the right one.
        axis = len(shape) - 2 if axis % len(shape) == len(shape) - 1 else len(shape) - 1
    elif node.operation == "Gemm":
        # Written for a weight on the right that is not transposed.
        transposed = bool(node.attribute("transB" if place == 1 else "transA", 0))
        axis = 1 - axis % 2 if transposed != (place == 0) else axis
    return (axis % len(shape) if -len(shape) <= axis < len(shape) else None), None


def biases(roles: Roles, weights: Mapping[Consumer, QuantSpec], storage: TensorStorage) -> Iterator[Bias]:
    """All biases of units computed in integers, in execution order.

    Args:
        roles: What every unit is.
        weights: How the quantized weights are quantized, by who reads them.
        storage: How activations are stored.
    """
    if roles.target.bias == FLOAT:
        return
    for unit in roles.units_of("integer"):
        place = bias_place(unit, roles.view)
        if place is None:
            continue
        source, weight = _factors(unit, roles.view)
        request = roles.requests.tensors.get(roles.view.by_name[place.node].inputs[place.input])
        if source not in storage.seen or (weight not in weights and weight not in storage.seen):
            continue
        if request is None or request.dtype != FLOAT:
            yield _bias(unit, place, (source, weight), weights.get(weight), roles.view)


def bias_place(unit: FusedUnit, view: GraphView) -> Consumer | None:
    """Where a unit reads a constant bias."""
    if unit.bias is not None:
        return unit.bias
    place = BIAS_INPUT.get(unit.first.operation)
    if unit.is_pattern or place is None or place >= len(unit.first.inputs):
        return None
    tensor = unit.first.inputs[place]
    return Consumer(unit.first.name, place) if view.is_constant(tensor) and view.is_float(tensor) else None


def _factors(unit: FusedUnit, view: GraphView) -> tuple[Consumer, Consumer]:
    """The two inputs whose product a unit sums: the activation, then the weight."""
    name = unit.first.name
    left_is_weight = view.is_constant(unit.first.inputs[0]) and not view.is_constant(unit.first.inputs[1])
    return (Consumer(name, 1), Consumer(name, 0)) if left_is_weight else (Consumer(name, 0), Consumer(name, 1))


def _bias(
    unit: FusedUnit, place: Consumer, factors: tuple[Consumer, Consumer], weight: QuantSpec | None, view: GraphView
) -> Bias:
    tensor = view.by_name[place.node].inputs[place.input]
    node = unit.first
    if node.operation == "Gemm" and (node.attribute("alpha", 1.0) != 1.0 or node.attribute("beta", 1.0) != 1.0):
        return Bias(tensor, place, *factors, None, message("quantize.why_bias_factor"))
    if weight is None or weight.axis is None:
        return Bias(tensor, place, *factors, None)
    held = view.shape(node.inputs[factors[1].input])
    # A weight on the left has a scale per row, and a bias belongs to columns.
    if held is None or view.shape(tensor) != (held[weight.axis],) or factors[1].input == 0:
        return Bias(tensor, place, *factors, None, message("quantize.why_bias_shape"))
    return Bias(tensor, place, *factors, 0)


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
    notes: Mapping[str, Message]
    biases: frozenset[Consumer]


def make_quantizers(roles: Roles, storage: TensorStorage, methods: Methods) -> Quantizers:
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
    storage: TensorStorage
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
        stored = self.storage.stored[group] if group else None
        fixed = stored.fixed_range if stored else None
        return PlannedQuantizer(
            name,
            tensor,
            "activation",
            spec,
            readers,
            group=group,
            method=self.methods.activations if fixed is None else "",
            fixed_range=fixed,
            range_limit=stored.range_limit if stored else None,
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
