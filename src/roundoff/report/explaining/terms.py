"""What words mean: metrics, verdicts, causes and columns, from data."""

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

from roundoff.report.phrasing import semicolons
from roundoff.report.words import english_of, phrase_names, told

__all__ = ["MetricFacts", "term_names", "term_text"]

_UNITS = {"dB": "decibels", "share": "share", "value": "value", "": "none"}


class MetricFacts(Protocol):
    """What is known of a metric."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def summary(self) -> str:
        """What it is."""

    @property
    def unit(self) -> str:
        """Its unit."""

    @property
    def direction(self) -> str:
        """Which way it is better."""

    @property
    def perfect(self) -> float | None:
        """Its value for equal tensors."""


def term_names() -> tuple[str, ...]:
    """Every term that is known."""
    return tuple(dict.fromkeys(name for _, name in _terms()))


def term_text(name: str, metrics: Sequence[MetricFacts]) -> str | None:
    """A paragraph on a term, in any spelling of upper and lower case; None when it is not known.

    Args:
        name: The term.
        metrics: All metrics there are.
    """
    keys = {_key(each) for each in (name, *english_of(name))}
    for kind, term in _terms():
        if _key(term) in keys:
            text = told(f"terms.{kind}_{term}")
            metric = next((each for each in metrics if each.name == term), None)
            return text if kind != "metric" or metric is None else _metric_text(metric, text)
    return None


def _key(name: str) -> str:
    return name.strip().casefold().replace(" ", "_").replace("-", "_")


def _terms() -> Iterator[tuple[str, str]]:
    """The kind and the name of each term."""
    for name in phrase_names("terms"):
        kind, _, term = name.partition("_")
        yield kind, term


def _metric_text(metric: MetricFacts, misleading: str) -> str:
    summary = _first_lower(metric.summary)
    return told(
        "explain_text.metric", name=metric.name, summary=summary, range=_range(metric), misleading=misleading
    )


def _range(metric: MetricFacts) -> str:
    unit, direction = f"unit_{_UNITS[metric.unit]}", f"direction_{metric.direction}"
    perfect = ""
    if metric.perfect is not None:
        value = told("explain_text.infinite") if math.isinf(metric.perfect) else f"{metric.perfect:g}"
        perfect = told("explain_text.perfect", value=value)
    return semicolons(told(f"explain_text.{unit}"), told(f"explain_text.{direction}"), perfect)


def _first_lower(text: str) -> str:
    return text if text[:2].isupper() else text[:1].lower() + text[1:]
