"""The order of trials: what the strategy proposes, and a second look where nothing it proposed will do."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

from roundoff.vendors.amct.common.auto_calibration.outcome import Status, Trial
from roundoff.vendors.amct.common.auto_calibration.strategy import BinarySearchStrategy
from roundoff.vendors.amct.listening import LOGGER

__all__ = ["Trying", "search"]


class Trying(Protocol):
    """Makes and measures models."""

    trials: list[Trial]

    def attempt(self, enabled: Mapping[str, bool], algorithm: str = "") -> Trial:
        """Make and measure one in which these layers are quantized."""
        ...

    def all_float(self, layers: Mapping[str, bool]) -> None:
        """Note what needs no trial: the model with all layers in float."""
        ...

    def exhausted(self) -> bool:
        """Whether no further model may be tried."""
        ...


def search(
    trying: Trying,
    strategy: Any,
    ranking: Sequence[tuple[str, float]],
    *,
    first: Trial,
    alternatives: Sequence[str],
) -> Status:
    """Try models until one is good enough and no better one is proposed.

    Args:
        trying: Makes and measures models.
        strategy: Proposes layers that go back to float.
        ranking: The layers, most sensitive first, with numbers that are higher for less sensitive ones.
        first: The trial in which all layers are quantized.
        alternatives: Algorithms that all layers are tried with before any goes back to float.
    """
    if first.satisfied:
        return "ALL_QUANTIZED"
    base = first
    for algorithm in alternatives:
        if trying.exhausted():
            return "STOPPED"
        trial = trying.attempt(first.roll_back_config, algorithm)
        if trial.satisfied:
            return "ALL_QUANTIZED"
        base = trial if trial.loss < base.loss else base
    if not ranking:
        trying.all_float(first.roll_back_config)
        return "ALL_ROLL_BACK"
    strategy.initialize(dict(ranking))
    status = _follow(trying, strategy, base)
    if isinstance(strategy, BinarySearchStrategy):
        status = _look_again(trying, [name for name, _ in ranking], status, algorithm=base.algorithm)
    return status


def _follow(trying: Trying, strategy: Any, last: Trial) -> Status:
    """Try what the strategy proposes until it ends."""
    while True:
        answer = strategy.update_quant_config((last.satisfied, last.loss))
        proposed = {str(name): bool(stays) for name, stays in answer["roll_back_config"].items()}
        if not any(proposed.values()):
            trying.all_float(proposed)
            return "ALL_ROLL_BACK"
        if answer["stop_flag"] and proposed == last.roll_back_config:
            return _ended(last)
        if trying.exhausted():
            return "PARTIAL_ROLL_BACK" if any(trial.satisfied for trial in trying.trials) else "STOPPED"
        last = trying.attempt(proposed, last.algorithm)
        if answer["stop_flag"]:
            return _ended(last)


def _ended(last: Trial) -> Status:
    if not last.satisfied:
        return "ALL_ROLL_BACK"
    return "PARTIAL_ROLL_BACK" if last.floats else "ALL_QUANTIZED"


def _look_again(trying: Trying, ranking: Sequence[str], status: Status, *, algorithm: str) -> Status:
    """Where nothing was good enough and the loss did not shrink evenly, bisection may have missed the answer."""
    tried = {
        trial.floats: trial.loss
        for trial in trying.trials
        if trial.algorithm == algorithm and trial.floats < len(trial.roll_back_config)
    }
    uneven = any(tried[more] > tried[fewer] for fewer, more in pairwise(sorted(tried)))
    if not uneven or any(trial.satisfied and trial.floats < len(ranking) for trial in trying.trials):
        return status
    LOGGER.warning("the loss does not shrink evenly as layers go back to float: looking at more of them")
    promising = min(tried, key=lambda count: (tried[count], count))
    untried = sorted(set(range(1, len(ranking))) - set(tried), key=lambda count: (abs(count - promising), count))
    for count in untried[: int(math.log2(len(ranking))) + 1]:
        if trying.exhausted():
            break
        if trying.attempt({name: place >= count for place, name in enumerate(ranking)}, algorithm).satisfied:
            return "PARTIAL_ROLL_BACK"
    return status
