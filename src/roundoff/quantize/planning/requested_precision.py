"""What is asked for each unit, and what of it the target can give."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from roundoff.core.plan import FLOAT, Precision
from roundoff.core.quantizers import Consumer
from roundoff.core.target import Target
from roundoff.messages.message import Message, message
from roundoff.quantize.planning.rules import Names, RuleSelection
from roundoff.quantize.planning.view import PRODUCTS, FusedUnit, GraphView, NodeView

Part = Literal["activation", "weight", "output"]
PARTS: tuple[Part, ...] = ("activation", "weight", "output")
WHOLLY_FLOAT = Precision(FLOAT, FLOAT, FLOAT)
"""What ``float`` alone asks for."""


@dataclass(frozen=True, slots=True)
class DtypeRequest:
    """One dtype asked for by one rule.

    Attributes:
        dtype: What is asked for.
        strength: Compares requests: how the rule names the node, if it is the one the part belongs to, and how
            late the rule comes.
        rule: The rule as it is written.
        order: Its place among the rules.
        node: The node it names, by its name in the user's model.
        precision: All that the rule asks for.
    """

    dtype: str
    strength: tuple[int, bool, int]
    rule: str
    order: int
    node: str
    precision: Precision

    @property
    def whole(self) -> bool:
        """Whether it asks for the whole node in float, and not for this part alone."""
        return self.precision == WHOLLY_FLOAT


@dataclass(frozen=True, slots=True)
class Decision:
    """What a part of a unit is to be.

    Attributes:
        dtype: The dtype; empty where neighbours decide, or the part does not exist.
        request: The request that was granted; None for the target's default.
        refused: Requests that the target cannot grant, strongest first, each with the reason.
    """

    dtype: str
    request: DtypeRequest | None = None
    refused: tuple[tuple[DtypeRequest, Message], ...] = ()


@dataclass(frozen=True, slots=True)
class TensorRequest:
    """A dtype asked for a tensor by its name.

    Attributes:
        dtype: What is asked for, or what it got instead: empty when it cannot be granted.
        strength: As in `DtypeRequest`.
        rule: The rule as it is written.
        order: Its place among the rules.
        refusal: Why it cannot be granted.
    """

    dtype: str
    strength: tuple[int, bool, int]
    rule: str
    order: int
    refusal: Message | None = None


def outranks(request: TensorRequest, decision: Decision) -> bool:
    """Whether a request for a tensor counts more than that granted to a node that reads it; else the later."""
    granted = decision.request
    other = (granted.strength[0], granted.order) if granted is not None else (0, -1)
    return bool(request.dtype) and (request.strength[0], request.order) > other


def weight_edges(unit: FusedUnit, view: GraphView) -> tuple[int, ...]:
    """Inputs of a unit's first node that are its weights: the constant factors of a product."""
    node = unit.first
    if unit.is_pattern or node.operation not in PRODUCTS:
        return ()
    places = [place for place in (0, 1) if place < len(node.inputs) and view.is_constant(node.inputs[place])]
    return tuple(place for place in places if view.is_float(node.inputs[place]))


