"""Planning a quantization: from a float model, a target and the user's rules to quantizers without numbers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from roundoff.core.plan import FLOAT, NodePlan, Precision, QuantPlan, Resolution, Rule, rule_text
from roundoff.core.quantizers import Consumer, QuantSpec
from roundoff.core.target import Target
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.units import NodePrecisions
from roundoff.messages.message import NOTHING, Message, english, joined, message, some
from roundoff.quantize.planning.quantizers import BIAS_DTYPE, Methods, Quantizers, bias_place, make_quantizers
from roundoff.quantize.planning.requested_precision import (
    PARTS,
    DtypeRequest,
    DtypeRequests,
    Part,
    Roles,
    TensorRequest,
    tensor_dtype,
    weight_edges,
)
from roundoff.quantize.planning.rules import Names, RuleSelection, select
from roundoff.quantize.planning.storage import TensorStorage, store
from roundoff.quantize.planning.view import FusedUnit, GraphView, NodeView, find_units

_NO_VALUES = message("quantize.why_no_values")


def _because(text: Message, why: Message | None) -> Message:
    return message("quantize.because", text=text, why=why) if why else text


def _part_is(part: Part, dtype: str) -> Message:
    return message("quantize.why_part_is", part=message(f"quantize.part_{part}"), dtype=dtype)


@dataclass(frozen=True, slots=True)
class Explainer:
    """Tells what became of nodes.

    Attributes:
        roles: What every unit is.
        storage: How tensors are stored.
        quantizers: What is quantized.
    """

    roles: Roles
    storage: TensorStorage
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
            joined(reasons) if reasons else NOTHING,
        )

    # What it becomes

    def _effective(self, unit: FusedUnit, node: NodeView) -> Precision:
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

    def _has(self, unit: FusedUnit, node: NodeView, part: Part) -> bool:
        """Whether a part of a unit is one of this node."""
        return node is unit.last if part == "output" else node in self.roles.requests.owners(unit, part)

    def _weight(self, unit: FusedUnit, node: NodeView) -> str:
        places = weight_edges(unit, self.roles.view) if node is unit.first else ()
        specs = [self.quantizers.weights.get(Consumer(node.name, place)) for place in places]
        return "/".join(dict.fromkeys(spec.dtype if spec is not None else FLOAT for spec in specs))

    def _output(self, unit: FusedUnit) -> str:
        found = []
        for tensor in self._results(unit):
            stored = self.storage.spec_of(tensor)
            found.append(stored.spec.dtype if stored is not None else FLOAT)
        return "/".join(dict.fromkeys(found))

    def _results(self, unit: FusedUnit) -> list[str]:
        view = self.roles.view
        return [name for name in view.results(unit.last) if view.readers[name] or name in view.outputs]

    # What was asked for

    def _requested(self, unit: FusedUnit, node: NodeView, effective: Precision) -> Precision:
        asked = {part: self._asked(unit, node, part, effective) for part in PARTS}
        return Precision(**asked)

    def _asked(self, unit: FusedUnit, node: NodeView, part: Part, effective: Precision) -> str:
        requests = self.roles.requests.named(node, part)
        exists = getattr(effective, part)
        if requests and (exists or not self._asks_for_more(requests[0], effective)):
            return requests[0].dtype
        if part == "output" and node is unit.last:
            for tensor in self._results(unit):
                if tensor in self.roles.requests.tensors and self.roles.requests.tensors[tensor].refusal is None:
                    return self.roles.requests.tensors[tensor].dtype
        return self._default(unit, part) if exists and self.roles.role(unit) != "follow" else exists

    @staticmethod
    def _asks_for_more(request: DtypeRequest, effective: Precision) -> bool:
        """Whether a request is also for a part that a node has."""
        return any(getattr(request.precision, part) and getattr(effective, part) for part in PARTS)

    def _default(self, unit: FusedUnit, part: Part) -> str:
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

    def _reasons(
        self, unit: FusedUnit, node: NodeView, requested: Precision, effective: Precision
    ) -> Iterator[Message]:
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
                reasons = [reason for request, reason in refused if request.node == name]
                yield reasons[0] if reasons else self._why(unit, node, part, got)
        if requested.activation == effective.activation == FLOAT and self.roles.requests.named(node, "activation"):
            yield from self._neighbours(unit)
        if node.name in self.quantizers.notes:
            yield self.quantizers.notes[node.name]
        if requested == effective == Precision() and node not in (unit.first, unit.last):
            yield message("quantize.why_inside", node=self.roles.names.original(unit.first.name))

    def _why(self, unit: FusedUnit, node: NodeView, part: Part, got: str) -> Message:
        """Why a part of a node is not what was asked for."""
        if self.roles.role(unit) == "follow":
            return _because(message("quantize.why_passes_on"), self._stored_why(unit))
        if not got:
            return self._missing_why(unit, node, part)
        request = self.roles.decisions(unit)[part].request
        if request is not None and request.dtype == got and request.node != self.roles.names.original(node.name):
            return message("quantize.why_as_one", node=request.node, rule=repr(request.rule), dtype=got)
        tensor = next(self._named_tensors(unit, node, part), None)
        if tensor is not None:
            rule = self.roles.requests.tensors[tensor].rule
            return message("quantize.why_rule_names", rule=repr(rule), tensor=repr(tensor))
        if part == "output":
            return _because(message("quantize.why_stored", dtype=got), self._stored_why(unit))
        return self._operand_why(unit, part, got)

    def _missing_why(self, unit: FusedUnit, node: NodeView, part: Part) -> Message:
        if part == "weight" or self._has(unit, node, part):
            return message("quantize.why_no_part", part=message(f"quantize.part_{part}"))
        other = self.roles.names.original((unit.first if node is not unit.first else unit.last).name)
        return message("quantize.why_between", node=other)

    def _named_tensors(self, unit: FusedUnit, node: NodeView, part: Part) -> Iterator[str]:
        tensors: list[str] = self._results(unit)
        if part == "weight":
            tensors = [node.inputs[place] for place in weight_edges(unit, self.roles.view)]
        elif part == "activation":
            tensors = [self.roles.view.read_at(reader) for reader in self.roles.operands(unit)]
        requests = self.roles.requests.tensors
        return (tensor for tensor in tensors if tensor in requests and requests[tensor].dtype)

    def _stored_why(self, unit: FusedUnit) -> Message | None:
        whys = (stored.why for name in self._results(unit) if (stored := self.storage.spec_of(name)) is not None)
        return next((why for why in whys if why), None)

    def _operand_why(self, unit: FusedUnit, part: Part, got: str) -> Message:
        if any(reader in self.roles.live_operands for reader in self.roles.operands(unit)):
            return message("quantize.why_live", target=self.roles.target.name, dtype=got)
        if unit.first.operation in self.roles.target.shared_scale:
            return _because(message("quantize.why_shared_scale"), self._stored_why(unit))
        if self.roles.decisions(unit)["activation"].dtype == FLOAT:
            return message("quantize.why_in_float")
        return _part_is(part, got)

    def _neighbours(self, unit: FusedUnit) -> Iterator[Message]:
        """What a node in float reads of nodes that are not."""
        for reader in self.roles.operands(unit):
            tensor = self.roles.view.read_at(reader)
            stored = self.storage.spec_of(tensor)
            producer = self.roles.view.producers.get(tensor)
            if stored is not None and producer is not None:
                writer = self.roles.names.original(producer.name)
                yield message("quantize.why_reads", node=writer, dtype=stored.spec.dtype)


# Why tensors that rules name are not what the rules ask for.


@dataclass(frozen=True, slots=True)
class TensorReasons:
    """Compares rules with what tensors became.

    Attributes:
        roles: What every unit is.
        storage: How tensors are stored.
        quantizers: What is quantized.
        plans: The plans of all nodes by their names in the graph.
    """

    roles: Roles
    storage: TensorStorage
    quantizers: Quantizers
    plans: Mapping[str, NodePlan]

    def tensor_reason(self, selection: RuleSelection, tensor: str, node: str) -> Message | None:
        """Why a tensor is not what a rule asks for, as far as a node is concerned."""
        if node not in self.touching(tensor):
            return None
        strongest = self.roles.requests.tensors[tensor]
        if strongest.order != selection.order and not _agrees(selection, strongest):
            return message("quantize.why_counts_more", rule=repr(strongest.rule), tensor=repr(tensor))
        wanted = tensor_dtype(selection.rule.precision, constant=self.roles.view.is_constant(tensor))
        if self._is_bias(tensor) and not (wanted == FLOAT and strongest.refusal):
            return self._bias_reason(tensor, node, wanted)
        return strongest.refusal or self._unmet(tensor, strongest.dtype)

    def _unmet(self, tensor: str, wanted: str) -> Message | None:
        """Why a tensor is not what the target could have given it; None when it is."""
        if tensor in self.roles.inner:
            unit = self.roles.unit_of(self.roles.view.producers[tensor].name)
            last = self.roles.names.original(unit.last.name)
            return message("quantize.why_not_there", tensor=repr(tensor), node=last)
        got = list(dict.fromkeys(self._dtypes(tensor)))
        if got in ([wanted], []):
            return None if got else message("quantize.why_unread", tensor=repr(tensor))
        why = self._left_in_float(tensor) if got == [FLOAT] else None
        return _because(
            message("quantize.why_is", tensor=repr(tensor), dtype="/".join(got)), why or self._why(tensor)
        )

    def _is_bias(self, tensor: str) -> bool:
        """Whether a constant is read as a bias only."""
        readers = self.roles.view.readers[tensor]
        if not readers or not self.roles.view.is_constant(tensor):
            return False
        return all(bias_place(self.roles.unit_of(reader.node), self.roles.view) == reader for reader in readers)

    def _bias_reason(self, tensor: str, node: str, wanted: str) -> Message | None:
        """Why a bias is not what a rule asks for."""
        got = list(dict.fromkeys(self._dtypes(tensor)))
        if got == [wanted]:
            return None
        target = self.roles.target
        if wanted not in (BIAS_DTYPE, FLOAT):
            why = message("quantize.why_bias_dtypes", first=BIAS_DTYPE, second=FLOAT, dtype=wanted)
        elif target.bias == FLOAT:
            why = message("quantize.why_float_biases", target=target.name)
        else:
            known = self.quantizers.notes.get(node) or self.plans[node].reason
            why = known or message("quantize.why_readers_float")
        return _because(message("quantize.why_is", tensor=repr(tensor), dtype="/".join(got)), why)

    def touching(self, tensor: str) -> set[str]:
        """The node that computes a tensor; for inputs and constants those that read it."""
        producer = self.roles.view.producers.get(tensor)
        return {producer.name} if producer is not None else {r.node for r in self.roles.view.readers[tensor]}

    def _left_in_float(self, tensor: str) -> Message | None:
        """Why an output of the network is not quantized."""
        view, target = self.roles.view, self.roles.target
        producer = view.producers.get(tensor)
        if producer is None or tensor not in view.outputs:
            return None
        if target.float_results:
            return message("quantize.why_float_results", target=target.name)
        if not target.quantize_outputs:
            return message("quantize.why_float_outputs", target=target.name)
        return self.plans[producer.name].reason or message("quantize.why_producer_float")

    def _why(self, tensor: str) -> Message:
        stored = self.storage.stored.get(self.storage.group_of.get(tensor, ""))
        if stored is not None and stored.why:
            return stored.why
        producer = self.roles.view.producers.get(tensor)
        reason = self.plans[producer.name].reason if producer is not None else None
        return reason or message("quantize.why_readers_float")

    def _dtypes(self, tensor: str) -> Iterator[str]:
        """In which dtypes a tensor exists."""
        view = self.roles.view
        if not view.is_float(tensor):
            return
        if view.is_constant(tensor):
            for reader in view.readers[tensor]:
                operands = view.operands(view.by_name[reader.node])
                is_bias = bias_place(self.roles.unit_of(reader.node), view) == reader
                if is_bias or any(reader == edge for edge, _ in operands):
                    yield self._dtype_for(reader)
            return
        stored = self.storage.spec_of(tensor)
        if stored is not None:
            yield stored.spec.dtype
            return
        readers = [reader for reader in view.readers[tensor] if self.roles.is_operand(reader)]
        yield from map(self._dtype_for, readers)
        if not readers and tensor in view.used and not view.is_private(tensor):
            yield FLOAT

    def _dtype_for(self, reader: Consumer) -> str:
        if reader in self.quantizers.biases:
            return BIAS_DTYPE
        spec = self.quantizers.weights.get(reader, self.storage.seen.get(reader))
        return spec.dtype if spec is not None else FLOAT


def _agrees(selection: RuleSelection, request: TensorRequest) -> bool:
    return request.dtype in (selection.rule.precision.output, selection.rule.precision.weight)


# What became of every rule.

_LISTED = 3
_GONE = message("quantize.why_gone")


class Resolver(TensorReasons):
    """Compares rules with what nodes became, and the tensors that rules name with what these became."""

    __slots__ = ()

    def resolve(self, selection: RuleSelection) -> Resolution:
        """What became of one rule."""
        reasons: dict[str, Message] = {}
        remarks: dict[str, Message] = {}
        for name, node in selection.nodes.items():
            reason = self._reason(selection, node) if node else _GONE
            if reason:
                reasons[name] = reason
            elif known := dict.fromkeys(self._remarks(selection, node)):
                remarks[name] = joined(known)
        applied = tuple(name for name in selection.nodes if name not in reasons)
        return Resolution(selection.rule, tuple(selection.nodes), applied, reasons, remarks)

    def _reason(self, selection: RuleSelection, node: str) -> Message | None:
        """Why a node is not what a rule asks for; None when it is."""
        if not selection.ranks[node]:
            texts = (self.tensor_reason(selection, tensor, node) for tensor in selection.tensors)
            known = dict.fromkeys(text for text in texts if text)
            return joined(known) if known else None
        compared = [(part, wanted, got) for part, wanted, got in self._parts(selection, node) if got]
        others = [(part, got) for part, wanted, got in compared if wanted != got]
        missed = others[0] if others else None
        given_away = all(self._outranked_at(selection, node, part, got) for part, got in others)
        if len(others) < len(compared) and given_away:
            return None
        reasons = (
            self._outranked(selection, node),
            self._refused(selection, node),
            self.plans[node].reason,
            *((self._by_another(node, *missed), _part_is(*missed)) if missed is not None else ()),
        )
        return next((reason for reason in reasons if reason), None)

    def _by_another(self, node: str, part: Part, got: str) -> Message:
        """Which other node of the same unit decides."""
        unit = self.roles.unit_of(node)
        request = self.roles.decisions(unit)[part].request
        if request is not None and request.dtype == got and request.node != self.roles.names.original(node):
            return message("quantize.why_as_one", node=request.node, rule=repr(request.rule), dtype=got)
        return self.plans[unit.last.name].reason

    def _parts(self, selection: RuleSelection, node: str) -> Iterator[tuple[Part, str, str]]:
        """What is asked for the parts of a node, and what they are; empty where they do not exist."""
        unit = self.roles.unit_of(node)
        for part in PARTS:
            wanted, got = getattr(selection.rule.precision, part), getattr(self.plans[node].effective, part)
            if part == "output" and self.roles.view.by_name[node] in self.roles.requests.owners(unit, part):
                got = self.plans[unit.last.name].effective.output
            if wanted:
                yield part, wanted, got

    def _refused(self, selection: RuleSelection, node: str) -> Message | None:
        """Why the target cannot grant what a rule asks for."""
        if self.roles.role_of(node) in ("none", "follow"):
            return None
        for decision in self.roles.decisions(self.roles.unit_of(node)).values():
            for request, reason in decision.refused:
                if request.order == selection.order:
                    return reason
        return None

    def _outranked(self, selection: RuleSelection, node: str) -> Message | None:
        """Which rule that names the same node counts more."""
        texts = (self._outranked_at(selection, node, part) for part in PARTS)
        return next((text for text in texts if text), None)

    def _outranked_at(self, selection: RuleSelection, node: str, part: Part, got: str = "") -> Message | None:
        """Which rule counts more for one part of a node; of those that got what they ask for, if that is given."""
        requests = self.roles.requests.every(self.roles.view.by_name[node], part)
        own = next((request for request in requests if request.order == selection.order), None)
        if own is None or requests[0].dtype == own.dtype or (got and requests[0].dtype != got):
            return None
        later = requests[0].strength[0] == own.strength[0]
        return message(f"quantize.why_{'later' if later else 'specific'}", rule=repr(requests[0].rule))

    # What is worth knowing although a rule was followed

    def _remarks(self, selection: RuleSelection, node: str) -> Iterator[Message]:
        named = bool(selection.ranks[node])
        for part, wanted, got in self._parts(selection, node) if named else ():
            if got and wanted != got:
                yield _because(_part_is(part, got), self._outranked_at(selection, node, part, got))
        if named and selection.rule.precision.output:
            tensors = list(self.roles.view.results(self.roles.unit_of(node).last))
        else:
            tensors = [] if named else [name for name in selection.tensors if node in self.touching(name)]
        for tensor in tensors:
            yield from self._unread(tensor)

    def _unread(self, tensor: str) -> Iterator[Message]:
        """What a tensor is stored as, when all that read it read it with fewer bits."""
        stored = self.storage.spec_of(tensor)
        if stored is None:
            return
        seen = list(self._seen_by(tensor))
        if not seen or any(spec.bits >= stored.spec.bits for _, spec in seen):
            return
        names = list(dict.fromkeys(self.roles.names.original(reader) for reader, _ in seen))
        yield message(
            "quantize.why_copies",
            tensor=repr(tensor),
            dtype=stored.spec.dtype,
            count=len(names),
            names=some(names, _LISTED),
            less="/".join(dict.fromkeys(spec.dtype for _, spec in seen)),
        )

    def _seen_by(self, tensor: str) -> Iterator[tuple[str, QuantSpec]]:
        """Who works on a tensor, also behind what only passes it on, and as what; outputs of the network too."""
        view = self.roles.view
        stored = self.storage.stored[self.storage.group_of[tensor]].spec
        if tensor in view.outputs:
            yield "", stored
        for reader in self.storage.readers[tensor]:
            unit = self.roles.unit_of(reader.node)
            if self.roles.role(unit) != "follow":
                yield reader.node, stored
                continue
            for result in view.results(unit.last):
                if result in self.storage.group_of:
                    yield from self._seen_by(result)
        for copy in self.storage.copies[tensor]:
            yield from ((reader.node, copy.spec) for reader in copy.readers)


def plan_quantization(
    model: Model,
    target: Target,
    *,
    rules: Sequence[Rule] = (),
    origins: Mapping[str, str] | None = None,
    method: str = "",
    weight_method: str = "",
) -> QuantPlan:
    """Decide what is quantized, and how.

    Args:
        model: The float model, prepared: batch normalization folded, constants computed.
        target: For which chip.
        rules: What the user wants otherwise than the target's default.
        origins: The user's names of nodes, each with the name of the node in `model` that took it over.
        method: Calibration method of activations; the target's own when empty.
        weight_method: Calibration method of weights; the target's own when empty.

    Raises:
        BadInput: A rule names nothing, or asks for nothing.
    """
    for rule in rules:
        if rule.precision == Precision():
            what = english("The rule {rule_text!r} asks for nothing.", rule_text=rule_text(rule))
            raise BadInput(what, fix=english("give it a precision, e.g. u16"))
    view = GraphView(model)
    names = Names(view, origins or {})
    selections = select(rules, view, names)
    requests = DtypeRequests.of(selections, view, target, names)
    roles = Roles(view, target, find_units(view, target), requests, names)
    storage = store(roles)
    methods = Methods(method or target.calibration.method, weight_method or target.calibration.weight_method)
    quantizers = make_quantizers(roles, storage, methods)
    explainer = Explainer(roles, storage, quantizers)
    seen = NodePrecisions(model, quantizers.planned)
    plans = {
        node.name: replace(explainer.plan(node), seen=seen.effective(seen.by_name[node.name]))
        for node in view.nodes
    }
    resolver = Resolver(roles, storage, quantizers, plans)
    return QuantPlan(
        target.name,
        quantizers.planned,
        tuple(plans.values()),
        tuple(resolver.resolve(selection) for selection in selections),
    )
