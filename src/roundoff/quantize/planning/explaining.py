"""What every node was meant to be, what it becomes, and why."""

from collections.abc import Iterator
from dataclasses import dataclass

from roundoff.core.quant_plan import FLOAT, NodePlan, Precision
from roundoff.core.quantizer import Consumer
from roundoff.quantize.planning.fusing import Unit
from roundoff.quantize.planning.quantizers import Quantizers
from roundoff.quantize.planning.roles import Roles
from roundoff.quantize.planning.storing import Storage
from roundoff.quantize.planning.view import NodeView
from roundoff.quantize.planning.wishes import PARTS, Part, Wish, weight_edges

__all__ = ["Explainer"]

_NO_VALUES = "it computes shapes, indices or other whole numbers: there is nothing to quantize"


@dataclass(frozen=True, slots=True)
class Explainer:
    """Tells what became of nodes.

    Attributes:
        roles: What every unit is.
        storage: How tensors are stored.
        quantizers: What is quantized.
    """

    roles: Roles
    storage: Storage
    quantizers: Quantizers

    def plan(self, node: NodeView) -> NodePlan:
        """The plan of one node."""
        unit = self.roles.unit_of(node.name)
        effective = self._effective(unit, node)
        requested = self._requested(unit, node, effective)
        reasons = dict.fromkeys(self._reasons(unit, node, requested, effective))
        names = self.roles.names
        return NodePlan(
            names.original(node.name),
            node.operation,
            names.original(unit.first.name),
            requested,
            effective,
            "; ".join(reasons),
        )

    # What it becomes

    def _effective(self, unit: Unit, node: NodeView) -> Precision:
        role = self.roles.role(unit)
        if role == "none":
            return Precision()
        output = self._output(unit) if node is unit.last else ""
        if not self._has(unit, node, "activation"):
            return Precision(output=output)
        if role in ("float", "weight_only"):
            activation = FLOAT if any(True for _ in self.roles.view.value_inputs_of(unit.nodes)) else ""
        else:
            specs = (self.storage.seen.get(reader) for reader in self.roles.operands(unit))
            activation = "/".join(dict.fromkeys(spec.dtype if spec is not None else FLOAT for spec in specs))
        return Precision(activation, self._weight(unit, node), output)

    def _has(self, unit: Unit, node: NodeView, part: Part) -> bool:
        """Whether a part of a unit is one of this node."""
        return node is unit.last if part == "output" else node in self.roles.wishes.owners(unit, part)

    def _weight(self, unit: Unit, node: NodeView) -> str:
        places = weight_edges(unit, self.roles.view) if node is unit.first else ()
        specs = [self.quantizers.weights.get(Consumer(node.name, place)) for place in places]
        return "/".join(dict.fromkeys(spec.dtype if spec is not None else FLOAT for spec in specs))

    def _output(self, unit: Unit) -> str:
        found = []
        for tensor in self._results(unit):
            stored = self.storage.spec_of(tensor)
            found.append(stored.spec.dtype if stored is not None else FLOAT)
        return "/".join(dict.fromkeys(found))

    def _results(self, unit: Unit) -> list[str]:
        view = self.roles.view
        return [name for name in view.results(unit.last) if view.readers[name] or name in view.outputs]

    # What was asked for

    def _requested(self, unit: Unit, node: NodeView, effective: Precision) -> Precision:
        asked = {part: self._asked(unit, node, part, effective) for part in PARTS}
        return Precision(**asked)

    def _asked(self, unit: Unit, node: NodeView, part: Part, effective: Precision) -> str:
        wishes = self.roles.wishes.named(node, part)
        exists = getattr(effective, part)
        if wishes and (exists or not self._asks_for_more(wishes[0], effective)):
            return wishes[0].dtype
        if part == "output" and node is unit.last:
            for tensor in self._results(unit):
                if tensor in self.roles.wishes.tensors and self.roles.wishes.tensors[tensor].refusal == "":
                    return self.roles.wishes.tensors[tensor].dtype
        return self._default(unit, part) if exists and self.roles.role(unit) != "follow" else exists

    @staticmethod
    def _asks_for_more(wish: Wish, effective: Precision) -> bool:
        """Whether a wish is also for a part that a node has."""
        return any(getattr(wish.precision, part) and getattr(effective, part) for part in PARTS)

    def _default(self, unit: Unit, part: Part) -> str:
        target = self.roles.target
        if unit.obstacle:
            return FLOAT
        if part == "weight":
            return target.weight
        if part == "activation":
            live = target.live_operand
            is_live = any(reader in self.roles.live_operands for reader in self.roles.operands(unit))
            return live.dtype if live is not None and is_live else target.activation
        read = any(self.roles.view.readers[name] for name in self._results(unit))
        leaves = not target.quantize_outputs and not read
        decided_float = self.roles.decisions(unit)["activation"].dtype == FLOAT
        return FLOAT if leaves or target.float_results or decided_float else target.activation

    # Why they differ

    def _reasons(self, unit: Unit, node: NodeView, requested: Precision, effective: Precision) -> Iterator[str]:
        role = self.roles.role(unit)
        name = self.roles.names.original(node.name)
        if role == "none":
            if requested != effective:
                yield _NO_VALUES
            return
        if role == "float" and unit.obstacle:
            yield unit.obstacle
        for part in PARTS:
            asked, got = getattr(requested, part), getattr(effective, part)
            if asked != got:
                refused = self.roles.decisions(unit)[part].refused if role != "follow" else ()
                reasons = [reason for wish, reason in refused if wish.node == name]
                yield reasons[0] if reasons else self._why(unit, node, part, got)
        if requested.activation == effective.activation == FLOAT and self.roles.wishes.named(node, "activation"):
            yield from self._neighbours(unit)
        if node.name in self.quantizers.notes:
            yield self.quantizers.notes[node.name]
        if requested == effective == Precision() and node not in (unit.first, unit.last):
            yield f"computed inside the unit of {self.roles.names.original(unit.first.name)}"

    def _why(self, unit: Unit, node: NodeView, part: Part, got: str) -> str:
        """Why a part of a node is not what was asked for."""
        if self.roles.role(unit) == "follow":
            return f"it only passes values on, so its neighbours decide{self._stored_why(unit)}"
        if not got:
            return self._missing_why(unit, node, part)
        wish = self.roles.decisions(unit)[part].wish
        if wish is not None and wish.dtype == got and wish.node != self.roles.names.original(node.name):
            return f"it is computed as one with {wish.node}, for which {wish.rule!r} asks for {got}"
        tensor = next(self._named_tensors(unit, node, part), None)
        if tensor is not None:
            return f"{self.roles.wishes.tensors[tensor].rule!r} names {tensor!r}"
        if part == "output":
            return f"its output is stored as {got}{self._stored_why(unit)}"
        return self._operand_why(unit, part, got)

    def _missing_why(self, unit: Unit, node: NodeView, part: Part) -> str:
        if part == "weight" or self._has(unit, node, part):
            return f"it has no {part}"
        other = self.roles.names.original((unit.first if node is not unit.first else unit.last).name)
        return f"it is computed as one with {other}, and what is between them does not exist"

    def _named_tensors(self, unit: Unit, node: NodeView, part: Part) -> Iterator[str]:
        tensors: list[str] = self._results(unit)
        if part == "weight":
            tensors = [node.inputs[place] for place in weight_edges(unit, self.roles.view)]
        elif part == "activation":
            tensors = [self.roles.view.read_at(reader) for reader in self.roles.operands(unit)]
        wishes = self.roles.wishes.tensors
        return (tensor for tensor in tensors if tensor in wishes and wishes[tensor].dtype)

    def _stored_why(self, unit: Unit) -> str:
        whys = (stored.why for name in self._results(unit) if (stored := self.storage.spec_of(name)) is not None)
        why = next((why for why in whys if why), "")
        return f": {why}" if why else ""

    def _operand_why(self, unit: Unit, part: Part, got: str) -> str:
        if any(reader in self.roles.live_operands for reader in self.roles.operands(unit)):
            return f"{self.roles.target.name} takes operands of products without a constant as {got}"
        if unit.first.operation in self.roles.target.shared_scale:
            return f"it shares one scale with all it reads and writes{self._stored_why(unit)}"
        if self.roles.decisions(unit)["activation"].dtype == FLOAT:
            return "it is computed in float"
        return f"its {part} is {got}"

    def _neighbours(self, unit: Unit) -> Iterator[str]:
        """What a node in float reads of nodes that are not."""
        for reader in self.roles.operands(unit):
            tensor = self.roles.view.read_at(reader)
            stored = self.storage.spec_of(tensor)
            producer = self.roles.view.producers.get(tensor)
            if stored is not None and producer is not None:
                writer = self.roles.names.original(producer.name)
                yield f"what it reads of {writer} is stored as {stored.spec.dtype}"