@dataclass(frozen=True, slots=True)
class DtypeRequests:
    """All requests of all rules, by what they are for.

    Attributes:
        target: For which chip.
        view: The graph.
        names: Names of nodes in the user's model.
        tensors: The strongest request for each tensor that is named itself.
        by_node: What names each node, and how strongly.
    """

    target: Target
    view: GraphView
    names: Names
    tensors: Mapping[str, TensorRequest]
    by_node: Mapping[str, Sequence[tuple[RuleSelection, int]]]

    @classmethod
    def of(
        cls, selections: Iterable[RuleSelection], view: GraphView, target: Target, names: Names
    ) -> "DtypeRequests":
        """Sort the selections of all rules by what they name."""
        by_node: dict[str, list[tuple[RuleSelection, int]]] = defaultdict(list)
        tensors: dict[str, TensorRequest] = {}
        for selection in selections:
            for node, rank in selection.ranks.items():
                if rank:
                    by_node[node].append((selection, rank))
            for tensor, rank in selection.tensors.items():
                request = _tensor_wish(tensor, selection, rank, view, target)
                if tensor not in tensors or request.strength > tensors[tensor].strength:
                    tensors[tensor] = request
        return cls(target, view, names, tensors, by_node)

    def every(self, node: NodeView, part: Part, *, own: bool = True) -> list[DtypeRequest]:
        """Requests of the rules that name a node, for one part, strongest first.

        Args:
            node: The node.
            part: Which part.
            own: Whether the part belongs to this node and not to another of its unit.
        """
        name = self.names.original(node.name)
        found = [
            DtypeRequest(
                getattr(selection.rule.precision, part),
                (rank, own, selection.order),
                selection.text,
                selection.order,
                name,
                selection.rule.precision,
            )
            for selection, rank in self.by_node.get(node.name, ())
            if getattr(selection.rule.precision, part)
        ]
        return sorted(found, key=_strength, reverse=True)

    def named(self, node: NodeView, part: Part) -> list[DtypeRequest]:
        """Like `every`, without those for a whole node in float where something else counts more."""
        return _counting(self.every(node, part), self.every(node, "activation"))

    def owners(self, unit: FusedUnit, part: Part) -> tuple[NodeView, ...]:
        """The nodes of a unit that have a part of it; what lies between them has none.

        What is asked for the output of a unit may also be said to the nodes that read its inputs.
        """
        view = self.view
        if part == "weight":
            return (unit.first,)
        live = (
            node
            for node in unit.nodes
            if any(tensor not in unit.inner and not view.is_constant(tensor) for _, tensor in view.operands(node))
        )
        reading = tuple(live) or (unit.first,)
        return tuple(dict.fromkeys((*reading, unit.last))) if part == "output" else reading

    def asked(self, unit: FusedUnit, part: Part) -> list[DtypeRequest]:
        """All requests for a part of a unit, strongest first; of equals, for its output, its last node's."""
        found = [
            request
            for node in self.owners(unit, part)
            for request in self.every(node, part, own=part != "output" or node is unit.last)
        ]
        computed = [each for node in self.owners(unit, "activation") for each in self.every(node, "activation")]
        return _counting(sorted(found, key=_strength, reverse=True), computed)

    def decide(self, unit: FusedUnit) -> dict[Part, Decision]:
        """What each part of a unit is to be."""
        decisions: dict[Part, Decision] = {}
        whole_refused: dict[int, Message] = {}
        for part in PARTS:
            refused = []
            granted = None
            # Strongest first; one that the target cannot grant makes way for the next, and is on record. A rule
            # for a whole node that fails in one part is not granted in the parts behind it either: half of it
            # would be a precision that nobody asked for.
            for request in self.asked(unit, part):
                reason = whole_refused.get(request.order) if request.whole else None
                reason = reason or self._refusal(unit, part, request.dtype)
                if not reason:
                    granted = request
                    break
                refused.append((request, reason))
                if request.whole:
                    whole_refused[request.order] = reason
            dtype = granted.dtype if granted is not None else self._default(unit, part, decisions)
            decisions[part] = Decision(dtype, granted, tuple(refused))
        return decisions

    def _default(self, unit: FusedUnit, part: Part, decided: Mapping[Part, Decision]) -> str:
        if part == "weight":
            has_weight = bool(weight_edges(unit, self.view))
            return "" if not has_weight else FLOAT if unit.obstacle else self.target.weight
        if part == "activation":
            return FLOAT if unit.obstacle or self.target.weight_only else self.target.activation
        return FLOAT if decided["activation"].dtype == FLOAT or self.target.float_results else ""

    def _refusal(self, unit: FusedUnit, part: Part, dtype: str) -> Message | None:
        """Why a dtype cannot be granted; None when it can."""
        if part == "weight" and not weight_edges(unit, self.view):
            return (
                None if dtype == FLOAT else message("quantize.why_no_part", part=message("quantize.part_weight"))
            )
        if unit.obstacle:
            return None if dtype == FLOAT else unit.obstacle
        if dtype == FLOAT:
            return self._float_refusal(unit, part)
        if part == "output" and self.target.float_results:
            return message("quantize.why_float_results", target=self.target.name)
        return _integer_refusal(self.target, part, dtype, unit.first.operation)

    def _float_refusal(self, unit: FusedUnit, part: Part) -> Message | None:
        if not self.target.float_allowed:
            return message("quantize.why_no_float", target=self.target.name)
        allowed = self.target.only.get(f"{part}.{FLOAT}")
        if allowed is None or (part == "output" and self.target.float_results):
            return None
        operations = [unit.first.operation] if part == "weight" else [node.operation for node in unit.nodes]
        other = next((operation for operation in operations if operation not in allowed), "")
        known = ", ".join(sorted(allowed))
        key = "quantize.why_float_only" + ("" if part == "activation" else f"_{part}")
        return message(key, target=self.target.name, known=known, other=other) if other else None


