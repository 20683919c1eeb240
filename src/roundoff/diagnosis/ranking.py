"""Which places cost most when nothing else is quantized: one by one, or group by group where there are many.

Errors of places add up, so that a group costs about what its members do. Where few places make most of a loss, the
groups that hold them stand out, as do the halves of these, down to the places themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from roundoff.diagnosis.loss import Loss
from roundoff.diagnosis.subject import Case
from roundoff.diagnosis.suspects import Suspect

__all__ = ["Ranking", "alone_loss", "rank"]

# So many places are measured one by one; of more of them so many groups are made, and so many places singled out.
_ONE_BY_ONE, _GROUPS, _SINGLED_OUT = 64, 16, 4
# A place, or a group, contributes with this part of what all cost.
_CONTRIBUTES = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Places by what they cost.

    Attributes:
        places: Costliest first.
        costs: By name; those of places that were not singled out are their shares of what their group costs.
        total: What all cost.
        exact: Whether each of them was measured by itself.
        contributors: How many of them, or of their groups, cost something worth the name.
    """

    places: tuple[Suspect, ...]
    costs: Mapping[str, float]
    total: float
    exact: bool
    contributors: int


def rank(case: Case, suspects: Sequence[Suspect], *, out_of_time: Callable[[], bool]) -> Ranking | None:
    """Order places by what they cost alone.

    Args:
        case: The network.
        suspects: The places, in the order of the network.
        out_of_time: Whether to stop.

    Returns:
        The order; None when the time did not suffice.
    """
    size = 1 if len(suspects) <= _ONE_BY_ONE else -(-len(suspects) // _GROUPS)
    groups = [tuple(suspects[at : at + size]) for at in range(0, len(suspects), size)]
    costs: list[tuple[float, tuple[Suspect, ...]]] = []
    for group in groups:
        if out_of_time():
            return None
        costs.append((alone_loss(case, *group).value, group))
    total = sum(cost for cost, _ in costs)
    contributors = sum(cost >= _CONTRIBUTES * total for cost, _ in costs)
    search = _Singling(case, costs)
    for _ in range(_SINGLED_OUT):
        if not search.single_out(out_of_time):
            return None
    known = search.shares()
    places = sorted((each for each in suspects if known[each.name] > 0), key=lambda each: -known[each.name])
    return Ranking(tuple(places), known, total, size == 1, contributors)


def alone_loss(case: Case, *suspects: Suspect) -> Loss:
    """What is lost when nothing but some suspects is quantized."""
    everything: Mapping[str, None] = dict.fromkeys(case.facts.quantizers)
    names = [name for suspect in suspects for name in suspect.quantizers]
    mine = {name: case.mended.get(name, case.facts.quantizers[name]) for name in names}
    return case.loss({**everything, **mine})


@dataclass(slots=True)
class _Singling:
    """Groups, from which the costliest places are taken one after the other."""

    case: Case
    groups: list[tuple[float, tuple[Suspect, ...]]]

    def single_out(self, out_of_time: Callable[[], bool]) -> bool:
        """Take the costliest place out of the costliest group; whether the time sufficed."""
        many = [at for at, (_, group) in enumerate(self.groups) if len(group) > 1]
        if not many:
            return True
        at = max(many, key=lambda place: self.groups[place][0])
        whole, members = self.groups.pop(at)
        while len(members) > 1:
            if out_of_time():
                return False
            middle = len(members) // 2
            halves = members[:middle], members[middle:]
            costs = [alone_loss(self.case, *half).value for half in halves]
            larger = int(costs[1] > costs[0])
            self.groups.append((costs[1 - larger], halves[1 - larger]))
            whole, members = costs[larger], halves[larger]
        self.groups.append((whole, members))
        return True

    def shares(self) -> dict[str, float]:
        """What each place costs, as far as that is known."""
        return {each.name: cost / len(group) for cost, group in self.groups for each in group}
