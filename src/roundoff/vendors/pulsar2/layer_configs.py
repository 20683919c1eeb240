"""From what is asked for each node to rules, and from the plan these give to what became of every entry."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from roundoff.core.plan import FLOAT, NodePlan, Precision, QuantPlan, Rule
from roundoff.errors import BadInput, nearest
from roundoff.messages.catalogue import few
from roundoff.messages.message import english, short_name
from roundoff.quantize.planning.planner import plan_quantization
from roundoff.quantize.planning.rules import select
from roundoff.quantize.planning.view import FusedUnit
from roundoff.vendors.pulsar2.config.schema import EVERY, DataType, LayerConfig
from roundoff.vendors.pulsar2.frontend import Frontend, MadeName, MadeNames
from roundoff.vendors.pulsar2.tables import (
    NATURAL,
    Column,
    in_vendor_words,
    render_table,
    vendor_dtype,
)

# What the entries of layer_configs name, and which of them counts for each node.

PARTS = ("activation", "weight", "output")
"""data_type, weight_data_type and output_data_type."""

# In whatever order they are listed, a named layer counts more than a type, a type more than a part of the graph.
_STRENGTH = {"layer": 3, "op_type": 2, "subgraph": 1}
_DEFAULT = DataType.DefaultDataType
_UNUSED = "it is not in the optimized model: what it computes is a constant, or is not needed"
_CONSTANT = (_UNUSED, _UNUSED)
_GUESSED = "told by type and order from the vendor's name: compare with the vendor's optimized.onnx (--frontend)"


Reason = tuple[str, str]
"""In general, so that nodes with the same one can be told together; and in full."""


@dataclass(frozen=True, slots=True)
class LayerEntry:
    """One entry, and what it names.

    Attributes:
        number: Its place in the list, from 1.
        config: The entry.
        nodes: The nodes it names, by the user's names, each with the nodes of the graph that it is for.
        lost: Nodes it names that it is without effect for, each with the reason, in general and in full.
        unknown: Names that name nothing, each with a suggestion.
        guessed: Nodes it names by what the vendor's frontend calls them, each with that name, told by type and
            order.
    """

    number: int
    config: LayerConfig
    nodes: Mapping[str, tuple[str, ...]]
    lost: Mapping[str, Reason] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    guessed: Mapping[str, str] = field(default_factory=dict)

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
        asked = [f"{words[part]}{self.asks(part).name}" for part in PARTS if self.asks(part) is not _DEFAULT]
        return ", ".join(asked) or "nothing"


def asked_for(config: LayerConfig) -> list[tuple[str, str]]:
    """What an entry names, each with the precision asked for; nothing is looked up."""
    entry = LayerEntry(0, config, {})
    return [(name, entry.precision) for name in config.layers or config.types or (entry.selector,)]


@dataclass(frozen=True, slots=True)
class Choice:
    """What is asked for one part of one node, and by which entry."""

    dtype: str
    entry: LayerEntry


def read_entries(configs: Sequence[LayerConfig], frontend: Frontend) -> tuple[LayerEntry, ...]:
    """Find out what every entry names; nothing is refused here."""
    made = MadeNames((name for config in configs for name in config.layers), frontend)
    return tuple(_EntryReader(config, frontend, made).read(number) for number, config in enumerate(configs, 1))


def wanted_by(entries: Sequence[LayerEntry]) -> dict[str, dict[str, Choice]]:
    """What is asked for the parts of each node of the graph, by the entry that counts most for it."""
    found: dict[str, dict[str, Choice]] = {}
    # From the weakest to the strongest, so that what counts more replaces what counts less, part by part: an entry
    # that says nothing of weights leaves those of a weaker one.
    for entry in sorted(entries, key=lambda each: each.strength):
        for node in dict.fromkeys(node for nodes in entry.nodes.values() for node in nodes):
            for part in PARTS:
                asked = entry.asks(part)
                if asked is not _DEFAULT:
                    dtype = FLOAT if asked is DataType.FP32 else asked.name.lower()
                    found.setdefault(node, {})[part] = Choice(dtype, entry)
    return found


class _EntryReader:
    """Finds out what one entry names.

    Args:
        config: The entry.
        frontend: The graph.
        made: What names mean that the vendor's frontend made up.
    """

    def __init__(self, config: LayerConfig, frontend: Frontend, made: MadeNames) -> None:
        self._config, self._frontend, self._made = config, frontend, made
        self._nodes: dict[str, tuple[str, ...]] = {}
        self._lost: dict[str, Reason] = {}
        self._unknown: dict[str, str] = {}
        self._guessed: dict[str, str] = {}

    def read(self, number: int) -> LayerEntry:
        config = self._config
        if config.kind == "layer":
            for name in config.layers:
                made = MadeName.parse(name) if name not in self._frontend.names.known else None
                if made is not None:
                    self._add_made(made)
                else:
                    self._add_layer(name)
        elif config.kind == "op_type":
            for name in config.types:
                self._add_type(name)
        else:
            self._add_part()
        places = self._frontend.names.places
        ordered = {name: self._nodes[name] for name in sorted(self._nodes, key=places.__getitem__)}
        return LayerEntry(number, config, ordered, self._lost, self._unknown, self._guessed)

    def _add_layer(self, name: str) -> None:
        """A layer by its name in the user's model or the optimized one, or by the tensor it writes.

        One that was merged means it all.
        """
        frontend = self._frontend
        writer = frontend.view.producers.get(name)
        if name not in frontend.names.known and writer is not None and writer.name in frontend.unit_of:
            name = frontend.names.original(writer.name)
        if name not in frontend.names.known:
            self._unknown[name] = nearest(name, frontend.names.known)
            return
        current = frontend.names.current(name)
        if current:
            self._nodes[name] = frontend.owners(frontend.unit_of[current])
        else:
            self._lost[name] = _CONSTANT

    def _add_made(self, name: MadeName) -> None:
        """A layer by the name that the vendor's frontend made up."""
        found = self._made.node(name)
        if not found:
            self._unknown[name.text] = self._made.why_not(name)
            return
        user = self._frontend.names.original(found)
        self._nodes[user] = self._frontend.owners(self._frontend.unit_of[found])
        self._guessed[user] = name.text

    def _add_type(self, name: str) -> None:
        """Every operation of a type of ONNX, or of the frontend's."""
        frontend = self._frontend
        known = False
        for unit in frontend.units:
            kind, owners = frontend.type_of(unit), frontend.owners(unit)
            if kind == name:
                known = True
                self._nodes[frontend.names.original(unit.first.name)] = owners
                continue
            for node in unit.nodes:
                if node.operation != name:
                    continue
                known, user = True, frontend.names.original(node.name)
                if node.name in owners:
                    self._nodes[user] = owners
                else:
                    first = frontend.names.original(unit.first.name)
                    self._lost[user] = (
                        f"it is fused into the {kind} in front: ask for {kind}, or for it by name",
                        f"it is fused into {first}: ask for {kind}, or for it by name",
                    )
        original = {node.name: node.op_type for node in frontend.original.proto.graph.node}
        for user, operation in original.items():
            if operation == name != "Constant" and user not in self._nodes and user not in self._lost:
                known, self._lost[user] = True, self._gone(user)
        if not known:
            types = dict.fromkeys((*original.values(), *map(frontend.type_of, frontend.units)))
            self._unknown[name] = f"the model has no such operation; {nearest(name, types)}"

    def _gone(self, user: str) -> Reason:
        """What became of a node that is in the user's model only."""
        current = self._frontend.prepared.origins.get(user, "")
        if not current or current not in self._frontend.view.by_name:
            return _CONSTANT
        name, unit = self._frontend.names.original(current), self._frontend.unit_of[current]
        kind, folded = self._frontend.type_of(unit), "it is not in the optimized model: it is folded into"
        return f"{folded} {kind}; ask for that", f"{folded} {name} ({kind})"

    def _add_part(self) -> None:
        """Every operation on a way from a start tensor to an end tensor."""
        frontend, config = self._frontend, self._config
        starts, ends = config.start_tensor_names or (EVERY,), config.end_tensor_names or (EVERY,)
        # The precision does not matter for what is between.
        rule = Rule("between", tuple(starts), Precision("u8"), tuple(ends))
        try:
            [found] = select([rule], frontend.view, frontend.names)
        except BadInput as error:
            view = frontend.view
            tensors = {*view.inputs, *view.producers, *view.weights.protos}
            names = [name for name in (*starts, *ends) if name != EVERY and name not in tensors]
            for name in names or [" .. ".join((*starts, *ends))]:
                self._unknown[name] = self._tensor_hint(name) if names else error.fix
            return
        inside = set(found.nodes.values())
        for user, current in found.nodes.items():
            unit = frontend.unit_of[current]
            owners = frontend.owners(unit)
            if current in owners:
                self._nodes[user] = (current,)
            elif inside.isdisjoint(owners):
                first = frontend.names.original(unit.first.name)
                outside = "which lies outside of this part of the graph"
                self._lost[user] = (
                    f"it is fused into the operation in front, {outside}",
                    f"it is fused into {first}, {outside}",
                )

    def _tensor_hint(self, name: str) -> str:
        view, names = self._frontend.view, self._frontend.names
        node = view.by_name.get(names.current(name) if name in names.known else "")
        if node is not None:
            return f"it is a node, and tensors are asked for: its output is {node.outputs[0]!r}"
        return nearest(name, (*view.inputs, *view.producers))


