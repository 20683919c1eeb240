"""Which tensors operations tie together, and which are quantized where they are computed."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from roundoff.core.quant_plan import FLOAT
from roundoff.core.quantizer import Consumer
from roundoff.quantize.planning.fusing import Unit
from roundoff.quantize.planning.roles import Roles
from roundoff.quantize.planning.view import GraphView

__all__ = ["Links", "find_links"]


class _Groups:
    """Tensors that share a scale: sets that are joined, each known by its first tensor."""

    def __init__(self, order: Mapping[str, int]) -> None:
        self._above: dict[str, str] = {}
        self._order = order

    def find(self, tensor: str) -> str:
        root = tensor
        while (above := self._above.get(root, root)) != root:
            root = above
        while (above := self._above.get(tensor, tensor)) != root:
            self._above[tensor] = root
            tensor = above
        return root

    def join(self, tensors: Iterable[str]) -> None:
        roots = {self.find(tensor) for tensor in tensors}
        first = min(roots, key=self._order.__getitem__, default="")
        for root in roots:
            self._above[root] = first


@dataclass(slots=True)
class Links:
    """What holds tensors together.

    Attributes:
        roles: What every unit is.
        apart: Inputs of operations with a shared scale that keep a range of their own and are read as copies, each
            with a tensor of the group whose scale these have.
        active: Nodes that pass integers on.
        quantized: Tensors that are quantized where they are computed.
    """

    roles: Roles
    apart: dict[Consumer, str] = field(default_factory=dict)
    active: set[str] = field(default_factory=set)
    quantized: set[str] = field(default_factory=set)
    _groups: _Groups = field(init=False)

    def __post_init__(self) -> None:
        tensors = [*self.view.inputs, *self.view.producers]
        self._groups = _Groups({name: place for place, name in enumerate(tensors)})

    @property
    def view(self) -> GraphView:
        """The graph."""
        return self.roles.view

    def group(self, tensor: str) -> str:
        """The first tensor of those that share a scale with this one."""
        return self._groups.find(tensor)

    def is_float_by_wish(self, tensor: str) -> bool:
        """Whether a rule asks for a tensor in float by its name."""
        wish = self.roles.wishes.tensors.get(tensor)
        return wish is not None and wish.dtype == FLOAT

    def shares(self, unit: Unit) -> bool:
        """Whether all that a unit reads and writes has one scale."""
        return unit.first.operation in self.roles.target.shared_scale and len(unit.nodes) == 1

    def _live_operands(self, unit: Unit) -> list[str]:
        return [tensor for _, tensor in self.view.operands(unit.first) if not self.view.is_constant(tensor)]

    def join_followers(self) -> None:
        """Tie what operations read that they only pass on to what they write."""
        for unit in self.roles.units_of("follow"):
            if len(self._live_operands(unit)) > 1:
                continue  # joined like those of operations with a shared scale
            linked = [name for name in self.view.results(unit.last) if not self._feeds_live_operands_only(name)]
            self._groups.join([*self._live_operands(unit), *linked])

    def _feeds_live_operands_only(self, tensor: str) -> bool:
        """Whether a tensor is nothing but an operand of products without a constant, which has its own spec."""
        if self.roles.target.live_operand is None:
            return False
        readers = self.view.readers[tensor]
        private = self.view.is_private(tensor) and bool(readers)
        return private and all(reader in self.roles.live_operands for reader in readers)

    def join_sharers(self) -> None:
        """Tie all together that operations with a shared scale read and write."""
        for unit in self.sharers():
            # Constants are not tied by their names: two operations may read the same one with scales of their own.
            operands = [edge for edge in self.view.operands(unit.first) if not self.view.is_constant(edge[1])]
            fixed = {reader: self.fixed_ranges(self.group(tensor)) for reader, tensor in operands}
            together = list(self.view.results(unit.last))
            # What always has the same range cannot share it with others; they read a copy that does.
            apart = {reader for reader in fixed if fixed[reader]} if len({*fixed.values()}) > 1 else set()
            together += [tensor for reader, tensor in operands if reader not in apart]
            self.apart.update(dict.fromkeys(apart, together[0]))
            self._groups.join(together)

    def sharers(self) -> Iterator[Unit]:
        """Units whose operands and results share one scale."""
        for unit in self.roles.units:
            role = self.roles.role(unit)
            joins = role == "follow" and len(self._live_operands(unit)) > 1
            if joins or (role == "integer" and self.shares(unit)):
                yield unit

    def fixed_ranges(self, group: str) -> tuple[tuple[str, tuple[float, float]], ...]:
        """The ranges a group has whatever is observed, by dtype, because of the operation that computes it."""
        producer = self.view.producers.get(group)
        if producer is None or self.roles.role_of(producer.name) != "integer":
            return ()
        keys = (key.partition(":") for key in sorted(self.roles.target.fixed_ranges))
        return tuple(
            (dtype, self.roles.target.fixed_ranges[f"{operation}{colon}{dtype}"])
            for operation, colon, dtype in keys
            if operation == producer.operation
        )

    def find_quantized(self) -> None:
        """Find out where integers are written."""
        demanded = self._demanded()
        for unit in self.roles.units:
            role, results = self.roles.role(unit), self.view.results(unit.last)
            if role == "follow":
                inputs = {tensor for _, tensor in self.view.operands(unit.first)}
                if not inputs & self.quantized and demanded.isdisjoint(results):
                    continue
                self.active.add(unit.first.name)
            elif role != "integer" or self.roles.decisions(unit)["output"].dtype == FLOAT:
                continue
            self.quantized.update(name for name in results if self._is_wanted(name))

    def _is_wanted(self, tensor: str) -> bool:
        """Whether there is anybody for whom a tensor can be quantized where it is computed."""
        leaves = tensor in self.view.outputs and self.roles.target.quantize_outputs
        return (leaves or bool(self.view.readers[tensor])) and not self.is_float_by_wish(tensor)

    def _demanded(self) -> set[str]:
        """Tensors of which some reader, perhaps behind others that only pass them on, wants integers."""
        found: set[str] = set()
        for unit in reversed(self.roles.units):
            role = self.roles.role(unit)
            if role == "integer" or (role == "follow" and not found.isdisjoint(self.view.results(unit.last))):
                found.update(
                    tensor
                    for node in unit.nodes
                    for _, tensor in self.view.operands(node)
                    if not self.is_float_by_wish(tensor)
                )
        return found


def find_links(roles: Roles) -> Links:
    """Find out which tensors are tied together and which are quantized where they are computed."""
    links = Links(roles)
    links.join_followers()
    # Whether a range is fixed is known only then.
    links.join_sharers()
    links.find_quantized()
    return links
