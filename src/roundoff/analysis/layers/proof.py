"""The proof that few units make the loss: put into float, they take most of it away.

Estimates say which units to try; nothing is claimed of a unit that was not tried.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from roundoff.analysis.layers.experiments import Outcome
from roundoff.analysis.layers.unit_parts import Parts
from roundoff.core.layer_scores import Experiment

__all__ = ["Proof", "Role", "Tester", "prove", "takes_most"]

# Few units make the loss when without them it is at least this much smaller: where the outputs are good then, and
# where they are not and more is wrong than these units.
_HALF, _MOST_OF_IT = 0.5, 0.75
# A set as good as a larger one takes at least this part of what that takes.
_AS_GOOD = 0.9
# A unit, or a part of one, is needed when without it at least this part of the gain is lost.
_NEEDED = 0.1
# Which part of a unit it is that costs so much is looked into for so many units.
_MOST_TAKEN_APART = 4


class Tester(Protocol):
    """Runs the network with quantizers off."""

    def run(self, off: Collection[str]) -> Outcome:
        """What the outputs are then, on few samples."""
        ...

    def confirm(self, off: Collection[str]) -> tuple[Outcome, Outcome]:
        """What they are with all quantizers on, and then, on more samples than those they were chosen by."""
        ...


@dataclass(frozen=True, slots=True)
class Role:
    """What was measured of one unit of a set that takes most of the loss away.

    Attributes:
        inside: Whether its weights have to be in float.
        result: Whether what it writes has to be in float.
        costlier: The part that costs more when it is quantized again; empty when not tried.
        quantized_again: The outputs when it alone is quantized again; None where it is the only one.
        weights_again: When its weights are, and what it reads.
        result_again: When what it writes is.
    """

    inside: bool
    result: bool
    costlier: str = ""
    quantized_again: Experiment | None = None
    weights_again: Experiment | None = None
    result_again: Experiment | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """What was tried, and what came of it.

    Attributes:
        holds: Whether few units take most of the loss away.
        before: The outputs as they are.
        after: The outputs with these units, or the parts of them that matter, in float.
        tried: The tensors these units write.
        roles: What of each unit matters, where the proof holds.
    """

    holds: bool
    before: Outcome
    after: Outcome
    tried: tuple[str, ...]
    roles: Mapping[str, Role] = field(default_factory=dict)


def prove(tester: Tester, parts: Callable[[str], Parts], orders: Sequence[Sequence[str]], *, limit: int) -> Proof:
    """Find few units that take most of the loss away, or see that the likeliest do not.

    Args:
        tester: Runs experiments.
        parts: The quantizers of the unit that writes a tensor.
        orders: Tensors of units, the likeliest first; one order after the other is tried.
        limit: How many units are few.
    """
    return _Search(tester, parts, tester.run(())).prove([list(order[:limit]) for order in orders])


def takes_most(before: Outcome, after: Outcome) -> bool:
    """Whether an outcome keeps the thresholds and half of what another has lost, or else most of it."""
    gained = before.loss - after.loss
    return gained > 0 and gained >= (_HALF if after.found.agrees else _MOST_OF_IT) * before.loss


@dataclass(frozen=True, slots=True)
class _Search:
    tester: Tester
    parts: Callable[[str], Parts]
    before: Outcome

    def prove(self, sets: Sequence[list[str]]) -> Proof:
        chosen: list[str] = []
        after = self.before
        for units in sets:
            outcome = self._without(units)
            if outcome.loss < after.loss or not chosen:
                chosen, after = units, outcome
            if takes_most(self.before, after):
                break
        if not takes_most(self.before, after):
            return Proof(False, self.before, after, tuple(chosen))
        chosen = self._needed(self._shortest(chosen, after))
        first = chosen[:_MOST_TAKEN_APART]
        roles = {unit: self._role(unit, chosen, taken_apart=unit in first) for unit in chosen}
        whole, least = self._without(chosen), self._least(roles)
        if least.loss - whole.loss > (1 - _AS_GOOD) * self._gain(whole):  # parts that only matter together
            roles = {unit: _whole(role, self.parts(unit)) for unit, role in roles.items()}
            least = whole
        # Units that were chosen on few samples look better on these than they are.
        before, after = self.tester.confirm(least.found.switched_off)
        if not takes_most(before, after):
            return Proof(False, before, after, tuple(chosen))
        return Proof(True, before, after, tuple(chosen), roles)

    def _gain(self, outcome: Outcome) -> float:
        return self.before.loss - outcome.loss

    def _without(self, units: Collection[str]) -> Outcome:
        return self.tester.run({name for unit in units for name in self.parts(unit).all})

    def _shortest(self, units: list[str], after: Outcome) -> list[str]:
        """The shortest beginning of a list that is as good as the whole."""
        low, high = 1, len(units)
        while low < high:
            middle = (low + high) // 2
            outcome = self._without(units[:middle])
            good = self._gain(outcome) >= _AS_GOOD * self._gain(after) and takes_most(self.before, outcome)
            low, high = (low, middle) if good else (middle + 1, high)
        return units[:high]

    def _needed(self, units: list[str]) -> list[str]:
        """The units without those that can be quantized again at no cost, the least likely first."""
        kept = list(units)
        for unit in reversed(units):
            others = [each for each in kept if each != unit]
            if not others:
                break
            with_all, without = self._without(kept), self._without(others)
            if without.loss - with_all.loss < _NEEDED * self._gain(with_all) and takes_most(self.before, without):
                kept = others
        return kept

    def _role(self, unit: str, units: Sequence[str], *, taken_apart: bool) -> Role:
        mine, others = self.parts(unit), [each for each in units if each != unit]
        again = self._without(others).found if others else None
        if not (mine.inside and mine.result and taken_apart):
            return Role(bool(mine.inside), bool(mine.result), quantized_again=again)
        off = {name for each in others for name in self.parts(each).all}
        whole = self._without(units)
        weights, result = self.tester.run(off | mine.result), self.tester.run(off | mine.inside)
        least = _NEEDED * self._gain(whole)
        needed = weights.loss - whole.loss >= least, result.loss - whole.loss >= least
        if not any(needed):
            needed = True, True
        costlier = "inside" if weights.loss > result.loss else "result"
        return Role(*needed, costlier, again, weights.found, result.found)

    def _least(self, roles: Mapping[str, Role]) -> Outcome:
        off: set[str] = set()
        for unit, role in roles.items():
            mine = self.parts(unit)
            off |= (mine.inside if role.inside else set()) | (mine.result if role.result else set())
        return self.tester.run(off)


def _whole(role: Role, parts: Parts) -> Role:
    """The same with all of the unit in float."""
    return Role(
        bool(parts.inside),
        bool(parts.result),
        role.costlier,
        role.quantized_again,
        role.weights_again,
        role.result_again,
    )
