"""Who makes the loss, and why: suspects put right, or into float, until it is gone; then the cause of each.

A fault can hide another: next to a tensor that is wrecked, nothing seems to cost anything. So each suspect is
first judged in a network in which all others are at their best, and only then in the network as it is.
"""

import math
import statistics
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from roundoff.core.plan import FLOAT, NodePlan, QuantPlan
from roundoff.core.quantizers import Quantizer
from roundoff.diagnosis.controls import controlled
from roundoff.diagnosis.loss import NEGLIGIBLE, Loss
from roundoff.diagnosis.registry import Intervention, explain
from roundoff.diagnosis.result import Control, Finding, Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Fixes, Suspect
from roundoff.graph.nodes import producer_names
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.messages.message import message
from roundoff.run.bench import spread

if TYPE_CHECKING:
    from roundoff.studies.sensitivity.ranking import PlaceCosts


def rank(
    case: Case, suspects: Sequence[Suspect], *, most: int = 0, out_of_time: Callable[[], bool]
) -> "PlaceCosts[Suspect] | None":
    """Order places by what they cost alone.

    Args:
        case: The network.
        suspects: The places, in the order of the network.
        most: So many of them are singled out where there are too many to measure each, if they stand out.
        out_of_time: Whether to stop.

    Returns:
        The order; None when the time did not suffice.
    """
    # Only a loss that no better quantizer explains is ranked.
    from roundoff.studies.sensitivity.ranking import place_costs

    return place_costs(
        suspects,
        lambda group: alone_loss(case, *group).value,
        name=lambda suspect: suspect.name,
        most=most,
        out_of_time=out_of_time,
    )


def _strays(case: Case, suspects: Sequence[Suspect]) -> dict[str, float]:
    """By name how many times as much the tensor of each suspect loses as the one in the middle of its kind."""
    damages = {each.name: case.facts.damage(each) for each in suspects}
    lost = {name: 0.0 if each is None else each.channel_loss for name, each in damages.items()}
    by_kind: dict[str, list[float]] = {}
    for each in suspects:
        by_kind.setdefault(each.kind, []).append(lost[each.name])
    middle = {kind: statistics.median(found) for kind, found in by_kind.items()}
    return {each.name: lost[each.name] / max(middle[each.kind], _NO_LOSS) for each in suspects}


def alone_loss(case: Case, *suspects: Suspect) -> Loss:
    """What is lost when nothing but some suspects is quantized."""
    everything: Mapping[str, None] = dict.fromkeys(case.facts.quantizers)
    names = [name for suspect in suspects for name in suspect.quantizers]
    mine = {name: case.mended.get(name, case.facts.quantizers[name]) for name in names}
    return case.loss({**everything, **mine})


def _alone(case: Case, *suspects: Suspect) -> Case:
    """The network with nothing but some suspects quantized."""
    mine = {name for suspect in suspects for name in suspect.quantizers}
    return case.mend({name: None for name in case.facts.quantizers if name not in mine})


# A loss within so many decibels of what is possible is as good; less than that is chance between samples.
_AS_GOOD_DB = 1.5
# A suspect that costs less than this part of what the worst costs is not looked at.
_LEAST_COST = 0.02
# So many are measured one by one, of more of them so many groups first.
_ONE_BY_ONE, _GROUPS = 64, 16
# One is needed when without it the loss is this much higher.
_NEEDED_DB = 0.5
# Of the places that contribute one in so many are few, as are two.
_PART_THAT_IS_FEW, _ALWAYS_FEW = 3, 2
# Few places make the loss when without them it is at least this much smaller, 7 dB.
_MOST_OF_IT = 0.8
# In a deep network all others together lose as much as a few: these stand out when the tensor of each loses so
# many times what those of its kind do, and the network by it alone so many times what it does by another. They
# make a part of the loss when without them it is lower by so much.
_STRAYED, _OUTSTANDING, _A_PART_DB = 30.0, 50.0, 1.0
# So many of them are looked at, beside so many others.
_MOST_STRAYED, _OTHERS = 32, 16
# Less is no loss: that of 32 bits.
_NO_LOSS = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Accused:
    """A suspect without whose fixes the loss stays.

    Attributes:
        suspect: The suspect.
        fixes: What puts it right.
        cost: What it alone adds to the loss where all others are right.
        apart: Whether that drowns in what all others lose, so that its cause is looked for with these in float.
    """

    suspect: Suspect
    fixes: Fixes
    cost: float
    apart: bool = False


