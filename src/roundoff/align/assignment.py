"""Choosing one partner for each tensor so that the evidence as a whole is strongest."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from roundoff.align.evidence import Evidence

__all__ = ["Choice", "assign"]

Choice = dict[int, Evidence]
"""The evidence chosen, by index of the reference tensor."""

_SWEEPS = 20
"""Rounds of exchanges; two or three are usual, and every exchange helps, so that it ends by itself."""

_TIE_DIGITS = 6
"""Weights that agree to so many digits are equal."""


def assign(evidence: Sequence[Evidence], weights: Mapping[tuple[int, int], float]) -> Choice:
    """One-to-one choice of high total weight: the strongest first, then exchanges while they help.

    Args:
        evidence: At most one item per pair; the order decides between equal weights.
        weights: Weight of each pair, not negative.
    """
    matching = _Matching(evidence, weights)
    for _ in range(_SWEEPS):
        if not sum(matching.improve(row) for row in matching.rows):
            break
    return matching.chosen


class _Matching:
    """A one-to-one choice that can be improved."""

    def __init__(self, evidence: Sequence[Evidence], weights: Mapping[tuple[int, int], float]) -> None:
        self.weights = weights
        self.chosen: Choice = {}
        self.taken: Choice = {}
        self.rows: dict[int, list[Evidence]] = defaultdict(list)
        for item in sorted(evidence, key=lambda item: -round(weights[item.key], _TIE_DIGITS)):
            self.rows[item.reference].append(item)
            if item.reference not in self.chosen and item.candidate not in self.taken:
                self._choose(item)

    def improve(self, row: int) -> bool:
        """Give `row` a partner that another has, if what the other then takes makes up for it."""
        mine = self.chosen.get(row)
        for wanted in self.rows[row]:
            theirs = self.taken.get(wanted.candidate)
            if theirs is None or theirs is mine:
                continue
            instead = self._instead(theirs, freed=mine)
            gain = self._weight(wanted) + self._weight(instead) - self._weight(theirs) - self._weight(mine)
            if gain > 10**-_TIE_DIGITS:
                for item in (theirs, mine):
                    if item:
                        del self.chosen[item.reference], self.taken[item.candidate]
                for item in (wanted, instead):
                    if item:
                        self._choose(item)
                return True
        return False

    def _instead(self, theirs: Evidence, *, freed: Evidence | None) -> Evidence | None:
        """The best that the owner of `theirs` can take when it loses that and `freed` becomes free."""
        for item in self.rows[theirs.reference]:
            if item.candidate not in self.taken or (freed and item.candidate == freed.candidate):
                return item
        return None

    def _choose(self, item: Evidence) -> None:
        self.chosen[item.reference] = self.taken[item.candidate] = item

    def _weight(self, item: Evidence | None) -> float:
        return self.weights[item.key] if item else 0.0
