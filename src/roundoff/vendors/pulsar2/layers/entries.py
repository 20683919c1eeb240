"""What the entries of layer_configs name, and which of them counts for each node."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from roundoff.core.plan import FLOAT, Precision, Rule
from roundoff.core.target import Target
from roundoff.errors import BadInput, nearest
from roundoff.graph.load import Model
from roundoff.graph.preparation.steps import Prepared
from roundoff.quantize.planning.fusing import Unit, find_units
from roundoff.quantize.planning.rules import Names, select
from roundoff.quantize.planning.view import GraphView
from roundoff.vendors.pulsar2.config.schema import EVERY, DataType, LayerConfig
from roundoff.vendors.pulsar2.operators import frontend_type

__all__ = ["PARTS", "Choice", "Entry", "Frontend", "Reason", "asked_for", "read_entries", "wanted_by"]

PARTS = ("activation", "weight", "output")
"""data_type, weight_data_type and output_data_type."""

# In whatever order they are listed, a named layer counts more than a type, a type more than a part of the graph.
_STRENGTH = {"layer": 3, "op_type": 2, "subgraph": 1}
_NOTHING = DataType.DefaultDataType
_MADE_BY_VENDOR = "op_"
_UNUSED = "it is not in the optimized model: what it computes is a constant, or is not needed"
_CONSTANT = (_UNUSED, _UNUSED)


Reason = tuple[str, str]
"""In general, so that nodes with the same one can be told together; and in full."""


@dataclass(frozen=True, eq=False)
class Frontend:
    """The graph that is quantized, with the names it has in the user's model.

    Attributes:
        original: The user's model.
        prepared: The graph behind the frontend.
        target: For which chip.
    """

    original: Model
    prepared: Prepared
    target: Target

    @cached_property
    def view(self) -> GraphView:
        """The graph that is quantized."""
        return GraphView(self.prepared.model)

    @cached_property
    def names(self) -> Names:
        """Names of nodes in both graphs."""
        return Names(self.view, self.prepared.origins)

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """What is computed as one."""
        return find_units(self.view, self.target)

    @cached_property
    def unit_of(self) -> Mapping[str, Unit]:
        """The unit of each node of the graph."""
        return {node.name: unit for unit in self.units for node in unit.nodes}

    def moves(self, unit: Unit) -> bool:
        """Whether a unit only passes values on."""
        single = len(unit.nodes) == 1 and not unit.is_pattern and not unit.obstacle
        return single and unit.first.operation in self.target.pass_through

    def type_of(self, unit: Unit) -> str:
        """The type a unit has behind the frontend."""
        return frontend_type(unit, self.view)

    def owners(self, unit: Unit) -> tuple[str, ...]:
        """The nodes of a unit that read what it works on: a precision is asked for these."""
        found = [
            node.name
            for node in unit.nodes
            if any(
                name not in unit.inner and not self.view.is_constant(name) for _, name in self.view.operands(node)
            )
        ]
        return tuple(found) or (unit.first.name,)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry, and what it names.

    Attributes:
        number: Its place in the list, from 1.
        config: The entry.
        nodes: The nodes it names, by the user's names, each with the nodes of the graph that it is for.
        lost: Nodes it names that it is without effect for, each with the reason, in general and in full.
        unknown: Names that name nothing, each with a suggestion.
    """

    number: int
    config: LayerConfig
    nodes: Mapping[str, tuple[str, ...]]
    lost: Mapping[str, Reason] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def strength(self) -> tuple[int, int]:
        """Compares entries; of equal ones the later counts."""
        return _STRENGTH[self.config.kind], self.number

    @property
    def selector(self) -> str:
        """What it names, as the configuration says it."""
        config = self.config
        if config.kind == "subgraph":
            starts, ends = config.start_tensor_names or (EVERY,), config.end_tensor_names or (EVERY,)
            return f"{','.join(starts)} .. {','.join(ends)}"
        return ", ".join(config.layers if config.kind == "layer" else config.types)

    def asks(self, part: str) -> DataType:
        """What it asks for a part of a node."""
        config = self.config
        asked = {
            "activation": config.data_type,
            "weight": config.weight_data_type,
            "output": config.output_data_type,
        }
        return asked[part]

    @property
    def precision(self) -> str:
        """What it asks for, in a few words."""
        words = {"activation": "", "weight": "weight ", "output": "output "}
        asked = [f"{words[part]}{self.asks(part).name}" for part in PARTS if self.asks(part) is not _NOTHING]
        return ", ".join(asked) or "nothing"


def asked_for(config: LayerConfig) -> list[tuple[str, str]]:
    """What an entry names, each with the precision asked for; nothing is looked up."""
    entry = Entry(0, config, {})
    return [(name, entry.precision) for name in config.layers or config.types or (entry.selector,)]


@dataclass(frozen=True, slots=True)
class Choice:
    """What is asked for one part of one node, and by which entry."""

    dtype: str
    entry: Entry


def read_entries(configs: Sequence[LayerConfig], frontend: Frontend) -> tuple[Entry, ...]:
    """Find out what every entry names; nothing is refused here."""
    return tuple(_Reader(frontend).read(number, config) for number, config in enumerate(configs, 1))


def wanted_by(entries: Sequence[Entry]) -> dict[str, dict[str, Choice]]:
    """What is asked for the parts of each node of the graph, by the entry that counts most for it."""
    found: dict[str, dict[str, Choice]] = {}
    for entry in sorted(entries, key=lambda each: each.strength):
        for node in dict.fromkeys(node for nodes in entry.nodes.values() for node in nodes):
            for part in PARTS:
                asked = entry.asks(part)
                if asked is not _NOTHING:
                    dtype = FLOAT if asked is DataType.FP32 else asked.name.lower()
                    found.setdefault(node, {})[part] = Choice(dtype, entry)
    return found


