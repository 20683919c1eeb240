"""What became of every rule."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from roundoff.core.quant_plan import NodePlan, Resolution
from roundoff.core.quantizer import QuantSpec
from roundoff.quantize.planning.quantizers import Quantizers
from roundoff.quantize.planning.roles import Roles
from roundoff.quantize.planning.selecting import Selection
from roundoff.quantize.planning.storing import Storage
from roundoff.quantize.planning.tensor_reasons import TensorReasons
from roundoff.quantize.planning.wishes import PARTS, Part

__all__ = ["Resolver"]

_LISTED = 3
_GONE = "it is no node of its own any more: what it computes was computed ahead of time"


@dataclass(frozen=True, slots=True)
class Resolver:
    """Compares rules with what nodes became.

    Attributes:
        roles: What every unit is.
        storage: How tensors are stored.
        quantizers: What is quantized.
        plans: The plans of all nodes by their names in the graph.
    """

    roles: Roles
    storage: Storage
    quantizers: Quantizers
    plans: Mapping[str, NodePlan]

    @property
    def _tensors(self) -> TensorReasons:
        return TensorReasons(self.roles, self.storage, self.quantizers, self.plans)

    def resolve(self, selection: Selection) -> Resolution:
        """What became of one rule."""
        reasons: dict[str, str] = {}
        remarks: dict[str, str] = {}
        for name, node in selection.nodes.items():
            reason = self._reason(selection, node) if node else _GONE
            if reason:
                reasons[name] = reason
            elif remark := "; ".join(dict.fromkeys(self._remarks(selection, node))):
                remarks[name] = remark
        applied = tuple(name for name in selection.nodes if name not in reasons)
        return Resolution(selection.rule, tuple(selection.nodes), applied, reasons, remarks)

    def _reason(self, selection: Selection, node: str) -> str:
        """Why a node is not what a rule asks for; empty when it is."""
        if not selection.ranks[node]:
            texts = (self._tensors.reason(selection, tensor, node) for tensor in selection.tensors)
            return "; ".join(dict.fromkeys(text for text in texts if text))
        compared = [(part, wanted, got) for part, wanted, got in self._parts(selection, node) if got]
        others = [(part, got) for part, wanted, got in compared if wanted != got]
        missed = others[0] if others else None
        given_away = all(self._outranked_at(selection, node, part, got) for part, got in others)
        if len(others) < len(compared) and given_away:
            return ""
        reasons = (
            self._outranked(selection, node),
            self._refused(selection, node),
            self.plans[node].reason,
            *((self._by_another(node, *missed), f"its {missed[0]} is {missed[1]}") if missed is not None else ()),
        )
        return next((reason for reason in reasons if reason), "")

    def _by_another(self, node: str, part: Part, got: str) -> str:
        """Which other node of the same unit decides."""
        unit = self.roles.unit_of(node)
        wish = self.roles.decisions(unit)[part].wish
        if wish is not None and wish.dtype == got and wish.node != self.roles.names.original(node):
            return f"it is computed as one with {wish.node}, for which {wish.rule!r} asks for {got}"
        return self.plans[unit.last.name].reason

    def _parts(self, selection: Selection, node: str) -> Iterator[tuple[Part, str, str]]:
        """What is asked for the parts of a node, and what they are; empty where they do not exist."""
        unit = self.roles.unit_of(node)
        for part in PARTS:
            wanted, got = getattr(selection.rule.precision, part), getattr(self.plans[node].effective, part)
            if part == "output" and self.roles.view.by_name[node] in self.roles.wishes.owners(unit, part):
                got = self.plans[unit.last.name].effective.output
            if wanted:
                yield part, wanted, got

    def _refused(self, selection: Selection, node: str) -> str:
        """Why the target cannot grant what a rule asks for."""
        if self.roles.role_of(node) in ("none", "follow"):
            return ""
        for decision in self.roles.decisions(self.roles.unit_of(node)).values():
            for wish, reason in decision.refused:
                if wish.order == selection.order:
                    return reason
        return ""

    def _outranked(self, selection: Selection, node: str) -> str:
        """Which rule that names the same node counts more."""
        texts = (self._outranked_at(selection, node, part) for part in PARTS)
        return next((text for text in texts if text), "")

    def _outranked_at(self, selection: Selection, node: str, part: Part, got: str = "") -> str:
        """Which rule counts more for one part of a node; of those that got what they ask for, if that is given."""
        wishes = self.roles.wishes.every(self.roles.view.by_name[node], part)
        own = next((wish for wish in wishes if wish.order == selection.order), None)
        if own is None or wishes[0] is own or wishes[0].dtype == own.dtype or (got and wishes[0].dtype != got):
            return ""
        later = wishes[0].strength[0] == own.strength[0]
        return f"{wishes[0].rule!r} {'comes later and' if later else 'is more specific and'} counts more"

    # What is worth knowing although a rule was followed

    def _remarks(self, selection: Selection, node: str) -> Iterator[str]:
        named = bool(selection.ranks[node])
        for part, wanted, got in self._parts(selection, node) if named else ():
            if got and wanted != got:
                yield f"its {part} is {got}: {self._outranked_at(selection, node, part, got)}"
        if named and selection.rule.precision.output:
            tensors = list(self.roles.view.results(self.roles.unit_of(node).last))
        else:
            tensors = [] if named else [name for name in selection.tensors if node in self._tensors.touching(name)]
        for tensor in tensors:
            yield from self._unread(tensor)

    def _unread(self, tensor: str) -> Iterator[str]:
        """What a tensor is stored as, when all that read it read it with fewer bits."""
        stored = self.storage.spec_of(tensor)
        if stored is None:
            return
        seen = list(self._seen_by(tensor))
        if not seen or any(spec.bits >= stored.spec.bits for _, spec in seen):
            return
        names = list(dict.fromkeys(self.roles.names.original(reader) for reader, _ in seen))
        rest = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        dtype, less = stored.spec.dtype, "/".join(dict.fromkeys(spec.dtype for _, spec in seen))
        who, them = ("reader", "it") if len(names) == 1 else ("readers", "them")
        verb = "reads" if len(names) == 1 else "read"
        yield (
            f"{tensor!r} is stored as {dtype}, but its {who} {', '.join(names[:_LISTED])}{rest} {verb} "
            f"a copy in {less}, so that nothing is gained: give {them} {dtype} too"
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