_WORDS = {"activation": "data type", "weight": "weight", "output": "output"}
_LISTED = 3


@dataclass(frozen=True, slots=True)
class NodeOutcome:
    """What became of an entry at one of the nodes it names.

    Attributes:
        node: The node, by its name in the user's model.
        op_type: Its operation.
        effective: What it has: data type, weight and output; empty where a part does not exist.
        applied: Whether that is what the entry asks for.
        why: Why not, or what is worth knowing although it is.
        cause: The same in general, alike for nodes with the same cause.
    """

    node: str
    op_type: str
    effective: Precision
    applied: bool
    why: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class ResolvedEntry:
    """What became of one entry of layer_configs.

    Attributes:
        number: Its place in the list, from 1.
        kind: How it selects: layer, op_type or subgraph.
        selector: What it names.
        requested: What it asks for.
        nodes: The nodes it names.
        unknown: Names in it that name nothing, each with a suggestion.
    """

    number: int
    kind: str
    selector: str
    requested: str
    nodes: tuple[NodeOutcome, ...]
    unknown: Mapping[str, str]

    @property
    def applied(self) -> int:
        """How many of its nodes have what it asks for."""
        return sum(node.applied for node in self.nodes)


@dataclass(frozen=True, slots=True)
class ResolvedLayers:
    """All entries, resolved before anything is run.

    Attributes:
        entries: In their order.
        rules: What is asked for each node, for the planner.
        plan: What follows from that.
        float_nodes: Nodes that are computed in float, by their names in the graph.
    """

    entries: tuple[ResolvedEntry, ...]
    rules: tuple[Rule, ...]
    plan: QuantPlan
    float_nodes: frozenset[str] = frozenset()


