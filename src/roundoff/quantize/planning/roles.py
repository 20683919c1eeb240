"""What every unit is: computed in integers, in float, or passing on what it reads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from roundoff.core.quant_plan import FLOAT
from roundoff.core.quantizer import Consumer
from roundoff.core.target import Target
from roundoff.quantize.planning.fusing import Unit
from roundoff.quantize.planning.selecting import Names
from roundoff.quantize.planning.sockets import PRODUCTS
from roundoff.quantize.planning.view import GraphView
from roundoff.quantize.planning.wishes import Decision, Part, Wishes

__all__ = ["Role", "Roles"]

Role = Literal["none", "follow", "integer", "weight_only", "float"]


@dataclass(frozen=True)
class Roles:
    """The units of a graph with what was decided for each.

    Attributes:
        view: The graph.
        target: For which chip.
        units: In order of their first nodes.
        wishes: What was asked for.
        names: Names of nodes in the user's model.
    """

    view: GraphView
    target: Target
    units: tuple[Unit, ...]
    wishes: Wishes
    names: Names

    @cached_property
    def _units(self) -> dict[str, Unit]:
        return {node.name: unit for unit in self.units for node in unit.nodes}

    @cached_property
    def _decisions(self) -> dict[str, dict[Part, Decision]]:
        return {unit.first.name: self.wishes.decide(unit) for unit in self.units}

    @cached_property
    def _roles(self) -> dict[str, Role]:
        return {unit.first.name: self._role(unit) for unit in self.units}

    def unit_of(self, node: str) -> Unit:
        """The unit a node belongs to."""
        return self._units[node]

    def decisions(self, unit: Unit) -> Mapping[Part, Decision]:
        """What was decided for the parts of a unit."""
        return self._decisions[unit.first.name]

    def role(self, unit: Unit) -> Role:
        """What a unit is."""
        return self._roles[unit.first.name]

    def role_of(self, node: str) -> Role:
        """What the unit of a node is."""
        return self.role(self.unit_of(node))

    def units_of(self, role: Role) -> Iterator[Unit]:
        """All units of a role."""
        return (unit for unit in self.units if self.role(unit) == role)

    def _role(self, unit: Unit) -> Role:
        if not any(self.view.computes_values(node) for node in unit.nodes):
            return "none"
        if unit.obstacle:
            return "float"
        if len(unit.nodes) == 1 and unit.first.operation in self.target.pass_through and not unit.is_pattern:
            return "follow"
        decided = self.decisions(unit)
        if decided["activation"].dtype != FLOAT:
            return "integer"
        return "weight_only" if decided["weight"].dtype not in ("", FLOAT) else "float"

    @cached_property
    def inner(self) -> frozenset[str]:
        """Tensors that exist only inside units."""
        return frozenset(name for unit in self.units for name in unit.inner)

    @cached_property
    def _operands(self) -> frozenset[Consumer]:
        return frozenset(reader for unit in self.units for reader in self.operands(unit))

    def operands(self, unit: Unit) -> tuple[Consumer, ...]:
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
            and reader.input < 2
            and not any(self.view.is_constant(name) for name in unit.first.inputs[:2])
        )
