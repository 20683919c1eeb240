"""Arguments in the forms that Horizon's functions take: metrics, lists of nodes, numbers of samples."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from roundoff.errors import nearest
from roundoff.measure.metrics import MEAN
from roundoff.vendors.errors import WrongType, WrongValue

__all__ = [
    "METRICS",
    "NODE_TYPES",
    "NodeLists",
    "check_threshold",
    "flat_names",
    "metric_names",
    "node_lists",
    "one_metric",
    "our_metric",
    "sample_count",
]

METRICS = {
    "cosine-similarity": "mean_cosine",
    "mse": "mean_mse",
    "mre": "mean_mean_relative_error",
    "sqnr": "mean_sqnr_db",
    "chebyshev": "mean_chebyshev",
}
"""Horizon's name of each metric, and ours: its tools score each sample alone and give the mean."""

NODE_TYPES = ("node", "weight", "activation")

NodeLists: TypeAlias = "list[str | list[str]]"


def check_threshold(pick_threshold: Any) -> None:
    """Refuse what scores cannot be compared with.

    Raises:
        WrongType: It is not a number.
        WrongValue: It is NaN, which nothing reaches.
    """
    if isinstance(pick_threshold, bool) or not isinstance(pick_threshold, int | float):
        raise WrongType(f"pick_threshold is {pick_threshold!r}, not a number.", fix="give a number, as 0.999")
    if math.isnan(pick_threshold):
        raise WrongValue("pick_threshold is NaN, which no score reaches.", fix="give a number, as 0.999")


def our_metric(name: str) -> str:
    """Our name of a metric.

    Raises:
        WrongValue: There is no such metric.
        WrongType: It is no name at all.
    """
    if not isinstance(name, str):
        raise WrongType(f"{name!r} is not the name of a metric.", fix=f"choose one of: {', '.join(METRICS)}")
    if name not in METRICS:
        # Ours are understood everywhere else.
        meant = next((theirs for theirs, ours in METRICS.items() if name in (ours, ours.removeprefix(MEAN))), None)
        fix = nearest(name, METRICS) if meant is None else f"did you mean {meant!r}?"
        raise WrongValue(f"There is no metric {name!r}.", fix=fix)
    return METRICS[name]


def metric_names(metrics: Any) -> tuple[str, ...]:
    """One metric or a list of them, in Horizon's names, each once.

    Raises:
        WrongValue: One does not exist, or there is none.
        WrongType: It is neither a name nor a list of names.
    """
    if not isinstance(metrics, str | Sequence):
        what = f"metrics is {type(metrics).__name__}, neither a name nor a list of names."
        raise WrongType(what, fix=f"choose from: {', '.join(METRICS)}")
    names = (metrics,) if isinstance(metrics, str) else tuple(dict.fromkeys(metrics))
    for name in names:
        our_metric(name)
    if not names:
        raise WrongValue("metrics is an empty list.", fix=f"choose from: {', '.join(METRICS)}")
    return names


def one_metric(metric: Any) -> str:
    """A single metric, by itself or in a list.

    Raises:
        WrongValue: There is no such metric, or there are several.
        WrongType: It is no name.
    """
    names = metric_names(metric)
    if len(names) > 1:
        raise WrongValue(f"Several metrics were given: {', '.join(names)}.", fix="give one of them")
    return names[0]


def sample_count(data_num: Any, available: int) -> int:
    """How many samples are used; all for None.

    Raises:
        WrongType: It is not a whole number.
        WrongValue: It is more than there are, or fewer than one.
    """
    if data_num is None:
        return available
    if isinstance(data_num, bool) or not isinstance(data_num, int):
        raise WrongType(f"data_num is {data_num!r}, not a whole number.", fix="give a number, or None for all")
    if not 1 <= data_num <= available:
        what = f"data_num is {data_num}, but there are {available} samples."
        raise WrongValue(what, fix=f"give 1 to {available}, or None for all of them")
    return data_num


def node_lists(argument: str, given: Any) -> NodeLists:
    """Names, or lists of names, as a list; nothing for None.

    Args:
        argument: What it is called, for messages.
        given: A name, a list of names, or a list of lists of names.

    Raises:
        WrongType: It is something else.
    """
    if given is None:
        return []
    if isinstance(given, str):
        return [given]
    if not isinstance(given, Iterable):
        raise _not_names(argument, given)
    found: NodeLists = []
    for entry in given:
        if isinstance(entry, str):
            found.append(entry)
        elif isinstance(entry, Iterable) and not isinstance(entry, bytes):
            members = list(entry)
            if not all(isinstance(name, str) for name in members):
                raise _not_names(argument, entry)
            found.append(members)
        else:
            raise _not_names(argument, entry)
    return found


def _not_names(argument: str, given: Any) -> WrongType:
    what = f"{argument} holds {given!r}, which is neither a name nor a list of names."
    return WrongType(what, fix=f"write {argument}=['Conv_0', 'Conv_1'], or lists of such lists")


def flat_names(argument: str, given: Any, *, required: bool = True) -> list[str]:
    """A list of names, each once.

    Raises:
        WrongType: It holds something else.
        WrongValue: There are none and there must be.
    """
    found = node_lists(argument, given)
    if any(not isinstance(entry, str) for entry in found):
        what = f"{argument} holds lists of names; they have no meaning here."
        raise WrongType(what, fix=f"write one list, as in {argument}=['Conv_0', 'Conv_1']")
    if required and not found:
        raise WrongValue(f"{argument} names no node.", fix=f"write {argument}=['Conv_0', ...]")
    return list(dict.fromkeys(entry for entry in found if isinstance(entry, str)))
