"""How every tensor is stored, and what each node that reads it sees.

A tensor has one storage. Nodes that want it otherwise read a copy that is quantized again. Tensors that operations
tie together (a Reshape its input and output, a Concat all it joins) are stored alike.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from roundoff.core.plan import FLOAT
from roundoff.core.quantizers import Consumer, QuantSpec
from roundoff.core.target import Target
from roundoff.messages.message import Message, message
from roundoff.quantize.planning.requested_precision import Roles, outranks
from roundoff.quantize.planning.view import FusedUnit, GraphView

# Which tensors operations tie together, and which are quantized where they are computed.


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
        """Whether a rule asks for a tensor in float, by its name or because only nodes in float read it."""
        request = self.roles.requests.tensors.get(tensor)
        asked = request is not None and request.dtype == FLOAT
        return asked or tensor in self.roles.read_in_float

    def shares(self, unit: FusedUnit) -> bool:
        """Whether all that a unit reads and writes has one scale."""
        return unit.first.operation in self.roles.target.shared_scale and len(unit.nodes) == 1

    def _live_operands(self, unit: FusedUnit) -> list[str]:
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

    def sharers(self) -> Iterator[FusedUnit]:
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


@dataclass(frozen=True, slots=True)
class StorageSpec:
    """How the tensors of one group are stored.

    Attributes:
        spec: The spec of all of them.
        why: Who decided it, as the end of a sentence; None for the target's default.
        fixed_range: The range they get whatever is observed.
        range_limit: The range that they are cut to where it was observed to be wider.
    """

    spec: QuantSpec
    why: Message | None = None
    fixed_range: tuple[float, float] | None = None
    range_limit: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """What some readers of a tensor see instead of its storage.

    Attributes:
        spec: How it is quantized.
        group: The group whose scale it has; empty for one of its own.
        readers: Who reads it.
    """

    spec: QuantSpec
    group: str
    readers: tuple[Consumer, ...]


@dataclass(frozen=True, slots=True)
class TensorStorage:
    """How all live tensors are stored.

    Attributes:
        group_of: Tensor to its group, which is the name of its first tensor.
        stored: Group to how its tensors are stored.
        quantized: Tensors that are quantized where they are computed: everybody reads the quantized values.
        readers: Tensor to the node inputs that read its storage.
        copies: Tensor to what others read.
        seen: What node inputs see of the tensors they read; absent where they see float values.
    """

    group_of: Mapping[str, str]
    stored: Mapping[str, StorageSpec]
    quantized: frozenset[str]
    readers: Mapping[str, tuple[Consumer, ...]]
    copies: Mapping[str, tuple[Copy, ...]]
    seen: Mapping[Consumer, QuantSpec]

    def spec_of(self, tensor: str) -> StorageSpec | None:
        """How a tensor is stored; None when it is not quantized where it is computed."""
        return self.stored[self.group_of[tensor]] if tensor in self.quantized else None


@dataclass(frozen=True, slots=True)
class _Want:
    """What one reader wants of one tensor; without a spec it wants float, with a group the scale of that group."""

    reader: Consumer
    unit: FusedUnit
    spec: QuantSpec | None
    group: str = ""


def store(roles: Roles) -> TensorStorage:
    """Decide how every live tensor is stored and what each of its readers sees."""
    return _Storing(roles.view, roles.target, roles, find_links(roles)).storage()


@dataclass(frozen=True, slots=True)
class _Storing:
    view: GraphView
    target: Target
    roles: Roles
    links: Links

    def storage(self) -> TensorStorage:
        links = self.links
        tensors = [name for name in (*self.view.inputs, *self.view.producers) if self._is_live(name)]
        # First what each reader wants by itself; then one spec for each group, since its tensors share one scale;
        # last who is content with that, and who reads a copy that is quantized again.
        wants = {tensor: list(self._wants(tensor)) for tensor in tensors}
        stored = self._decide(tensors, wants)
        readers: dict[str, tuple[Consumer, ...]] = {}
        copies: dict[str, tuple[Copy, ...]] = {}
        seen: dict[Consumer, QuantSpec] = {}
        for tensor in tensors:
            spec = stored[links.group(tensor)].spec
            own, other = self._split(tensor, spec, wants[tensor], stored)
            readers[tensor], copies[tensor] = own, other
            seen.update(dict.fromkeys(own, spec))
            seen.update({reader: copy.spec for copy in other for reader in copy.readers})
        groups = {tensor: links.group(tensor) for tensor in tensors}
        return TensorStorage(groups, stored, frozenset(links.quantized), readers, copies, seen)

    def _is_live(self, tensor: str) -> bool:
        return self.view.is_float(tensor) and tensor not in self.roles.inner

    # Who wants what

    def _wants(self, tensor: str) -> Iterator[_Want]:
        """What every reader of a tensor wants."""
        blocked = self.links.is_float_by_wish(tensor)
        for reader in self.view.readers[tensor]:
            unit = self.roles.unit_of(reader.node)
            role = self.roles.role(unit)
            if role == "none":
                continue
            if blocked or not self.roles.is_operand(reader) or role in ("float", "weight_only"):
                yield _Want(reader, unit, None)
            elif role == "follow":
                # A Reshape hands on codes while both of its sides are of one group; else it reads float.
                if unit.first.name in self.links.active:
                    yield _Want(reader, unit, None, self.links.group(tensor))
                else:
                    yield _Want(reader, unit, None)
            elif reader in self.links.apart or self.links.shares(unit):
                yield _Want(reader, unit, None, self.links.group(self.links.apart.get(reader, tensor)))
            else:
                yield _Want(reader, unit, self._wanted_spec(reader, unit, tensor))

    def _wanted_spec(self, reader: Consumer, unit: FusedUnit, tensor: str) -> QuantSpec:
        decision = self.roles.decisions(unit)["activation"]
        dtype = decision.dtype
        request = self.roles.requests.tensors.get(tensor)
        if request is not None and outranks(request, decision):
            dtype = request.dtype
        live = self.target.live_operand
        if live is not None and reader in self.roles.live_operands:
            return replace(live, bits=self.target.activations[dtype].bits)
        return self.target.activations[dtype]

    # How groups are stored

    def _decide(self, tensors: list[str], wants: Mapping[str, list[_Want]]) -> dict[str, StorageSpec]:
        members: dict[str, list[str]] = defaultdict(list)
        for tensor in tensors:
            members[self.links.group(tensor)].append(tensor)
        sharers: dict[str, list[FusedUnit]] = defaultdict(list)
        for unit in self.links.sharers():
            if self.roles.role(unit) == "integer":
                sharers[self.links.group(self.view.results(unit.last)[0])].append(unit)
        return {group: self._decide_group(group, names, wants, sharers[group]) for group, names in members.items()}

    def _decide_group(
        self, group: str, members: list[str], wants: Mapping[str, list[_Want]], sharers: list[FusedUnit]
    ) -> StorageSpec:
        # In this order: an operation that a target lets decide for all it ties together (a Concat on some chips),
        # the strongest rule that names a tensor or the output of what computes it, what readers want.
        asked = list(self._asked(members, sharers))
        why: Message | None
        if sharers and self.target.shared_scale_decides == "operation":
            spec, why = self._by_operation(sharers)
        elif asked:
            _, dtype, why = max(asked, key=lambda each: each[0])
            spec = self.target.activations[dtype]
        else:
            spec, why = self._by_readers([want for name in members for want in wants[name]], bool(sharers))
        ranges = dict(self.links.fixed_ranges(group))
        fixed = ranges.get(spec.dtype, ranges.get(""))
        return StorageSpec(spec, why, fixed, self._limit(members))

    def _limit(self, members: list[str]) -> tuple[float, float] | None:
        """The range that what reads a group cuts it to; None where nothing does."""
        units = (self.roles.unit_of(reader.node) for name in members for reader in self.view.readers[name])
        found = [
            self.target.input_ranges[unit.first.operation]
            for unit in units
            if unit.first.operation in self.target.input_ranges and self.roles.role(unit) == "integer"
        ]
        return (min(low for low, _ in found), max(high for _, high in found)) if found else None

    def _asked(
        self, members: list[str], sharers: list[FusedUnit]
    ) -> Iterator[tuple[tuple[int, int], str, Message]]:
        """Requests for how a group is stored: strength, dtype, and why."""
        for tensor in members:
            request = self.roles.requests.tensors.get(tensor)
            if request is not None and request.dtype not in ("", FLOAT):
                yield (
                    (request.strength[0], request.order),
                    request.dtype,
                    message("quantize.why_asks", rule=repr(request.rule)),
                )
            producer = self.view.producers.get(tensor)
            if producer is not None and self.roles.role_of(producer.name) == "integer":
                granted = self.roles.decisions(self.roles.unit_of(producer.name))["output"].request
                if granted is not None and granted.dtype != FLOAT:
                    strength = (granted.strength[0], granted.order)
                    why = message("quantize.why_asks_output", rule=repr(granted.rule), node=granted.node)
                    yield strength, granted.dtype, why
        for unit in sharers:
            granted = self.roles.decisions(unit)["activation"].request
            if granted is not None:
                strength = (granted.strength[0], granted.order)
                why = message("quantize.why_asks_node", rule=repr(granted.rule), node=granted.node)
                yield strength, granted.dtype, why

    def _by_operation(self, sharers: list[FusedUnit]) -> tuple[QuantSpec, Message]:
        """The spec that operations with a shared scale want; of several the one most asked for."""

        def strength(unit: FusedUnit) -> tuple[int, int]:
            request = self.roles.decisions(unit)["activation"].request
            return (request.strength[0], request.order) if request is not None else (0, -1)

        unit = max(sharers, key=strength)
        decision = self.roles.decisions(unit)["activation"]
        name = self.roles.names.original(unit.first.name)
        return self.target.activations[decision.dtype], message("quantize.why_sharer", node=name)

    def _by_readers(self, wants: list[_Want], shared: bool) -> tuple[QuantSpec, Message | None]:
        """What all readers want; the widest of it when they differ, the target's default among equals."""
        default = self.target.activations[self.target.activation]
        wanted: dict[QuantSpec, FusedUnit] = {}
        copied = self.roles.live_operands if self.target.live_copies else frozenset()
        for want in wants:
            if want.spec is not None and want.reader not in copied:
                wanted.setdefault(want.spec, want.unit)
        if shared:
            wanted.setdefault(default, self.roles.units[0])
        if not wanted:
            return default, None
        # The widest: a reader of fewer bits can be given a copy, bits that were dropped do not come back.
        spec = max(wanted, key=lambda each: (each.bits, each == default))
        name = self.roles.names.original(wanted[spec].first.name)
        return spec, message("quantize.why_reader", node=name, dtype=spec.dtype) if spec != default else None

    # Who reads the storage, and who a copy

    def _split(
        self, tensor: str, spec: QuantSpec, wants: list[_Want], stored: Mapping[str, StorageSpec]
    ) -> tuple[tuple[Consumer, ...], tuple[Copy, ...]]:
        group = self.links.group(tensor)
        own: list[Consumer] = []
        others: dict[tuple[QuantSpec, str], list[Consumer]] = defaultdict(list)
        for want in wants:
            if want.group:
                wanted = stored[want.group].spec
                if want.group == group:
                    own.append(want.reader)
                else:
                    others[wanted, want.group].append(want.reader)
            elif want.spec is None:
                if tensor in self.links.quantized:
                    own.append(want.reader)
            elif want.spec == spec:
                own.append(want.reader)
            else:
                others[want.spec, ""].append(want.reader)
        copies = tuple(Copy(each, name, tuple(readers)) for (each, name), readers in others.items())
        return tuple(own), copies
