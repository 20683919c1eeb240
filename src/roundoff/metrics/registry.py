"""What a metric is, and the table of all of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from roundoff.core.moments import PairMoments
from roundoff.errors import BadInput, nearest

__all__ = ["Direction", "Metric", "all_metrics", "get_metric", "metric"]

Direction = Literal["higher", "lower", "none"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One number that says how alike two tensors are.

    Attributes:
        name: As users write it.
        unit: ``""`` for a plain number, ``dB``, ``share`` (0 to 1) or ``value`` (the tensor's own unit).
        direction: Which way is better; ``none`` for numbers that describe rather than judge.
        perfect: Its value for equal tensors; None where that depends on the tensor.
        summary: What it tells, in one sentence.
        compute: Its value from the moments of a pair that is not empty.
    """

    name: str
    unit: str
    direction: Direction
    perfect: float | None
    summary: str
    compute: Callable[[PairMoments], float]


_METRICS: dict[str, Metric] = {}


def metric(
    name: str, *, unit: str = "", direction: Direction, perfect: float | None
) -> Callable[[Callable[[PairMoments], float]], Callable[[PairMoments], float]]:
    """Register a function of the moments as a metric; its docstring's first line is the summary."""

    def register(compute: Callable[[PairMoments], float]) -> Callable[[PairMoments], float]:
        if name in _METRICS:
            raise ValueError(f"metric {name!r} is registered twice")
        summary = (compute.__doc__ or "").strip().splitlines()[0]
        _METRICS[name] = Metric(name, unit, direction, perfect, summary, compute)
        return compute

    return register


def all_metrics() -> Iterator[Metric]:
    """Every metric, in the order of the tables."""
    yield from _METRICS.values()


def get_metric(name: str) -> Metric:
    """Look a metric up by name."""
    if name not in _METRICS:
        raise BadInput(f"There is no metric {name!r}.", fix=nearest(name, _METRICS))
    return _METRICS[name]
