"""The smallest part of a quantized network that shows a fault, fed with what the float network computes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from roundoff.case.parts import Blame, GoldenFeeds, blame, fixed_shapes, placed, run_part
from roundoff.case.reproducer import BEST_DB, Gap, Reproducer, ReproducerSample, clearly_better, largest_gap
from roundoff.core.quantizers import Quantizer
from roundoff.diagnosis.result import Finding, Measure
from roundoff.diagnosis.subject import Case
from roundoff.errors import BadInput
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.shapes import Value
from roundoff.graph.subgraph import Part, Parts
from roundoff.messages.message import message

__all__ = [
    "NotLocal",
    "reproduce_quantized",
    "shrink",
]


# Delta debugging over sets: from a set that shows something to one of which no member can be left out.

ItemT = TypeVar("ItemT")


def shrink(items: Sequence[ItemT], shows: Callable[[Sequence[ItemT]], bool]) -> list[ItemT]:
    """The smallest set that is found by leaving out halves, quarters, ... and at last single members.

    No member of the result can be left out alone. Their order is kept, and they need not be neighbours. A set that
    was tried is not tried again.

    Args:
        items: A set that shows it.
        shows: Whether a set does.
    """
    current = list(range(len(items)))
    known: dict[tuple[int, ...], bool] = {}

    def test(chosen: Sequence[int]) -> bool:
        key = tuple(chosen)
        if key not in known:
            known[key] = bool(key) and shows([items[index] for index in key])
        return known[key]

    pieces = 2
    while len(current) > 1:
        parts = _split(current, pieces)
        smaller = next((part for part in parts if test(part)), None)
        if smaller is not None:
            current, pieces = smaller, 2
            continue
        rest = next((left for part in parts if test(left := _without(current, part))), None)
        if rest is not None:
            current, pieces = rest, max(pieces - 1, 2)
            continue
        if pieces >= len(current):
            break
        pieces = min(2 * pieces, len(current))
    return [items[index] for index in current]


def _split(items: list[int], pieces: int) -> list[list[int]]:
    """Pieces of nearly the same size, none of them empty."""
    ends = [len(items) * number // pieces for number in range(pieces + 1)]
    return [items[start:end] for start, end in pairwise(ends) if end > start]


def _without(items: list[int], part: list[int]) -> list[int]:
    left_out = set(part)
    return [item for item in items if item not in left_out]


# A fault that makes less than this is none to be shown to others.
_SMALLEST_DB = 3.0
# A part shows the fault when it shows this much of what all that the fault touches shows.
_SHARE = 0.5
_MOST_SAMPLES = 4


class NotLocal(BadInput):
    """No part of the network shows the fault by itself."""


def reproduce_quantized(
    case: Case, finding: Finding, *, values: Sequence[Value], most_samples: int = _MOST_SAMPLES
) -> Reproducer:
    """Find the smallest part of a network that shows a finding, and prove that it does.

    Args:
        case: The float network and its quantizers.
        finding: What to show.
        values: All tensors of the float network, with types and shapes.
        most_samples: Samples that come along.

    Raises:
        NotLocal: No part shows it.
        BadInput: No quantizer belongs to the finding.
        ModelFailed: The network cannot be run.
    """
    blamed = blame(case, finding)
    if blamed is None:
        raise BadInput(
            f"Finding {finding.number} ({finding.cause}) blames no quantizer, so that no part can be cut out.",
            fix="choose another finding with --finding, or send the whole case with roundoff bundle",
        )
    golden = GoldenFeeds(case, _places(case, blamed, most_samples))
    search = _Search(case, blamed, Parts(case.facts.quantized.float_model, values), golden)
    found = search.reproducer(search.smallest(finding))
    if not (finding.proven or found.passes):
        raise NotLocal(_harmless(found), fix="choose another row with --finding, or run roundoff diagnose")
    return found


def _harmless(found: Reproducer) -> str:
    told = "" if found.complement is None else f"{found.complement.before:.1f} dB as it is and "
    after = "" if found.complement is None else f"{found.complement.after:.1f} dB with these quantizers off"
    return f"{found.nodes[0][0]!r} is not what makes the loss: the whole model has {told}{after}."


def _places(case: Case, blamed: Blame, most: int) -> tuple[int, ...]:
    """The samples on which the fault does most harm."""
    few = case.runner.few()
    if len(few) <= most:
        return few
    quantizers, mended = case.quantizers(), case.quantizers(blamed.fixes)

    def harm(place: int) -> float:
        return (
            case.runner.loss(quantizers, places=(place,)).value - case.runner.loss(mended, places=(place,)).value
        )

    return tuple(sorted(sorted(few, key=harm, reverse=True)[:most]))


@dataclass(slots=True)
class _Search:
    case: Case
    blamed: Blame
    parts: Parts
    golden: GoldenFeeds
    enough: float = _SMALLEST_DB
    _measured: dict[tuple[str, ...], Gap | None] = field(default_factory=dict)

    def smallest(self, finding: Finding) -> list[str]:
        """The nodes of the smallest part."""
        touched = self._touched()
        start = self._gap(touched) if touched else None
        nodes: Sequence[str] = touched
        if start is None or start.db < _SMALLEST_DB:
            nodes, start = self.parts.computing, self._gap(self.parts.computing)
        if start is None or start.db < _SMALLEST_DB:
            shown = "nothing can be compared" if start is None else f"at most {max(0.0, start.db):.1f} dB"
            raise NotLocal(
                f"No part of the network shows finding {finding.number} ({finding.cause}) by itself: {shown} "
                "between its quantizers and better ones, fed with what the float network computes.",
                fix="it adds up over the network; send the whole case with roundoff bundle",
            )
        self.enough = max(_SMALLEST_DB, _SHARE * start.db)
        single = next((name for name in self._in_order(finding, nodes) if self._shows([name])), None)
        return [single] if single is not None else shrink(nodes, self._shows)

    def _in_order(self, finding: Finding, nodes: Sequence[str]) -> list[str]:
        """Single nodes to try first: those that the finding blames, then those that blamed quantizers touch."""
        touched = self._touched()
        named = [name for name in finding.nodes if name in nodes]
        return list(dict.fromkeys((*named, *(name for name in touched if name in nodes))))

    def _touched(self) -> list[str]:
        """Nodes that read what blamed quantizers give, or compute what they quantize."""
        quantizers = [each for each in self.case.facts.quantized.quantizers if each.name in self.blamed.quantizers]
        readers = {edge.node for each in quantizers for edge in each.consumers}
        tensors = {each.tensor for each in quantizers}
        graph = self.case.runner.model.proto.graph
        makers = {node.name for node in graph.node if tensors & set(node.output)}
        return [name for name in self.parts.computing if name in readers | makers]

    def _shows(self, nodes: Sequence[str]) -> bool:
        gap = self._gap(nodes)
        return gap is not None and gap.db >= self.enough

    def _gap(self, nodes: Sequence[str]) -> Gap | None:
        key = tuple(nodes)
        if key not in self._measured:
            self._measured[key] = self._measure(self.parts.part(nodes))
        return self._measured[key]

    def _measure(self, part: Part) -> Gap | None:
        faulty = self._placed(part, mended=False)
        mine = any(each.name in self.blamed.quantizers for each in faulty)
        if not mine or not part.writes or not self.parts.can_be_fed(part):
            return None
        feeds = self.golden.of(part.reads)
        model = self.parts.model(part)
        exact, worse, better = (
            run_part(insert_quantizers(model, each) if each else model, feeds)
            for each in ([], faulty, self._placed(part, mended=True))
        )
        return largest_gap(exact, worse, better)

    def _placed(self, part: Part, *, mended: bool) -> list[Quantizer]:
        quantizers = self.case.quantizers(self.blamed.fixes if mended else None)
        return placed(quantizers, part, self.blamed.quantizers)

    def reproducer(self, nodes: Sequence[str]) -> Reproducer:
        """The part with everything that proves it."""
        part, gap = self.parts.part(nodes), self._gap(nodes)
        if gap is None:
            raise ValueError("only a part that shows the fault can be handed on")
        feeds = self.golden.of(part.reads)
        bare = self.parts.model(part)
        exact = run_part(bare, feeds)
        model = self.parts.model(part, fixed_shapes([*feeds, *exact]))
        quantized = insert_quantizers(model, self._placed(part, mended=False))
        observed = run_part(quantized, feeds)
        samples = tuple(
            ReproducerSample(name, feed, right, wrong)
            for name, feed, right, wrong in zip(self.golden.names, feeds, exact, observed, strict=True)
        )
        kinds = {node.name: node.op_type for node in self.case.runner.model.proto.graph.node}
        off = dict.fromkeys(self.blamed.quantizers)
        before, after = self.case.loss(more=True), self.case.loss(off, more=True)
        only = [each for each in self.case.facts.quantized.quantizers if each.name in self.blamed.quantizers]
        measure = Measure(
            message("diagnosis.measure_outputs"), "dB", before.sqnr_db, after.sqnr_db, samples=before.samples
        )
        return Reproducer(
            nodes=tuple((name, kinds[name]) for name in part.nodes),
            float_model=model,
            quantized_model=quantized,
            samples=samples,
            stored=False,
            spot=gap.spot,
            faulty_db=gap.faulty_db,
            mended_db=gap.mended_db,
            threshold_db=(gap.faulty_db + min(gap.mended_db, BEST_DB)) / 2,
            mending=self.blamed.what,
            complement=measure,
            alone=self.case.runner.loss(only, more=True).sqnr_db,
            passes=clearly_better(before, after),
        )