def find_needed(
    case: Case,
    candidates: Sequence[tuple[Suspect, Fixes]],
    *,
    blatant: Container[str] = (),
    out_of_time: Callable[[], bool],
) -> list[Accused]:
    """The fixes that are needed to bring the loss down to what all of them reach, costliest first.

    Args:
        case: The network.
        candidates: Suspects, with what puts each right.
        blatant: Names of those that are wrong in plain view, whatever the outputs say; they are tried first.
        out_of_time: Whether to stop looking.
    """
    # Costs are measured leave-one-out against the network with all fixes in, not one-in against the network as it
    # is: beside a wrecked tensor every other one looks harmless, since its error drowns in what is lost already.
    best = merged(fixes for _, fixes in candidates)
    goal = case.loss(best)
    if case.loss().excess_db(goal) <= _AS_GOOD_DB:
        return []
    costs = _costs(case, candidates, best, goal=goal, out_of_time=out_of_time)
    most = max((each.cost for each in costs), default=0.0)
    ranked = sorted(
        (each for each in costs if each.cost >= _LEAST_COST * most or each.suspect.name in blatant),
        key=lambda each: (each.suspect.name not in blatant, -each.cost),
    )
    # Greedy, costliest first, until what is chosen does as well as everything; the order of leave-one-out costs is
    # not quite that of joint ones, which is why those that turned out not to be needed are pruned in the end.
    # What is wrong in plain view goes first: beside it a lucky change of a sound place may cost as much.
    chosen: list[Accused] = []
    for accused in ranked:
        chosen.append(accused)
        if case.loss(merged(each.fixes for each in chosen)).excess_db(goal) <= _AS_GOOD_DB:
            break
    return _pruned(case, chosen, out_of_time=out_of_time)


def merged(fixes: Iterable[Fixes]) -> dict[str, Quantizer | None]:
    """All fixes together."""
    found: dict[str, Quantizer | None] = {}
    for each in fixes:
        found.update(each)
    return found


