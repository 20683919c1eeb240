"""From the accused to findings: the cause of each, proven where all others are put right."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from roundoff.core.plan import FLOAT, NodePlan, QuantPlan
from roundoff.core.quantizers import Quantizer
from roundoff.diagnosis.culprit_search import Accused, merged
from roundoff.diagnosis.registry import explain
from roundoff.diagnosis.result import Finding, Remedy, RemedyChange
from roundoff.diagnosis.subject import Case
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.messages.message import message

__all__ = [
    "MOST_EXPLAINED",
    "Record",
    "asked_bits",
    "explained",
    "grouped",
    "together",
]


# So many of one cause are told one by one.
_ONE_BY_ONE = 3
MOST_EXPLAINED = 12
"""So many accused are looked into."""


def explained(
    case: Case, accused: Sequence[Accused], *, out_of_time: Callable[[], bool], most: int = MOST_EXPLAINED
) -> list[Finding]:
    """The cause of each accused, each with all others put right.

    Args:
        case: The network, with nothing of the accused mended.
        accused: Costliest first.
        out_of_time: Whether to stop looking.
        most: So many are looked into.
    """
    total = sum(max(0.0, each.cost) for each in accused) or 1.0
    found: list[Finding] = []
    for each in accused[:most]:
        if out_of_time():
            break
        others = case.mend(merged(other.fixes for other in accused if other is not each))
        suspect = each.suspect
        finding = explain(
            others,
            suspect,
            of="quantization",
            nodes=suspect.nodes,
            tensors=suspect.tensors,
            out_of_time=out_of_time,
        )
        if finding is not None:
            found.append(replace(_confirmed(finding), share=max(0.0, each.cost) / total))
    return found


def _confirmed(finding: Finding) -> Finding:
    """Proven only when it also holds on more samples than it was found on."""
    if not finding.proven or (finding.measures and finding.measures[0].improved):
        return finding
    return replace(finding, proven=False, remedy=None)


def grouped(case: Case, findings: Sequence[Finding], accused: Sequence[Accused]) -> list[Finding]:
    """Findings with those of one cause told together where they are many.

    Args:
        case: The network, with nothing of the accused mended.
        findings: Worst first.
        accused: All accused, whose fixes a group is measured with.
    """
    by_cause: dict[tuple[str, bool], list[Finding]] = {}
    for finding in findings:
        by_cause.setdefault((finding.cause, finding.proven), []).append(finding)
    result = []
    for members in by_cause.values():
        result += members if len(members) <= _ONE_BY_ONE else [_group(case, members, accused)]
    return sorted(result, key=lambda each: (not each.proven, -each.share))


def _group(case: Case, members: Sequence[Finding], accused: Sequence[Accused]) -> Finding:
    alike = [each for each in accused if any(_is_of(member, each) for member in members)]
    others = merged(each.fixes for each in accused if each not in alike)
    changes = tuple(dict.fromkeys(change for each in members if each.remedy for change in each.remedy.changes))
    found = together(case.mend(others), members[0], alike)
    remedy = None if found.remedy is None else replace(found.remedy, changes=changes)
    return replace(found, remedy=remedy, share=sum(each.share for each in members))


def _is_of(finding: Finding, accused: Accused) -> bool:
    """Whether a finding was made of this accused; what shares a tensor with it may have another cause."""
    nodes, tensors = accused.suspect.nodes, accused.suspect.tensors
    return finding.nodes[: len(nodes)] == nodes and finding.tensors[: len(tensors)] == tensors


def together(case: Case, first: Finding, alike: Sequence[Accused]) -> Finding:
    """One finding for many places with the same cause, named and put right together.

    Args:
        case: The network, with all others mended.
        first: The finding of the worst place.
        alike: All of them, costliest first.
    """
    others = len(alike) - 1
    nodes = dict.fromkeys(name for each in alike for name in each.suspect.nodes[:1])
    nodes |= dict.fromkeys(name for each in alike for name in each.suspect.nodes)
    tensors = tuple(dict.fromkeys(name for each in alike for name in each.suspect.tensors))
    changes = () if first.remedy is None else _spread_over(first.remedy.changes, tuple(nodes), tensors)
    return replace(
        first,
        nodes=tuple(nodes),
        tensors=tensors,
        summary=message("diagnosis.likewise", whole=first.summary, count=others),
        intervention=message("diagnosis.likewise", whole=first.intervention, count=others),
        measures=case.measures(merged(each.fixes for each in alike)),
        share=1.0,
        places=len(alike),
        remedy=_shared_remedy(first.remedy, len(alike), changes),
    )


def _spread_over(
    changes: Sequence[RemedyChange], nodes: tuple[str, ...], tensors: tuple[str, ...]
) -> tuple[RemedyChange, ...]:
    """The same changes at many places; a range is then that of the values of each."""
    return tuple(
        RemedyChange("recalibrate", tensors, nodes)
        if each.kind == "range"
        else replace(each, nodes=nodes, tensors=tensors)
        for each in changes
    )


def _shared_remedy(remedy: Remedy | None, count: int, changes: tuple[RemedyChange, ...]) -> Remedy | None:
    if remedy is None:
        return None
    title = message("diagnosis.likewise_remedy", whole=remedy.title, count=count - 1)
    return replace(remedy, title=title, changes=changes)


# What a diagnosis has found so far, and what share of the loss each finding has.


@dataclass(slots=True)
class Record:
    """Findings, stage by stage.

    Attributes:
        findings: In the order they were found.
    """

    findings: list[Finding] = field(default_factory=list)
    _drops: list[float] = field(default_factory=list)

    def add(self, findings: Sequence[Finding], before: Case, after: Case) -> None:
        """Take in the findings of a stage, whose shares are those of what the stage took away."""
        drop = max(0.0, before.loss().value - after.loss().value)
        self.findings += findings
        self._drops += [drop] * len(findings)

    def add_one(self, finding: Finding, drop: float) -> None:
        """Take in a finding that took so much away."""
        self.findings.append(finding)
        self._drops.append(drop)

    @property
    def tensors(self) -> set[str]:
        """All tensors that are to blame for something."""
        return {name for each in self.findings for name in each.tensors}

    def shared(self) -> tuple[Finding, ...]:
        """All findings with their shares of all that was taken away."""
        weights = [each.share * drop for each, drop in zip(self.findings, self._drops, strict=True)]
        total = sum(weights) or 1.0
        return tuple(
            replace(each, share=weight / total) for each, weight in zip(self.findings, weights, strict=True)
        )


# Where a model has fewer bits than were asked for it.

# As good as float, for all that can be told.
_FLOAT_BITS = 16


def asked_bits(quantized: QuantizedModel, plan: QuantPlan | None) -> dict[str, int]:
    """Quantizers with fewer bits than their node was to have, with the bits that were asked for.

    Args:
        quantized: The network as it is.
        plan: What was asked for each node; None where nothing is known of it.
    """
    if plan is None:
        return {}
    nodes = {each.node: each for each in plan.nodes}
    producers = {name: node.name for node in quantized.float_model.proto.graph.node for name in node.output}
    found: dict[str, int] = {}
    for quantizer in quantized.quantizers:
        asked = [_bits(nodes[each.node], quantizer) for each in quantizer.consumers if each.node in nodes]
        writer = nodes.get(producers.get(quantizer.tensor, ""))
        asked += [] if writer is None else [_width(writer.requested.output, writer.effective.output)]
        if max(asked, default=0) > quantizer.spec.bits:
            found[quantizer.name] = max(asked)
    return found


def _bits(node: NodePlan, quantizer: Quantizer) -> int:
    """What a node asks of one of its inputs; nothing of a bias."""
    if quantizer.kind == "bias":
        return 0
    if quantizer.kind == "weight":
        return _width(node.requested.weight, node.effective.weight)
    return _width(node.requested.activation, node.effective.activation)


def _width(dtype: str, granted: str) -> int:
    """Bits that were asked for and not granted; a part that does not exist inside a unit was not refused."""
    if not granted or dtype == granted:
        return 0
    if dtype == FLOAT:
        return _FLOAT_BITS
    return int(dtype[1:]) if dtype[1:].isdigit() else 0
