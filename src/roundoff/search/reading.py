"""What measured values say of a candidate: its score, its loss, and whether it meets the goal."""

from collections.abc import Sequence

import numpy as np

from roundoff.core.student import mean_interval
from roundoff.core.tensors import Array
from roundoff.search.deciding import decide, look_sizes
from roundoff.search.goal import TuneGoal
from roundoff.search.judges import Judge

__all__ = ["Reading"]

# Samples come in this order whoever asks, so that a search can be repeated.
_SEED = 0


class Reading:
    """Reads values of candidates, measured in a fixed random order of the samples.

    Args:
        judge: What measured them.
        goal: What is to be reached.
        early: Whether a candidate may be decided before all samples were run.
        indices: Which samples are used; all of them by default, and always where samples have no values.

    Attributes:
        order: Indices of the samples in the order they are run.
        looks: After how many values a candidate is looked at; the last number is that of all.
        float_score: What the float network scores.
    """

    def __init__(
        self, judge: Judge, goal: TuneGoal, *, early: bool = True, indices: Sequence[int] | None = None
    ) -> None:
        self._judge, self._goal = judge, goal
        self._sign = 1.0 if judge.higher_is_better else -1.0
        chosen = np.arange(judge.total) if indices is None else np.array(indices)
        self.order = np.random.default_rng(_SEED).permutation(chosen)
        looks = look_sizes(chosen.size) if judge.by_sample else (1,)
        self.looks = looks if early else looks[-1:]
        values = judge.float_values().reshape(-1)
        self._float = values[self.order] if judge.by_sample else values
        self.float_score = float(self._float.mean())
        self._limits = self._gain_limits()
        # Strategies are asked from the start again and again.
        self._known: dict[bytes, bool | None] = {}

    @property
    def everything(self) -> int:
        """How many values there are of a candidate that was measured wholly."""
        return self.looks[-1]

    def samples(self, values: int) -> int:
        """How many samples so many values stand for."""
        return values if self._judge.by_sample else self._judge.total * values

    def score(self, values: Array) -> float:
        """What values of some samples suggest for all: the score in float, and what they gain over it."""
        if values.size == self.everything:
            # As measured: a detour over the gains might change the last bit, and with it what a user's rule says.
            return float(values.mean())
        score = self.float_score + self._sign * float(self._gains(values).mean())
        return (
            score if self._judge.limits is None else min(max(score, self._judge.limits[0]), self._judge.limits[1])
        )

    def loss(self, score: float) -> float:
        """How much worse than float a score is, as the user's rule says if there is one."""
        rule = self._judge.satisfied(self.float_score, score)
        return self._sign * (self.float_score - score) if rule is None else rule[1]

    @property
    def worst(self) -> float:
        """A score worse than any."""
        return -self._sign * float("inf")

    def better(self, left: float, right: float) -> bool:
        """Whether a score is better than another."""
        return self._sign * left > self._sign * right

    def interval(self, values: Array) -> tuple[float, float] | None:
        """Where the loss lies for many more samples like these; None where samples have no values."""
        return mean_interval(-self._gains(values)) if self._judge.by_sample else None

    def decided(self, values: Array) -> tuple[bool, int] | None:
        """Whether the goal is met, and after how many values that was clear; None while it is open.

        All values together have the last word; where they agree with the first that were clear, it stays with
        these, so that a strategy is told the same whenever it is asked again.
        """
        early = None
        for size in self.looks:
            if size > values.size:
                return early
            met = self._met(values[:size])
            if size == self.everything:
                return early if early is not None and early[0] == met else (bool(met), size)
            if met is not None and early is None:
                early = met, size
        return early

    def _met(self, values: Array) -> bool | None:
        key = values.tobytes()
        if key not in self._known:
            self._known[key] = self._find_met(values)
        return self._known[key]

    def _find_met(self, values: Array) -> bool | None:
        whole = values.size == self.everything
        rule = self._judge.satisfied(self.float_score, self.score(values)) if whole else None
        if rule is not None:
            return rule[0]
        if self._goal.value is None:
            return None
        # Sums in another order may differ in the last bits from what the goal was computed by.
        slack = 1e-9 * max(1.0, abs(self._goal.value))
        needed = self._sign * (self._goal.value - self.float_score) - slack
        return decide(
            self._gains(values), needed=needed, total=self.everything, limits=self._limits, looks=len(self.looks)
        )

    def _gains(self, values: Array) -> Array:
        return np.asarray(self._sign * (values - self._float[: values.size]))

    def _gain_limits(self) -> tuple[float, float] | None:
        if self._judge.limits is None:
            return None
        low, high = sorted(self._sign * limit for limit in self._judge.limits)
        floats = self._sign * self._float
        return low - float(floats.max()), high - float(floats.min())
