"""What places cost alone where there are too many to measure each: groups of them, and halves of the costliest.

Errors of places add up, so that a group costs about what its members do. Where few places make most of a loss, the
groups that hold them stand out, as do the halves of these, down to the places themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["PlaceCosts", "place_costs"]

# So many places are measured one by one; of more of them so many groups are made, and so many places singled out.
_ONE_BY_ONE, _GROUPS, _SINGLED_OUT = 64, 16, 4
# A place, or a group, contributes with this part of what all cost.
_CONTRIBUTES = 0.01

Place = TypeVar("Place")


@dataclass(frozen=True, slots=True, eq=False)
class PlaceCosts(Generic[Place]):
    """Places by what they cost.

    Attributes:
        places: Those that cost something, costliest first.
        costs: By name; those of places that were not singled out are their shares of what their group costs.
        total: What all cost.
        exact: Whether each of them was measured by itself.
        contributors: How many of them, or of their groups, cost something worth the name.
    """

    places: tuple[Place, ...]
    costs: Mapping[str, float]
    total: float
    exact: bool
    contributors: int


def place_costs(
    places: Sequence[Place],
    cost: Callable[[Sequence[Place]], float],
    *,
    name: Callable[[Place], str],
    out_of_time: Callable[[], bool] = lambda: False,
) -> PlaceCosts[Place] | None:
    """Order places by what they cost.

    Args:
        places: In the order of the network.
        cost: What some of them cost together, when nothing else does.
        name: What a place is called.
        out_of_time: Whether to stop.

    Returns:
        The order; None when the time did not suffice.
    """
    size = 1 if len(places) <= _ONE_BY_ONE else -(-len(places) // _GROUPS)
    groups: list[tuple[float, Sequence[Place]]] = []
    for at in range(0, len(places), size):
        if out_of_time():
            return None
        groups.append((cost(places[at : at + size]), places[at : at + size]))
    total = sum(each for each, _ in groups)
    contributors = sum(each >= _CONTRIBUTES * total for each, _ in groups)
    for _ in range(_SINGLED_OUT):
        if not _single_out(groups, cost, out_of_time):
            return None
    known = {name(each): whole / len(group) for whole, group in groups for each in group}
    ordered = sorted((each for each in places if known[name(each)] > 0), key=lambda each: -known[name(each)])
    return PlaceCosts(tuple(ordered), known, total, size == 1, contributors)


def _single_out(
    groups: list[tuple[float, Sequence[Place]]],
    cost: Callable[[Sequence[Place]], float],
    out_of_time: Callable[[], bool],
) -> bool:
    """Take the costliest place out of the costliest group; whether the time sufficed."""
    many = [at for at, (_, group) in enumerate(groups) if len(group) > 1]
    if not many:
        return True
    whole, members = groups.pop(max(many, key=lambda place: groups[place][0]))
    while len(members) > 1:
        if out_of_time():
            return False
        middle = len(members) // 2
        halves = members[:middle], members[middle:]
        costs = [cost(half) for half in halves]
        larger = int(costs[1] > costs[0])
        groups.append((costs[1 - larger], halves[1 - larger]))
        whole, members = costs[larger], halves[larger]
    groups.append((whole, members))
    return True