class _Reader:
    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend
        self._original = {node.name: node.op_type for node in frontend.original.proto.graph.node}

    def read(self, number: int, config: LayerConfig) -> Entry:
        nodes: dict[str, tuple[str, ...]] = {}
        lost: dict[str, Reason] = {}
        unknown: dict[str, str] = {}
        if config.kind == "layer":
            for name in config.layers:
                self._add_layer(name, nodes, lost, unknown)
        elif config.kind == "op_type":
            for name in config.types:
                self._add_type(name, nodes, lost, unknown)
        else:
            self._add_part(config, nodes, lost, unknown)
        ordered = {name: nodes[name] for name in sorted(nodes, key=self._frontend.names.places.__getitem__)}
        return Entry(number, config, ordered, lost, unknown)

    def _add_layer(
        self, name: str, nodes: dict[str, tuple[str, ...]], lost: dict[str, Reason], unknown: dict[str, str]
    ) -> None:
        """A layer by its name in the user's model, or in the optimized one; one that was merged means it all."""
        frontend = self._frontend
        if name not in frontend.names.known:
            unknown[name] = self._suggestion(name, frontend.names.known)
            return
        current = frontend.names.current(name)
        if current:
            nodes[name] = frontend.owners(frontend.unit_of[current])
        else:
            lost[name] = _CONSTANT

    def _suggestion(self, name: str, known: Sequence[str]) -> str:
        if name.startswith(_MADE_BY_VENDOR) and ":onnx." in name:
            return "the vendor's frontend made this name; use the name the node has in the ONNX model"
        return nearest(name, known)

    def _add_type(
        self, name: str, nodes: dict[str, tuple[str, ...]], lost: dict[str, Reason], unknown: dict[str, str]
    ) -> None:
        """Every operation of a type of ONNX, or of the frontend's."""
        frontend = self._frontend
        known = False
        for unit in frontend.units:
            kind, owners = frontend.type_of(unit), frontend.owners(unit)
            if kind == name:
                known = True
                nodes[frontend.names.original(unit.first.name)] = owners
                continue
            for node in unit.nodes:
                if node.operation != name:
                    continue
                known, user = True, frontend.names.original(node.name)
                if node.name in owners:
                    nodes[user] = owners
                else:
                    first = frontend.names.original(unit.first.name)
                    lost[user] = (
                        f"it is fused into the {kind} in front: ask for {kind}, or for it by name",
                        f"it is fused into {first}: ask for {kind}, or for it by name",
                    )
        for user, operation in self._original.items():
            if operation == name and user not in nodes and user not in lost and operation != "Constant":
                known, lost[user] = True, self._gone(user)
        if not known:
            types = dict.fromkeys((*self._original.values(), *map(frontend.type_of, frontend.units)))
            unknown[name] = f"the model has no such operation; {nearest(name, types)}"

    def _gone(self, user: str) -> Reason:
        """What became of a node that is in the user's model only."""
        current = self._frontend.prepared.origins.get(user, "")
        if not current or current not in self._frontend.view.by_name:
            return _CONSTANT
        name, unit = self._frontend.names.original(current), self._frontend.unit_of[current]
        kind, folded = self._frontend.type_of(unit), "it is not in the optimized model: it is folded into"
        return f"{folded} {kind}; ask for that", f"{folded} {name} ({kind})"

    def _add_part(
        self,
        config: LayerConfig,
        nodes: dict[str, tuple[str, ...]],
        lost: dict[str, Reason],
        unknown: dict[str, str],
    ) -> None:
        """Every operation on a way from a start tensor to an end tensor."""
        frontend = self._frontend
        starts, ends = config.start_tensor_names or (EVERY,), config.end_tensor_names or (EVERY,)
        # The precision does not matter for what is between.
        rule = Rule("between", tuple(starts), Precision("u8"), tuple(ends))
        try:
            [found] = select([rule], frontend.view, frontend.names)
        except BadInput as error:
            names = [name for name in (*starts, *ends) if name != EVERY and name not in self._tensors]
            for name in names or [" .. ".join((*starts, *ends))]:
                unknown[name] = self._tensor_hint(name) if names else error.fix
            return
        inside = set(found.nodes.values())
        for user, current in found.nodes.items():
            unit = frontend.unit_of[current]
            owners = frontend.owners(unit)
            if current in owners:
                nodes[user] = (current,)
            elif inside.isdisjoint(owners):
                first = frontend.names.original(unit.first.name)
                outside = "which lies outside of this part of the graph"
                lost[user] = (
                    f"it is fused into the operation in front, {outside}",
                    f"it is fused into {first}, {outside}",
                )

    @cached_property
    def _tensors(self) -> frozenset[str]:
        view = self._frontend.view
        return frozenset((*view.inputs, *view.producers, *view.weights.protos))

    def _tensor_hint(self, name: str) -> str:
        view, names = self._frontend.view, self._frontend.names
        node = view.by_name.get(names.current(name) if name in names.known else "")
        if node is not None:
            return f"it is a node, and tensors are asked for: its output is {node.outputs[0]!r}"
        return nearest(name, tuple(self._live()))

    def _live(self) -> Iterator[str]:
        yield from self._frontend.view.inputs
        yield from self._frontend.view.producers
