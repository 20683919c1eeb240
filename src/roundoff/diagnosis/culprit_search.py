"""Who makes the loss: suspects put right, or into float, until it is gone; those that are not needed fall away.

A fault can hide another: next to a tensor that is wrecked, nothing seems to cost anything. So each suspect is
first judged in a network in which all others are at their best, and only then in the network as it is.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from roundoff.core.quantizers import Quantizer
from roundoff.diagnosis.loss import Loss
from roundoff.diagnosis.ranking import rank
from roundoff.diagnosis.subject import Case, Fixes
from roundoff.diagnosis.suspects import Suspect

__all__ = ["Accused", "find_few", "find_needed", "merged", "takes_most"]

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


@dataclass(frozen=True, slots=True, eq=False)
class Accused:
    """A suspect without whose fixes the loss stays.

    Attributes:
        suspect: The suspect.
        fixes: What puts it right.
        cost: What it alone adds to the loss where all others are right.
    """

    suspect: Suspect
    fixes: Fixes
    cost: float


def find_needed(
    case: Case, candidates: Sequence[tuple[Suspect, Fixes]], *, out_of_time: Callable[[], bool]
) -> list[Accused]:
    """The fixes that are needed to bring the loss down to what all of them reach, costliest first.

    Args:
        case: The network.
        candidates: Suspects, with what puts each right.
        out_of_time: Whether to stop looking.
    """
    best = merged(fixes for _, fixes in candidates)
    goal = case.loss(best)
    ranked = sorted(
        _costs(case, candidates, best, goal=goal, out_of_time=out_of_time), key=lambda each: -each.cost
    )
    chosen: list[Accused] = []
    for accused in ranked:
        if accused.cost < _LEAST_COST * ranked[0].cost:
            break
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
    kept = list(chosen)
    for accused in reversed(chosen):
        others = [each for each in kept if each is not accused]
        if not others or out_of_time():
            break
        with_all = case.loss(merged(each.fixes for each in kept))
        without = case.loss(merged(each.fixes for each in others))
        if without.excess_db(with_all) < _NEEDED_DB:
            kept = others
    return kept


def takes_most(before: Loss, after: Loss) -> bool:
    """Whether most of a loss is gone."""
    gained = before.value - after.value
    return gained > 0 and gained >= _MOST_OF_IT * before.value


def find_few(
    case: Case, suspects: Sequence[Suspect], *, limit: int, out_of_time: Callable[[], bool]
) -> list[Accused] | None:
    """Few suspects that take most of the loss away when they are in float.

    Args:
        case: The network.
        suspects: Who may be to blame.
        limit: How many are few.
        out_of_time: Whether to stop looking.

    Returns:
        They; none where there are no such few, and None when the time did not suffice to tell.
    """
    ranked = rank(case, suspects, out_of_time=out_of_time)
    if ranked is None:
        return None
    before, chosen = case.loss(), list[Accused]()
    contributors = ranked.contributors
    few = limit if contributors <= limit else min(limit, max(_ALWAYS_FEW, contributors // _PART_THAT_IS_FEW))
    for suspect in ranked.places[:few]:
        if out_of_time():
            return None
        chosen.append(Accused(suspect, case.in_float(suspect), ranked.costs[suspect.name]))
        if takes_most(before, case.loss(merged(each.fixes for each in chosen))):
            return _pruned(case, chosen, out_of_time=out_of_time)
    return []