def _costs(
    case: Case,
    candidates: Sequence[tuple[Suspect, Fixes]],
    best: Fixes,
    *,
    goal: Loss,
    out_of_time: Callable[[], bool],
) -> list[Accused]:
    """What each candidate costs when it alone is not put right; of many only those in groups that cost a lot."""

    def cost(members: Sequence[tuple[Suspect, Fixes]]) -> float:
        mine = {name for _, fixes in members for name in fixes}
        return case.loss({name: each for name, each in best.items() if name not in mine}).value - goal.value

    # Group testing: of many candidates few are to blame, so whole groups are left as they are at once, and only
    # those that cost something are halved. Breadth first, so that `worst` is known before groups are dismissed.
    groups = [[each] for each in candidates]
    if len(candidates) > _ONE_BY_ONE:
        size = -(-len(candidates) // _GROUPS)
        groups = [list(candidates[at : at + size]) for at in range(0, len(candidates), size)]
    found, worst = list[Accused](), 0.0
    while groups and not out_of_time():
        members = groups.pop(0)
        value = cost(members)
        worst = max(worst, value)
        if len(members) == 1:
            found.append(Accused(*members[0], value))
        elif value >= _LEAST_COST * worst:
            middle = len(members) // 2
            groups += [members[:middle], members[middle:]]
    return found


def _pruned(case: Case, chosen: list[Accused], *, out_of_time: Callable[[], bool]) -> list[Accused]:
    """Without those that can stay as they are at no cost, the cheapest first."""
    # Held against all of them: of many that each cost next to nothing the last would else be as good as none.
    kept, with_all = list(chosen), case.loss(merged(each.fixes for each in chosen))
    for accused in reversed(chosen):
        others = [each for each in kept if each is not accused]
        if not others or out_of_time():
            break
        if case.loss(merged(each.fixes for each in others)).excess_db(with_all) < _NEEDED_DB:
            kept = others
    return kept


def takes_most(before: Loss, after: Loss) -> bool:
    """Whether most of a loss is gone."""
    gained = before.value - after.value
    return gained > 0 and gained >= _MOST_OF_IT * before.value


def find_few(
    case: Case,
    suspects: Sequence[Suspect],
    *,
    limit: int,
    out_of_time: Callable[[], bool],
    restores: Callable[[Fixes], bool] | None = None,
) -> list[Accused] | None:
    """Few suspects that take most of the loss away when they are in float.

    Args:
        case: The network.
        suspects: Who may be to blame.
        limit: How many are few.
        out_of_time: Whether to stop looking.
        restores: Whether fixes bring back what the user measures; where that is known, it decides.

    Returns:
        They; none where there are no such few, and None when the time did not suffice to tell.
    """
    ranked = rank(case, suspects, most=limit, out_of_time=out_of_time)
    if ranked is None:
        return None
    before, contributors = case.loss(), ranked.contributors
    # Of many places contributors are groups, which say nothing of how many places there are.
    few = limit
    if ranked.exact and contributors > limit:
        few = min(limit, max(_ALWAYS_FEW, contributors // _PART_THAT_IS_FEW))
    worst = [Accused(each, case.in_float(each), ranked.costs[each.name]) for each in ranked.places[:few]]

    def suffices(count: int) -> bool:
        fixes = merged(each.fixes for each in worst[:count])
        if restores is not None:
            return restores(fixes)
        # Ranked by the few samples that lose most, a place may be most of that: all of them have to confirm it.
        return takes_most(before, case.loss(fixes)) and takes_most(
            case.loss(more=True), case.loss(fixes, more=True)
        )

    # Galloping: 1, 2, 4, ... of the worst in float until most of the loss is gone, then halving what lies between.
    low, high = 0, min(1, len(worst))
    while high and not suffices(high):
        if out_of_time():
            return None
        if high == len(worst):
            return []
        low, high = high, min(2 * high, len(worst))
    while high - low > 1:
        if out_of_time():
            return None
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    kept = _pruned(case, worst[:high], out_of_time=out_of_time)
    return kept if restores is None or restores(merged(each.fixes for each in kept)) else worst[:high]


def find_outstanding(
    case: Case, suspects: Sequence[Suspect], *, beside: bool, out_of_time: Callable[[], bool]
) -> list[Accused]:
    """Of many places those that are far worse than all others, however much these lose together; costliest first.

    What one of them does to the outputs is less than chance among hundreds of others: it is seen without a run
    that its tensor loses far more than others, and by a run of it alone that the network does.

    Args:
        case: The network.
        suspects: Who may be to blame.
        beside: Whether others were proven to be, so that these need not make a part of the loss by themselves.
        out_of_time: Whether to stop looking.
    """
    if len(suspects) <= _ONE_BY_ONE:
        return []
    strayed = _strays(case, suspects)
    ordered = sorted(suspects, key=lambda each: -strayed[each.name])
    worst = [each for each in ordered if strayed[each.name] >= _STRAYED][:_MOST_STRAYED]
    if not worst or out_of_time():
        return []
    others = ordered[len(worst) :]
    usual = statistics.median(alone_loss(case, others[at]).value for at in spread(len(others), _OTHERS))
    costs = {each.name: alone_loss(case, each).value for each in worst if not out_of_time()}
    least = max(NEGLIGIBLE, _OUTSTANDING * usual)
    chosen = [
        Accused(each, case.in_float(each), costs[each.name], apart=True)
        for each in sorted(worst, key=lambda each: -costs.get(each.name, 0.0))
        if costs.get(each.name, 0.0) >= least
    ]
    after = merged(each.fixes for each in chosen)
    if not chosen or beside:
        return chosen
    if min(case.loss(more=more).excess_db(case.loss(after, more=more)) for more in (False, True)) < _A_PART_DB:
        return []
    control = controlled(case, after, out_of_time=out_of_time)
    return chosen if control is None or control.holds else []


# So many of one cause are told one by one.
_TOLD_ONE_BY_ONE = 3
MOST_EXPLAINED = 12
"""So many accused are looked into."""


def explained(
    case: Case, accused: Sequence[Accused], *, out_of_time: Callable[[], bool], most: int = MOST_EXPLAINED
) -> tuple[list[Finding], list[Accused]]:
    """The cause of each accused, each with all others put right; with a control where they are few.

    Where a proof leaves less of the loss than what they were accused with, they are put right as it did.

    Args:
        case: The network, with nothing of the accused mended.
        accused: Costliest first.
        out_of_time: Whether to stop looking.
        most: So many are looked into.
    """
    total = sum(max(0.0, each.cost) for each in accused) or 1.0
    found: list[Finding] = []
    cures: dict[str, Fixes] = {}
    # Of many those that have one cause are told together, and controlled together.
    few = len(accused) <= _TOLD_ONE_BY_ONE
    for each in accused[:most]:
        if out_of_time():
            break
        others = case.mend(merged(other.fixes for other in accused if other is not each))
        others = _alone(case, each.suspect) if each.apart else others
        suspect, tried = each.suspect, list[Intervention]()
        finding = explain(
            others,
            suspect,
            of="quantization",
            nodes=suspect.nodes,
            tensors=suspect.tensors,
            out_of_time=out_of_time,
            control=partial(_control_of, others, out_of_time, tried, few=few or each.apart),
        )
        if finding is not None:
            found.append(replace(_confirmed(finding), share=max(0.0, each.cost) / total))
            fixes = next((proof.fixes for proof in tried if proof.measures is finding.measures), {})
            if found[-1].proven and fixes and _further(others, each.fixes, fixes):
                cures[suspect.name] = fixes
    return found, [replace(each, fixes=cures.get(each.suspect.name, each.fixes)) for each in accused]


def _further(case: Case, known: Fixes, fixes: Fixes) -> bool:
    """Whether fixes of the same places leave less of the loss, on all samples that are used."""
    return known.keys() == fixes.keys() and case.loss(known, more=True).excess_db(case.loss(fixes, more=True)) > 0


def beside_cured(finding: Finding) -> Finding:
    """A finding whose intervention says that the network it was made in has all others put right."""
    if finding.intervention is None:
        return finding
    return replace(finding, intervention=message("diagnosis.beside_cured", whole=finding.intervention))


def in_silence(finding: Finding) -> Finding:
    """A finding whose intervention says that in the network it was made in nothing else is quantized."""
    if finding.intervention is None:
        return finding
    return replace(finding, intervention=message("diagnosis.in_silence", whole=finding.intervention))


def _control_of(
    case: Case, out_of_time: Callable[[], bool], tried: list[Intervention], proof: Intervention, *, few: bool
) -> Control | None:
    tried.append(proof)
    return controlled(case, proof.fixes, out_of_time=out_of_time) if few and proof.fixes else None


def with_control(finding: Finding, case: Case, fixes: Fixes, *, out_of_time: Callable[[], bool]) -> Finding:
    """A finding with its control, unless it has one; where that does not hold, it is suspected only.

    Args:
        finding: The finding.
        case: The network, with all others mended.
        fixes: What puts its places right.
        out_of_time: Whether there is no time for it.
    """
    if not finding.proven or finding.control is not None:
        return finding
    control = controlled(case, fixes, out_of_time=out_of_time)
    if control is None or control.holds:
        return replace(finding, control=control)
    return replace(finding, control=control, proven=False, remedy=None)


def _confirmed(finding: Finding) -> Finding:
    """Proven only when it also holds on more samples than it was found on."""
    if not finding.proven or (finding.measures and finding.measures[0].improved):
        return finding
    return replace(finding, proven=False, remedy=None)


def grouped(
    case: Case, findings: Sequence[Finding], accused: Sequence[Accused], *, out_of_time: Callable[[], bool]
) -> list[tuple[Finding, Fixes]]:
    """Findings with their controls and what puts their places right; of one cause together where they are many.

    Args:
        case: The network, with nothing of the accused mended.
        findings: Worst first.
        accused: All accused, whose fixes a group is measured with.
        out_of_time: Whether there is no time for more.
    """
    by_cause: dict[tuple[str, bool], list[Finding]] = {}
    for finding in _jointly_proven(case, findings, accused):
        by_cause.setdefault((finding.cause, finding.proven), []).append(finding)
    result = []
    for members in by_cause.values():
        if len(members) <= _TOLD_ONE_BY_ONE:
            told = [([each], each, any(other.apart for other in accused)) for each in members]
        else:
            told = [(members, *_group(case, members, accused))]
        for group, finding, silent in told:
            alike, others = _apart(group, accused)
            shown = with_control(finding, case.mend(others), alike, out_of_time=out_of_time)
            shown = in_silence(shown) if silent else beside_cured(shown) if others else shown
            result.append((shown, alike))
    return sorted(result, key=lambda each: (not each[0].proven, -each[0].share))


def _jointly_proven(case: Case, findings: Sequence[Finding], accused: Sequence[Accused]) -> list[Finding]:
    """Findings, proven ones first; where many have one cause, those that only together take more away count, too.

    In a deep network what one of many places costs is no more than chance between samples.
    """
    ordered = sorted(findings, key=lambda each: not each.proven)
    for cause in {each.cause for each in ordered if each.proven}:
        alike = [each for each in ordered if each.cause == cause]
        proven = [each for each in alike if each.proven]
        if len(alike) <= _TOLD_ONE_BY_ONE or len(alike) == len(proven):
            continue
        everyone, others = _apart(alike, accused)
        some, cured = _apart(proven, accused)[0], case.mend(others)
        if cured.loss(some, more=True).excess_db(cured.loss(everyone, more=True)) >= _NEEDED_DB:
            remedy = proven[0].remedy
            ordered = [replace(each, proven=True, remedy=remedy) if each in alike else each for each in ordered]
    return ordered


def _group(case: Case, members: Sequence[Finding], accused: Sequence[Accused]) -> tuple[Finding, bool]:
    """One finding for all of them, and whether it is measured with nothing else quantized."""
    alike = [each for each in accused if any(_is_of(member, each) for member in members)]
    others = _apart(members, accused)[1]
    changes = tuple(dict.fromkeys(change for each in members if each.remedy for change in each.remedy.changes))
    beside = case.mend(others)
    fixes = merged(each.fixes for each in alike)
    if silent := any(each.apart for each in alike) and beside.loss().excess_db(beside.loss(fixes)) < _A_PART_DB:
        # Each of these drowns in what all others lose, and so do all of them.
        beside = _alone(case, *(each.suspect for each in alike))
    found = replace(together(beside, members[0], alike), control=None)
    remedy = found.remedy
    if remedy is not None and {(each.kind, each.value) for each in changes} != {("bits", remedy.changes[0].value)}:
        # Ranges are those of each place; the same bits everywhere are one change, of which a part may gain nothing.
        remedy = replace(remedy, changes=changes)
    return replace(found, remedy=remedy, share=sum(each.share for each in members)), silent


def _apart(members: Sequence[Finding], accused: Sequence[Accused]) -> tuple[Fixes, Fixes]:
    """What puts the places of some findings right, and what all other accused."""
    mine = [each for each in accused if any(_is_of(member, each) for member in members)]
    return merged(each.fixes for each in mine), merged(each.fixes for each in accused if each not in mine)


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


# What no place is to blame for.
_NO_PLACE = frozenset({"accumulated-error", "metric-artefact"})
# An error beyond all measure.
_LOWEST_DB = -60.0


@dataclass(slots=True)
class Record:
    """Findings, with what puts the places of each right.

    Attributes:
        findings: In the order they were found.
    """

    findings: list[Finding] = field(default_factory=list)
    _fixes: list[Fixes | None] = field(default_factory=list)

    def add(self, finding: Finding, fixes: Fixes | None = None) -> None:
        """Take in a finding; without fixes it has the share that its first measure, in decibels, says.

        What was suspected before at the same places is not told twice.
        """
        same = (finding.cause, finding.tensors)
        if not finding.proven and same in {(each.cause, each.tensors) for each in self.findings}:
            return
        self.findings.append(finding)
        self._fixes.append(fixes)

    def fixes_of(self, finding: Finding) -> Fixes | None:
        """What puts the places of a finding right, whatever its share is by now; None where nothing known does."""
        known = zip(self.findings, self._fixes, strict=True)
        return next((fixes for each, fixes in known if replace(each, share=finding.share) == finding), None)

    def cured(self, case: Case) -> Case:
        """A network with the places of all proven findings put right, and no others."""
        known = zip(self.findings, self._fixes, strict=True)
        return case.mend(
            merged(fixes or {} for each, fixes in known if each.proven and each.cause not in _NO_PLACE)
        )

    @property
    def tensors(self) -> set[str]:
        """All tensors that are to blame for something."""
        return {name for each in self.findings for name in each.tensors}

    def shared(self, cured: Case, *, out_of_time: Callable[[], bool]) -> tuple[Finding, ...]:
        """All findings with their shares: what each costs when it alone is put back where all are put right.

        One that hides another, or is hidden by it, costs nothing in the network as it is.

        Args:
            cured: The network with all that was found put right.
            out_of_time: Whether there is no time to put anything back; then the measures of proofs tell.
        """

        def cost(finding: Finding, fixes: Fixes | None) -> float:
            if finding.cause == "metric-artefact":
                return 0.0
            if fixes is None or out_of_time():
                return _taken_away(finding)
            return max(0.0, cured.put_back(fixes).loss().value - cured.loss(fixes).value)

        weights = [cost(*each) for each in zip(self.findings, self._fixes, strict=True)]
        total = sum(weights) or 1.0
        return tuple(
            replace(each, share=weight / total) for each, weight in zip(self.findings, weights, strict=True)
        )


def _taken_away(finding: Finding) -> float:
    """What the first measure of a finding, in decibels, says it took away."""
    if not finding.measures:
        return 0.0
    before, after = (
        math.log1p(10 ** (-max(end, _LOWEST_DB) / 10))
        for end in (finding.measures[0].before, finding.measures[0].after)
    )
    return max(0.0, before - after)


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
    producers = producer_names(quantized.float_model.proto.graph.node)
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
