"""Budgets of a gate: how much each node may lose, and what it must reach, from a TOML or JSON file."""

import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from roundoff.core.files import reading
from roundoff.core.run_diff import RowDiff
from roundoff.errors import BadInput, nearest

__all__ = ["Budget", "Budgets", "decibels", "read_budgets"]

_TABLE, _GENERAL = "nodes", "max_regression"
_KEYS = ("loss", "at_least", "measure")
_IGNORED = "ignore"
_FIX = 'write lines like "head/*" = 0.5 or "head/*" = { loss = 0.5, at_least = 20 } under [nodes]'


@dataclass(frozen=True, slots=True)
class Budget:
    """What nodes of one pattern may lose.

    Attributes:
        pattern: Shell pattern of tensor or node names.
        loss_db: Allowed loss against the baseline; None for the general limit.
        at_least_db: What must be reached, whatever the baseline; None when nothing must.
        ignored: Whether these nodes are not judged at all.
        measure: The only score it is for; empty for all.
    """

    pattern: str
    loss_db: float | None = None
    at_least_db: float | None = None
    ignored: bool = False
    measure: str = ""

    def fits(self, row: RowDiff) -> bool:
        """Whether it decides on a row."""
        if self.measure and self.measure != row.measure:
            return False
        return fnmatchcase(row.tensor, self.pattern) or (bool(row.node) and fnmatchcase(row.node, self.pattern))


@dataclass(frozen=True, slots=True)
class Budgets:
    """All of a file.

    Attributes:
        general_db: Loss allowed where none of the others says otherwise; None when the file does not say.
        nodes: In the order of the file; the first that fits decides.
    """

    general_db: float | None = None
    nodes: tuple[Budget, ...] = ()


def read_budgets(path: Path) -> Budgets:
    """Read a file of budgets.

    Raises:
        BadInput: It cannot be read, or says something else.
    """
    with reading(path, what="The budget"):
        data = path.read_bytes()
    try:
        text = data.decode("utf-8")
        content = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        form = "JSON" if path.suffix.lower() == ".json" else "TOML"
        raise BadInput(f"{path} is no {form}: {error}.", fix=_FIX) from error
    if not isinstance(content, dict):
        raise BadInput(f"{path} is no table of budgets.", fix=_FIX)
    for key in content:
        if key not in (_TABLE, _GENERAL):
            raise BadInput(f"{path} has an entry {key!r}.", fix=nearest(key, (_TABLE, _GENERAL)))
    nodes = content.get(_TABLE, {})
    if not isinstance(nodes, dict):
        raise BadInput(f"{path}: 'nodes' is no table.", fix=_FIX)
    general = content.get(_GENERAL)
    return Budgets(
        None if general is None else _limit(general, f"{path}: max_regression", least=0.0),
        tuple(_budgets(nodes, path)),
    )


def _budgets(nodes: Mapping[str, object], path: Path) -> Iterator[Budget]:
    for pattern, given in nodes.items():
        where = f"{path}: {pattern!r}"
        if given == _IGNORED:
            yield Budget(pattern, ignored=True)
        elif isinstance(given, dict):
            for key in given:
                if key not in _KEYS:
                    raise BadInput(f"{where} has a key {key!r}.", fix=nearest(key, _KEYS))
            loss, least = given.get("loss"), given.get("at_least")
            if loss is None and least is None:
                raise BadInput(f"{where} sets no limit.", fix=_FIX)
            yield Budget(
                pattern,
                None if loss is None else _limit(loss, where, least=0.0),
                None if least is None else _limit(least, where),
                measure=str(given.get("measure", "")),
            )
        else:
            yield Budget(pattern, _limit(given, where, least=0.0))


def _limit(given: object, where: str, *, least: float = -math.inf) -> float:
    try:
        number = decibels(str(given)) if not isinstance(given, bool) else math.nan
    except ValueError:
        number = math.nan
    if math.isnan(number) or number < least:
        limits = "decibels from 0 on" if least == 0 else "decibels"
        raise BadInput(f"{where} is {given!r}, which are no {limits}.", fix=_FIX)
    return number


def decibels(text: str) -> float:
    """Decibels as users write them: ``1``, ``0.5dB``, ``2 dB``.

    Raises:
        ValueError: It is something else.
    """
    plain = text.strip()
    if plain.lower().endswith("db"):
        plain = plain[:-2].strip()
    number = float(plain)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