def resolve_layers(configs: Sequence[LayerConfig], frontend: Frontend) -> ResolvedLayers:
    """Find out what every entry of layer_configs names, asks for and gets; nothing is run."""
    entries = read_entries(configs, frontend)
    wanted = wanted_by(entries)
    rules = tuple(_rules(wanted, frontend))
    plan = plan_quantization(
        frontend.prepared.model, frontend.target, rules=rules, origins=frontend.prepared.origins
    )
    resolver = _Resolver(frontend, plan, wanted)
    pairs = zip(frontend.view.nodes, plan.nodes, strict=True)
    in_float = frozenset(node.name for node, planned in pairs if planned.in_float)
    return ResolvedLayers(tuple(resolver.resolve(entry) for entry in entries), rules, plan, in_float)


def refuse_unknown(resolved: ResolvedLayers) -> None:
    """Refuse layers and tensors that do not exist; op types that do not occur are only told.

    Raises:
        BadInput: There are such names; all of them are listed.
    """
    wrong = [
        f"  layer_configs[{entry.number - 1}]: {name!r}: {hint}"
        for entry in resolved.entries
        if entry.kind != "op_type"
        for name, hint in entry.unknown.items()
    ]
    if wrong:
        what = english("layer_configs name what the model does not have:\n{wrong}", wrong="\n".join(wrong))
        raise BadInput(what, fix=english("use the names that nodes and tensors have in the model you gave"))


