"""Limits that a tensor's scores must keep, as data."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["Scope", "Threshold", "ThresholdSet"]

Scope = Literal["all", "outputs"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A limit on one metric: at least `limit` when higher is better, at most `limit` otherwise."""

    metric: str
    limit: float
    higher_is_better: bool

    def holds(self, values: dict[str, float]) -> bool:
        """Whether the scores keep the limit; a score that is absent or not a number does not."""
        value = values.get(self.metric, float("nan"))
        return value >= self.limit if self.higher_is_better else value <= self.limit

    def describe(self) -> str:
        """The limit in words, e.g. ``cosine >= 0.99``."""
        return f"{self.metric} {'>=' if self.higher_is_better else '<='} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class ThresholdSet:
    """Several limits that must all hold.

    Attributes:
        name: The profile's name; ``given`` when written on the command line.
        thresholds: The limits.
        scope: Which tensors are judged: all, or the network's outputs only.
    """

    name: str
    thresholds: tuple[Threshold, ...]
    scope: Scope = "all"

    def holds(self, values: dict[str, float]) -> bool:
        """Whether all limits are kept."""
        return all(threshold.holds(values) for threshold in self.thresholds)

    def describe(self) -> str:
        """The limits in words."""
        return ", ".join(threshold.describe() for threshold in self.thresholds)