def _strength(request: DtypeRequest) -> tuple[int, bool, int]:
    return request.strength


def _counting(requests: list[DtypeRequest], computed: list[DtypeRequest]) -> list[DtypeRequest]:
    """Who asks for a whole node in float does not ask for a float weight of a node computed in integers."""
    strongest = max(computed, key=_strength, default=None)
    if strongest is None or strongest.dtype == FLOAT:
        return requests
    return [request for request in requests if not (request.whole and strongest.strength > request.strength)]


def _integer_refusal(target: Target, part: Part, dtype: str, operation: str) -> Message | None:
    offered = target.weights if part == "weight" else target.activations
    what = message(f"quantize.what_{'weights' if part == 'weight' else 'activations'}")
    if dtype not in offered:
        return message(
            "quantize.why_offers", target=target.name, what=what, offered=", ".join(offered), dtype=dtype
        )
    limit = target.only.get(f"{'weight' if part == 'weight' else 'activation'}.{dtype}")
    if limit is not None and operation not in limit:
        known = ", ".join(sorted(limit))
        return message(
            "quantize.why_offers_for", target=target.name, what=what, dtype=dtype, known=known, other=operation
        )
    return None


def tensor_dtype(precision: Precision, *, constant: bool) -> str:
    """The dtype that a rule asks for a tensor it names."""
    order = ("weight", "activation", "output") if constant else ("output", "activation", "weight")
    return next(str(value) for part in order if (value := getattr(precision, part)))


def _tensor_wish(
    tensor: str, selection: RuleSelection, rank: int, view: GraphView, target: Target
) -> TensorRequest:
    """The request of a rule that names a tensor, which has one dtype whatever part of a node it is to whom."""
    constant = view.is_constant(tensor)
    dtype = tensor_dtype(selection.rule.precision, constant=constant)
    strength = (rank, True, selection.order)
    reason: Message | None = None
    if not view.is_float(tensor):
        reason = message("quantize.why_no_floats", tensor=repr(tensor))
    elif dtype == FLOAT and not target.float_allowed:
        reason = message("quantize.why_no_float", target=target.name)
    elif dtype != FLOAT:
        offered = {**target.weights, **target.activations} if constant else target.activations
        what = message(f"quantize.what_{'constants' if constant else 'activations'}")
        if dtype not in offered:
            reason = message(
                "quantize.why_offers", target=target.name, what=what, offered=", ".join(offered), dtype=dtype
            )
    return TensorRequest("" if reason else dtype, strength, selection.text, selection.order, reason)


# What every unit is: computed in integers, in float, or passing on what it reads.

Role = Literal["none", "follow", "integer", "weight_only", "float"]