def _rules(wanted: Mapping[str, Mapping[str, Choice]], frontend: Frontend) -> Iterator[Rule]:
    """One rule for each node, so that reasons name it alone."""
    place = {node.name: node.place for node in frontend.view.nodes}
    for node in sorted(wanted, key=place.__getitem__):
        parts = {part: choice.dtype for part, choice in wanted[node].items()}
        unit = frontend.unit_of[node]
        if len(parts) > 1 and parts.get("activation") == FLOAT and _not_verified(frontend, unit):
            # What cannot be had must not take along what can: float weights, or a float result.
            del parts["activation"]
        own = parts.get("activation", "")
        # Readers decide how a result is stored; where there are none, the operation itself does.
        if own and own != FLOAT and "output" not in parts and _leaves(frontend, unit):
            parts["output"] = own
        yield Rule("node", (frontend.names.original(node),), Precision(**parts))


def _not_verified(frontend: Frontend, unit: FusedUnit) -> bool:
    """Whether the vendor did not verify FP32 for something in a unit."""
    verified = frontend.target.only.get(f"activation.{FLOAT}", frozenset())
    return any(each.operation not in verified for each in unit.nodes)


def _leaves(frontend: Frontend, unit: FusedUnit) -> bool:
    """Whether nothing computes with what a unit writes: it leaves the network, perhaps in another shape."""
    results = frontend.view.results(unit.last)
    return bool(results) and all(_only_leaves(frontend, name) for name in results)


def _only_leaves(frontend: Frontend, tensor: str) -> bool:
    readers = [frontend.unit_of[reader.node] for reader in frontend.view.readers[tensor]]
    if not readers:
        return True
    return all(
        frontend.moves(reader) and all(_only_leaves(frontend, name) for name in reader.last.outputs if name)
        for reader in readers
    )


