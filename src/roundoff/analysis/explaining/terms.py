"""What words mean: metrics, verdicts, causes and columns, from data."""

import math
import tomllib
from functools import cache
from importlib import resources

from roundoff.metrics.registry import Metric, all_metrics

__all__ = ["term_names", "term_text"]

_UNITS = {
    "dB": "in decibels",
    "share": "a share from 0 to 1",
    "value": "in the unit of the tensor",
    "": "without a unit",
}
_DIRECTIONS = {"higher": "higher is better", "lower": "lower is better", "none": "neither way is better"}


def term_names() -> tuple[str, ...]:
    """Every term that is known."""
    return tuple(dict.fromkeys(name for terms in _terms().values() for name in terms))


def term_text(name: str) -> str | None:
    """A paragraph on a term, in any spelling of upper and lower case; None when it is not known."""
    key = name.strip().casefold().replace(" ", "_")
    for kind, terms in _terms().items():
        found = next((each for each in terms if each.casefold() in (key, key.replace("_", "-"))), None)
        if found is not None:
            return _metric_text(found, terms[found]) if kind == "metric" else terms[found]
    return None


def _metric_text(name: str, misleading: str) -> str:
    metric = next(each for each in all_metrics() if each.name == name)
    return f"{name}: {_first_lower(metric.summary)} It is {_range(metric)}. {misleading}"


def _range(metric: Metric) -> str:
    told = f"{_UNITS[metric.unit]}; {_DIRECTIONS[metric.direction]}"
    if metric.perfect is None:
        return told
    perfect = "infinite" if math.isinf(metric.perfect) else f"{metric.perfect:g}"
    return f"{told}; of equal tensors it is {perfect}"


def _first_lower(text: str) -> str:
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


@cache
def _terms() -> dict[str, dict[str, str]]:
    """Texts by kind and name."""
    data = resources.files("roundoff.analysis.explaining").joinpath("terms.toml").read_text(encoding="utf-8")
    content: dict[str, dict[str, str]] = tomllib.loads(data)
    return content