@dataclass(frozen=True)
class Roles:
    """The units of a graph with what was decided for each.

    Attributes:
        view: The graph.
        target: For which chip.
        units: In order of their first nodes.
        requests: What was asked for.
        names: Names of nodes in the user's model.
    """

    view: GraphView
    target: Target
    units: tuple[FusedUnit, ...]
    requests: DtypeRequests
    names: Names

    @cached_property
    def _units(self) -> dict[str, FusedUnit]:
        return {node.name: unit for unit in self.units for node in unit.nodes}

    @cached_property
    def _decisions(self) -> dict[str, dict[Part, Decision]]:
        return {unit.first.name: self.requests.decide(unit) for unit in self.units}

    @cached_property
    def _roles(self) -> dict[str, Role]:
        return {unit.first.name: self._role(unit) for unit in self.units}

    def unit_of(self, node: str) -> FusedUnit:
        """The unit a node belongs to."""
        return self._units[node]

    def decisions(self, unit: FusedUnit) -> Mapping[Part, Decision]:
        """What was decided for the parts of a unit."""
        return self._decisions[unit.first.name]

    def role(self, unit: FusedUnit) -> Role:
        """What a unit is."""
        return self._roles[unit.first.name]

    def role_of(self, node: str) -> Role:
        """What the unit of a node is."""
        return self.role(self.unit_of(node))

    def units_of(self, role: Role) -> Iterator[FusedUnit]:
        """All units of a role."""
        return (unit for unit in self.units if self.role(unit) == role)

    def _role(self, unit: FusedUnit) -> Role:
        if not any(self.view.computes_values(node) for node in unit.nodes):
            return "none"
        if unit.obstacle:
            return "float"
        if len(unit.nodes) == 1 and unit.first.operation in self.target.pass_through and not unit.is_pattern:
            return "follow"
        decided = self.decisions(unit)
        # Activations decide the arithmetic: an integer weight with float activations is stored, not computed with.
        if decided["activation"].dtype != FLOAT:
            return "integer"
        return "weight_only" if decided["weight"].dtype not in ("", FLOAT) else "float"

    @cached_property
    def read_in_float(self) -> frozenset[str]:
        """Tensors that only nodes read for which somebody asks float, perhaps behind others that pass them on.

        Who asks for a Softmax in float means its scores, too: rounded ones would be float in name only. What a
        rule says of the tensor itself, or of what the node writes that computes it, counts more.
        """
        found: set[str] = set()
        asking = {unit.first.name for unit in self.units_of("float") if self._asks_float(unit)}
        for unit in reversed(self.units):
            output = None if self.role(unit) == "follow" else self.decisions(unit)["output"].request
            if output is None or output.dtype == FLOAT:
                results = self.view.results(unit.last)
                found.update(name for name in results if self._is_read_in_float(name, asking, found))
        return frozenset(found)

    def _asks_float(self, unit: FusedUnit) -> bool:
        request = self.decisions(unit)["activation"].request
        return request is not None and request.dtype == FLOAT

    def _is_read_in_float(self, tensor: str, asking: set[str], found: set[str]) -> bool:
        if self.target.float_results or tensor in self.view.outputs or tensor in self.requests.tensors:
            return False
        readers = {self.unit_of(reader.node).first.name: reader.node for reader in self.view.readers[tensor]}
        return bool(readers) and all(
            first in asking
            or (self.role_of(node) == "follow" and set(self.view.results(self.unit_of(node).last)) <= found)
            for first, node in readers.items()
        )

    @cached_property
    def inner(self) -> frozenset[str]:
        """Tensors that exist only inside units."""
        return frozenset(name for unit in self.units for name in unit.inner)

    @cached_property
    def _operands(self) -> frozenset[Consumer]:
        return frozenset(reader for unit in self.units for reader in self.operands(unit))

    def operands(self, unit: FusedUnit) -> tuple[Consumer, ...]:
        """The inputs at which a unit reads live values from outside."""
        return tuple(
            reader
            for node in unit.nodes
            for reader, tensor in self.view.operands(node)
            if tensor not in unit.inner and not self.view.is_constant(tensor)
        )

    def is_operand(self, reader: Consumer) -> bool:
        """Whether a node input reads a live value for its unit."""
        return reader in self._operands

    @cached_property
    def live_operands(self) -> frozenset[Consumer]:
        """Operands of products that have no constant factor."""
        return frozenset(
            reader
            for unit in self.units_of("integer")
            if unit.first.operation in PRODUCTS and not unit.is_pattern
            for reader in self.operands(unit)
            if reader.node == unit.first.name
            and reader.input in self.target.live_places
            and not any(self.view.is_constant(name) for name in unit.first.inputs[:2])
        )
