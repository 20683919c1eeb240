"""Reading thresholds: from the command line, and from the named profiles that ship as data."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from roundoff.errors import BadInput, nearest
from roundoff.measure.metrics import all_metrics, get_metric
from roundoff.messages.message import english

__all__ = [
    "Scope",
    "Threshold",
    "ThresholdSet",
    "load_profile",
    "parse_thresholds",
    "profile_summaries",
]


# Limits that a tensor's scores must keep, as data.

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


def parse_thresholds(text: str) -> ThresholdSet:
    """Read ``cosine=0.99,rmse=1``: the least value of what should be high, the greatest of what should be low."""
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if not separator or not name:
            raise BadInput(
                english("{part!r} is not a threshold.", part=part.strip()),
                fix=english("write metric=limit, e.g. cosine=0.99,rmse=1"),
            )
        if name in limits:
            raise BadInput(
                english("The threshold for {name} is given twice.", name=name),
                fix=english("give each metric once"),
            )
        limits[name] = _limit(name, value)
    return _threshold_set("given", limits)


def load_profile(name: str) -> ThresholdSet:
    """Look up a named set of thresholds."""
    profiles = _profiles()
    if name not in profiles:
        raise BadInput(english("There is no profile {name!r}.", name=name), fix=nearest(name, profiles))
    entry = profiles[name]
    return _threshold_set(name, entry["thresholds"], scope=entry.get("scope", "all"))


def profile_summaries() -> dict[str, str]:
    """Every profile's name, with what it stands for."""
    return {name: entry["about"] for name, entry in _profiles().items()}


def _limit(name: str, value: str) -> float:
    try:
        limit = float(value)
    except ValueError:
        limit = math.nan
    if math.isnan(limit):
        raise BadInput(
            english("The threshold {name}={value} is not a number.", name=name, value=value),
            fix=english("write {name}=0.99, for example", name=name),
        )
    return limit


def _threshold_set(name: str, limits: Mapping[str, float], *, scope: Any = "all") -> ThresholdSet:
    thresholds = []
    for metric_name, limit in limits.items():
        metric = get_metric(metric_name)
        if metric.direction == "none":
            judging = ", ".join(m.name for m in all_metrics() if m.direction != "none")
            raise BadInput(
                english("{metric_name} describes, it does not judge.", metric_name=metric_name),
                fix=english("choose one of: {judging}", judging=judging),
            )
        thresholds.append(Threshold(metric_name, float(limit), metric.direction == "higher"))
    return ThresholdSet(name, tuple(thresholds), scope)


def _profiles() -> dict[str, Any]:
    return tomllib.loads(resources.files("roundoff.measure").joinpath("profiles.toml").read_text("utf-8"))