@dataclass(frozen=True)
class _Resolver:
    frontend: Frontend
    plan: QuantPlan
    wanted: Mapping[str, Mapping[str, Choice]]

    @cached_property
    def _plans(self) -> dict[str, NodePlan]:
        """Plans by the names of nodes in the graph."""
        return {node.name: plan for node, plan in zip(self.frontend.view.nodes, self.plan.nodes, strict=True)}

    @cached_property
    def _reasons(self) -> dict[str, str]:
        """Why a node has not what is asked for it, by the user's name."""
        return {
            node: str(reason)
            for resolution in self.plan.resolutions
            for node, reason in resolution.reasons.items()
        }

    def resolve(self, entry: LayerEntry) -> ResolvedEntry:
        """What became of one entry."""
        outcomes = [self._outcome(entry, user, nodes) for user, nodes in entry.nodes.items()]
        outcomes += [self._lost(user, why) for user, why in entry.lost.items()]
        return ResolvedEntry(
            entry.number, entry.config.kind, entry.selector, entry.precision, tuple(outcomes), entry.unknown
        )

    def _lost(self, user: str, reason: Reason) -> NodeOutcome:
        current = self.frontend.names.current(user) if user in self.frontend.names.known else ""
        plan = self._plans.get(current)
        effective = Precision() if plan is None else plan.effective
        cause, why = reason
        return NodeOutcome(user, self._operations.get(user, ""), effective, applied=False, why=why, cause=cause)

    @cached_property
    def _operations(self) -> dict[str, str]:
        """The operation of each node, by the user's name."""
        here = {self.frontend.names.original(node.name): node.operation for node in self.frontend.view.nodes}
        return here | {node.name: node.op_type for node in self.frontend.original.proto.graph.node}

    def _outcome(self, entry: LayerEntry, user: str, nodes: Sequence[str]) -> NodeOutcome:
        """What became of an entry at one node, which may stand for the nodes it was merged into."""
        frontend = self.frontend
        # A unit is computed as one: it reads as its first nodes do, and hands on what its last one does.
        unit = frontend.unit_of[frontend.names.current(user)]
        output = self._plans[unit.last.name].effective.output
        parts = self._plans[nodes[0]].effective
        effective = Precision(parts.activation, parts.weight, output)
        missed = [reason for node in nodes for reason in self._missed(entry, node, effective)]
        said = missed[:1] or [*self._merged(user, nodes), *self._remarks(entry, unit, effective)]
        if user in entry.guessed:
            said.append((_GUESSED, _GUESSED))
        cause, why = ("; ".join(dict.fromkeys(each[place] for each in said)) for place in (0, 1))
        return NodeOutcome(
            user, self._operations.get(user, ""), effective, applied=not missed, why=why, cause=cause
        )

    def _missed(self, entry: LayerEntry, node: str, effective: Precision) -> Iterator[Reason]:
        """Why a node has not what an entry asks for."""
        unit = self.frontend.unit_of[node]
        if self.frontend.moves(unit):
            yield self._following(unit, effective)
            return
        for part in PARTS:
            choice = self.wanted.get(node, {}).get(part)
            asked = entry.asks(part).name
            if choice is None or asked == _DEFAULT.name:
                continue
            if vendor_dtype(choice.dtype) != asked:
                other = choice.entry
                counts = f"entry {other.number} ({other.config.kind}) counts more"
                yield counts, counts
            elif not _same(choice.dtype, getattr(effective, part), part):
                why = self._why(node, part, asked, getattr(effective, part))
                yield why, why

    def _why(self, node: str, part: str, asked: str, got: str) -> str:
        user = self.frontend.names.original(node)
        reason = self._reasons.get(user) or str(self._plans[node].reason)
        if part == "weight":
            reason = self._weight_reason(asked, got) or reason
        elif part == "activation" and asked == "FP32" and got and FLOAT not in got.split("/"):
            unit = self.frontend.unit_of[node]
            kind = self.frontend.type_of(unit)
            reason = f"FP32 is not verified for {kind}" if _not_verified(self.frontend, unit) else reason
        said = in_vendor_words(reason) if reason else f"its {_WORDS[part]} is {vendor_dtype(got)}"
        settled = f"; settled as {vendor_dtype(got)}" if got else ""
        return f"{_WORDS[part]} {asked} refused: {said}{settled}" if part != "activation" else f"{said}{settled}"

    def _weight_reason(self, asked: str, got: str) -> str:
        if not got:
            return "it has no constant weight"
        able = self.frontend.target.only.get(f"weight.{FLOAT}", frozenset())
        if asked == "FP32":
            return f"only {', '.join(sorted(able))} can have it" if able else "this chip ignores it"
        return f"weights are {', '.join(map(vendor_dtype, self.frontend.target.weights))} or FP32"

    def _following(self, unit: FusedUnit, effective: Precision) -> Reason:
        """What decides for an operation that only moves data."""
        dtype = vendor_dtype(effective.output or effective.activation)
        readers = [name for name, got in self._readers(unit) if vendor_dtype(got) == dtype]
        cause = f"it only moves data, so the operation behind it decides: {dtype}"
        return cause, f"{cause}, as {_reading(readers)} it" if readers else cause

    def _merged(self, user: str, nodes: Sequence[str]) -> Iterator[Reason]:
        """That a node is asked for which is a part of another."""
        into = [self.frontend.names.original(node) for node in nodes]
        if user not in into:
            merged = "it is computed as one with"
            yield (
                f"{merged} what is in front, for which it is taken",
                f"{merged} {_few(into)}, for which it is taken",
            )

    def _remarks(self, entry: LayerEntry, unit: FusedUnit, effective: Precision) -> Iterator[Reason]:
        """That a result is of another type than the operation, because of who reads it."""
        asked, output = entry.asks("activation").name, vendor_dtype(effective.output)
        if not output or asked in (_DEFAULT.name, output) or entry.asks("output").name != _DEFAULT.name:
            return
        readers = [(name, got) for name, got in self._readers(unit) if got]
        sharing = [name for name, _ in readers if self._shares(name)]
        same = [name for name, got in readers if vendor_dtype(got) == output]
        said = f"its output is {output}"
        if sharing:
            kind = self._operations[sharing[0]]
            cause = f"{said}: it goes to a {kind}, which has one scale with all it joins; ask for that too"
            yield cause, f"{said}: {_few(sharing)} has one scale with all it joins; ask for it too"
        elif same:
            cause = f"{said}, and the precision table shows that, because what reads it is {output}"
            yield cause, f"{said}, and the precision table shows that, because {_reading(same)} it as {output}"

    def _shares(self, user: str) -> bool:
        current = self.frontend.names.current(user)
        return self.frontend.unit_of[current].first.operation in self.frontend.target.shared_scale

    def _readers(self, unit: FusedUnit) -> Iterator[tuple[str, str]]:
        """Who computes with what a unit writes, also behind what only moves it, and as what."""
        for tensor in self.frontend.view.results(unit.last):
            for reader in self.frontend.view.readers[tensor]:
                other = self.frontend.unit_of[reader.node]
                if self.frontend.moves(other):
                    yield from self._readers(other)
                else:
                    name = self.frontend.names.original(reader.node)
                    yield name, self._plans[reader.node].effective.activation


