"""The files of a search: ranking, history and final configuration."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from roundoff.core.files import read_small, write_text
from roundoff.errors import BadInput
from roundoff.search.strategies.roll_back import RollBackTrial
from roundoff.vendors.amct.configuration.parsing import dump, parse_json, write_json
from roundoff.vendors.errors import WrongValue

__all__ = [
    "BEST_EFFORT_CONFIG",
    "FINAL_CONFIG",
    "HISTORY",
    "RANKING",
    "HistoryForm",
    "read_history",
    "read_ranking",
    "write_history",
    "write_ranking",
]

_STEM = "accuracy_based_auto_calibration"
RANKING = f"{_STEM}_ranking_information.json"
HISTORY = f"{_STEM}_record.json"
FINAL_CONFIG = f"{_STEM}_final_config.json"
BEST_EFFORT_CONFIG = f"{_STEM}_best_effort_config.json"
"""Ours: the configuration of a model that was delivered although it is not good enough."""

HistoryForm = Literal["json", "amct"]
"""A list; or objects one behind the other, as AMCT writes them, which is not JSON."""


def write_ranking(path: Path, ranking: Sequence[tuple[str, float]]) -> None:
    """Write the layers, most sensitive first, with their numbers."""
    write_json(path, [[name, value] for name, value in ranking])


def read_ranking(path: Path) -> list[tuple[str, float]]:
    """The layers of a ranking file.

    Raises:
        BadInput: It is none.
    """
    found = parse_json(read_small(path, what="The ranking").decode(errors="replace"), name=str(path))
    if not isinstance(found, list) or not all(isinstance(each, list) and len(each) == 2 for each in found):
        raise BadInput(f"{path} is no ranking: it is not a list of pairs.", fix="give the file of a search")
    return [(str(name), float(value)) for name, value in found]


def write_history(path: Path, trials: Sequence[RollBackTrial], *, form: HistoryForm) -> None:
    """Write all trials so far, replacing an earlier file when it is complete."""
    entries = [_entry(trial) for trial in trials]
    write_text(path, dump(entries) if form == "json" else "".join(map(dump, entries)))


def _entry(trial: RollBackTrial) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "roll_back_config": dict(trial.roll_back_config),
        # JSON has no infinity.
        "metric_eval": [trial.satisfied, trial.loss if math.isfinite(trial.loss) else None],
    }
    return entry | ({"act_algo": trial.algorithm} if trial.algorithm else {})


def read_history(path: Path) -> list[RollBackTrial]:
    """The trials of a history file of either form.

    Raises:
        BadInput: It is none.
    """
    text = read_small(path, what="The history").decode(errors="replace")
    decoder = json.JSONDecoder()
    entries: list[Any] = []
    position = 0
    try:
        while text[position:].strip():
            position += len(text[position:]) - len(text[position:].lstrip())
            found, position = decoder.raw_decode(text, position)
            entries += found if isinstance(found, list) else [found]
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadInput(f"{path} is no history of trials: {error}.", fix="give the file of a search") from error
    return [_trial(entry, path) for entry in entries]


def _trial(entry: Any, path: Path) -> RollBackTrial:
    config = entry.get("roll_back_config") if isinstance(entry, Mapping) else None
    verdict = entry.get("metric_eval") if isinstance(entry, Mapping) else None
    flags = isinstance(config, Mapping) and all(isinstance(stays, bool) for stays in config.values())
    if not flags or not isinstance(verdict, list) or len(verdict) != 2 or config is None:
        what = f"{path} holds an entry that is no trial: {json.dumps(entry)[:60]}."
        raise WrongValue(what, fix="give the file of a search")
    loss = math.inf if verdict[1] is None else float(verdict[1])
    return RollBackTrial(dict(config), bool(verdict[0]), loss, str(entry.get("act_algo", "")))
