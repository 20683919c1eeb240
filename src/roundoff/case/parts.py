"""The quantizers of a whole network, on a part of it."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.diagnosis.ideal import options
from roundoff.diagnosis.registry import ENOUGH
from roundoff.diagnosis.repairable_model import edit
from roundoff.diagnosis.result import Change, Finding
from roundoff.diagnosis.subject import Case, Fixes
from roundoff.diagnosis.suspects import Suspect
from roundoff.graph.load import Model
from roundoff.graph.subgraph import Part, tap
from roundoff.run.session import open_session

__all__ = [
    "Blame",
    "Feeds",
    "GoldenFeeds",
    "blame",
    "fixed_shapes",
    "placed",
    "run_part",
]


def placed(quantizers: Sequence[Quantizer], part: Part, preferred: Collection[str] = ()) -> list[Quantizer]:
    """Those that a part sees: of what its nodes read, and of what it hands on to others.

    Args:
        quantizers: All that are on.
        part: The part.
        preferred: Where readers outside get a tensor in several ways, one of these quantizers makes its output.
    """
    inside = set(part.nodes)
    leaving = {tensor: each.name for tensor, each in _leaving(quantizers, part, preferred)}
    found = []
    for each in quantizers:
        consumers = tuple(edge for edge in each.consumers if edge.node in inside)
        output = leaving.get(each.tensor) == each.name
        if consumers or output:
            found.append(replace(each, consumers=consumers, output=output))
    # What another one quantizes again comes along, though nobody else reads it.
    names = {each.name for each in found}
    needed = {each.after for each in found} - names
    before = [replace(each, consumers=(), output=False) for each in quantizers if each.name in needed]
    return [*before, *found]


def _leaving(
    quantizers: Sequence[Quantizer], part: Part, preferred: Collection[str]
) -> Iterator[tuple[str, Quantizer]]:
    inside, written = set(part.nodes), set(part.writes)
    chosen: dict[str, Quantizer] = {}
    for each in quantizers:
        out = each.output or any(edge.node not in inside for edge in each.consumers)
        if each.tensor in written and out and (each.tensor not in chosen or each.name in preferred):
            chosen[each.tensor] = each
    yield from chosen.items()


# Parts of a network, fed with what the float network computes.

Feeds = list[dict[str, Array]]


@dataclass(slots=True)
class GoldenFeeds:
    """What the float network computes in some samples.

    Attributes:
        case: The network.
        places: The samples.
    """

    case: Case
    places: tuple[int, ...]
    _known: dict[str, list[Array]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names of the samples."""
        return [self.case.runner.feeds()[place][0] for place in self.places]

    def of(self, tensors: Sequence[str]) -> Feeds:
        """These tensors, by sample."""
        self._compute([name for name in tensors if name not in self._known])
        return [{name: self._known[name][at] for name in tensors} for at in range(len(self.places))]

    def _compute(self, names: Collection[str]) -> None:
        feeds = [self.case.runner.feeds()[place] for place in self.places]
        given = [name for name in names if name in feeds[0][1]]
        computed = [name for name in names if name not in feeds[0][1]]
        for name in given:
            self._known[name] = [feed[name] for _, feed in feeds]
        if computed:
            model = self.case.runner.model
            session = open_session(model, outputs=tap(model, computed))
            found = [session.run(feed, sample=sample) for sample, feed in feeds]
            for at, name in enumerate(computed):
                self._known[name] = [arrays[at] for arrays in found]


def run_part(model: Model, feeds: Feeds) -> Feeds:
    """The outputs of a model, by sample."""
    session = open_session(model)
    names = [value.name for value in model.proto.graph.output]
    return [dict(zip(names, session.run(feed), strict=True)) for feed in feeds]


def fixed_shapes(arrays: Sequence[Mapping[str, Array]]) -> dict[str, tuple[int, ...]]:
    """Shapes of tensors that have the same one in every sample."""
    found: dict[str, set[tuple[int, ...]]] = {}
    for each in arrays:
        for name, array in each.items():
            found.setdefault(name, set()).add(array.shape)
    return {name: next(iter(shapes)) for name, shapes in found.items() if len(shapes) == 1}


# What would be right in the place of blamed quantizers: the remedy of a finding, or the best that is known.

_WIDE_DTYPE = "s16"


@dataclass(frozen=True, slots=True, eq=False)
class Blame:
    """Quantizers to blame, and what would be right instead.

    Attributes:
        quantizers: Their names.
        fixes: Quantizers in their place; None for float.
        what: The same in words.
    """

    quantizers: frozenset[str]
    fixes: Fixes
    what: str


def blame(case: Case, finding: Finding) -> Blame | None:
    """The quantizers of a finding, with the first mending that takes away most of what float would.

    Args:
        case: The network.
        finding: The finding; its tensors say which quantizers, or without any its nodes.

    Returns:
        None where no quantizer belongs to it.
    """
    suspects = _suspects(case, finding)
    names = frozenset(name for each in suspects for name in each.quantizers)
    if not names:
        return None
    in_float: Fixes = dict.fromkeys(names)
    before, best = case.loss().value, case.loss(in_float).value
    for what, fixes in _candidates(case, finding, suspects):
        kept = {name: each for name, each in fixes.items() if name in names}
        if kept and before - case.loss(kept).value >= ENOUGH * (before - best):
            return Blame(names, kept, what)
    return Blame(names, in_float, "in float")


def _suspects(case: Case, finding: Finding) -> list[Suspect]:
    tensors, nodes = set(finding.tensors), set(finding.nodes)
    found = [each for each in case.facts.suspects if tensors & set(each.tensors)]
    return found or [each for each in case.facts.suspects if each.node in nodes]


def _candidates(case: Case, finding: Finding, suspects: Sequence[Suspect]) -> Iterator[tuple[str, Fixes]]:
    remedy = finding.remedy
    for change in () if remedy is None else remedy.changes:
        fixes = edit(case, change)
        if any(each is not None for each in fixes.values()):
            yield ("with the remedy in place", fixes)
    best: dict[str, Fixes] = {}
    for suspect in suspects:
        better = min(options(case.facts, suspect)[1], key=lambda each: each.loss, default=None)
        if better is not None:
            best[suspect.name] = better.fixes
    if best:
        yield (
            "with the same bits at their best",
            {name: each for fixes in best.values() for name, each in fixes.items()},
        )
    tensors = tuple(tensor for each in suspects for tensor in each.tensors)
    yield "with 16 bits", edit(case, Change("bits", tensors=tensors, value=_WIDE_DTYPE))