def _same(asked: str, got: str, part: str) -> bool:
    """Whether a part is what was asked for; operands of live products are signed whatever is asked for."""
    if part != "activation" or not got:
        return asked == got or not got
    # Several operands: "u8/s8". Where floats are asked for, or all there is, every operand must be that; of
    # integers the width alone is compared.
    found = set(got.split("/"))
    if asked == FLOAT or found == {FLOAT}:
        return found == {asked}
    return all(each != FLOAT and each[1:] == asked[1:] for each in found)


def _reading(names: Sequence[str]) -> str:
    return f"{_few(names)} read{'s' if len(set(names)) == 1 else ''}"


def _few(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    rest = len(unique) - _LISTED
    return ", ".join(unique[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")


# The resolution of layer_configs for people, and for programs.

_COLUMNS: tuple[Column, ...] = (
    ("#", "left"), ("Asked for", "left"), ("Applied", "left"), ("Why not, and remarks", "left"),
)  # fmt: skip
_MOST_SELECTOR = 3


def resolution_table(entries: Sequence[ResolvedEntry], *, width: int = NATURAL) -> str:
    """What became of each entry: what it asks for, how many of the nodes it names have it, and why others not."""
    rows = [
        (
            str(entry.number),
            f"{_selector(entry)}: {entry.requested}",
            f"{entry.applied} of {len(entry.nodes)}",
            "\n".join(_remarks(entry)),
        )
        for entry in entries
    ]
    return render_table("Layer Config Resolution", _COLUMNS, rows, width=width, fold=True)


def _selector(entry: ResolvedEntry) -> str:
    names = entry.selector.split(", ")
    return f"{entry.kind} {few(list(map(short_name, names)), _MOST_SELECTOR)}"


def _remarks(entry: ResolvedEntry) -> list[str]:
    lines = [f"{name!r} names nothing: {hint}" for name, hint in entry.unknown.items()]
    groups: dict[tuple[bool, str], list[NodeOutcome]] = {}
    for node in entry.nodes:
        if node.why:
            groups.setdefault((node.applied, node.cause), []).append(node)
    for (applied, cause), nodes in sorted(groups.items(), key=lambda each: each[0][0]):
        reason = nodes[0].why if len(nodes) == 1 else cause
        named = _few([node.node for node in nodes])
        lines.append(f"{named} {'applied' if applied else 'NOT applied'}: {reason}")
    return lines


def resolution_json(entries: Sequence[ResolvedEntry]) -> list[dict[str, Any]]:
    """The same as data."""
    return [
        {
            "entry": entry.number - 1,
            "kind": entry.kind,
            "selector": entry.selector,
            "requested": entry.requested,
            "matched": len(entry.nodes),
            "applied": entry.applied,
            "unknown": dict(entry.unknown),
            "nodes": [
                {
                    "node": node.node,
                    "op_type": node.op_type,
                    "applied": node.applied,
                    "data_type": vendor_dtype(node.effective.activation),
                    "weight_data_type": vendor_dtype(node.effective.weight),
                    "output_data_type": vendor_dtype(node.effective.output),
                    "why": node.why,
                }
                for node in entry.nodes
            ],
        }
        for entry in entries
    ]
