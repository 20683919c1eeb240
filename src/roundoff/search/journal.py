"""What a search has measured, in an SQLite file: appended to, so that a sudden end loses one unit of work."""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.plan import Recipe, Rule, inputs_text
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.messages.numbers import counted

__all__ = [
    "TrialJournal",
    "describe",
    "problem_differences",
    "recipe_json",
    "recipe_key",
]


_SCHEMA = 1
_TABLES = """
create table about (key text primary key, value text not null) without rowid;
create table recipes (number integer primary key, key text not null unique, recipe text not null);
create table chunks (
  number integer primary key, key text not null, start integer not null, metric blob not null,
  seconds real not null, unique (key, start)
);
create table facts (key text primary key, value text not null) without rowid;
"""


class TrialJournal:
    """Remembers measurements of one problem.

    Args:
        path: The file; it is made when it does not exist. In memory only when None.
        problem: Everything the measurements depend on, by name; hashes of files, settings, versions.

    Raises:
        BadInput: The file is something else, is used by another search, or is of another problem.
    """

    def __init__(self, path: Path | None, problem: Mapping[str, str]) -> None:
        self._path = path
        with self._guarded():
            # Nobody waits: a second search in the same folder is a mistake.
            self._base = sqlite3.connect(":memory:" if path is None else path, timeout=0.2, isolation_level=None)
            self._base.execute("pragma locking_mode = exclusive")
            known = self._base.execute("select name from sqlite_master where type = 'table'").fetchall()
            if not known:
                self._base.execute("begin exclusive")
                for statement in filter(str.strip, _TABLES.split(";")):
                    self._base.execute(statement)
                rows = {"schema": str(_SCHEMA), "problem": json.dumps(dict(problem), sort_keys=True)}
                self._base.executemany("insert into about values (?, ?)", rows.items())
                self._base.execute("commit")
            about = dict(self._base.execute("select key, value from about"))
        if about.get("schema") != str(_SCHEMA):
            what = f"{path} was written by another version of roundoff."
            raise BadInput(what, fix="choose another -o, or add --force instead of --resume to begin anew")
        differing = problem_differences(json.loads(about["problem"]), dict(problem))
        if differing:
            what = f"{path} is of another search: {differing}."
            raise BadInput(what, fix="give what was given then, choose another -o, or --force to begin anew")

    def recipe(self, key: str, text: str) -> int:
        """The number of a recipe, from 1 in the order they came; it gets one when it is new."""
        with self._guarded():
            self._base.execute("insert or ignore into recipes (key, recipe) values (?, ?)", (key, text))
            return int(self._base.execute("select number from recipes where key = ?", (key,)).fetchone()[0])

    def chunks(self, key: str) -> tuple[Array, float]:
        """What was measured of a recipe, in order and without gaps, and the seconds it took."""
        with self._guarded():
            rows = self._base.execute(
                "select start, metric, seconds from chunks where key = ? order by start", (key,)
            )
            parts, seconds, size = [], 0.0, 0
            for start, metric, took in rows:
                if start != size:
                    break
                parts.append(np.frombuffer(metric, dtype="<f8"))
                size += parts[-1].size
                seconds += took
        return (np.concatenate(parts) if parts else np.zeros(0)), seconds

    def add_chunk(self, key: str, start: int, values: Array, *, seconds: float) -> None:
        """Remember the metric of some samples of a recipe; it is on the disk when this returns."""
        data = np.asarray(values, dtype="<f8").reshape(-1).tobytes()
        with self._guarded():
            self._base.execute(
                "insert or ignore into chunks (key, start, metric, seconds) values (?, ?, ?, ?)",
                (key, start, data, seconds),
            )

    def fact(self, key: str) -> Any:
        """Something else that was found out; None when it was not."""
        with self._guarded():
            found = self._base.execute("select value from facts where key = ?", (key,)).fetchone()
        return None if found is None else json.loads(found[0])

    def add_fact(self, key: str, value: Any) -> None:
        """Remember something else; it is on the disk when this returns."""
        with self._guarded():
            self._base.execute("insert or ignore into facts values (?, ?)", (key, json.dumps(value)))

    def facts(self, start: str) -> list[Any]:
        """All that was found out under names with this start."""
        with self._guarded():
            rows = self._base.execute("select value from facts where substr(key, 1, ?) = ?", (len(start), start))
            return [json.loads(value) for (value,) in rows]

    def measured(self) -> list[int]:
        """How many values were measured of each model."""
        with self._guarded():
            rows = self._base.execute("select sum(length(metric)) / 8 from chunks group by key")
            return [int(count) for (count,) in rows]

    def close(self) -> None:
        """Close the file."""
        self._base.close()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                what = f"{self._path} is in use by another search."
                raise BadInput(what, fix="wait for it to end, or choose another -o") from error
            raise BadInput(f"{self._path} cannot be written: {error}.", fix="choose another -o") from error
        except sqlite3.DatabaseError as error:
            what = f"{self._path} is not a journal of a search, or is damaged: {error}."
            raise BadInput(
                what, fix="choose another -o, or add --force instead of --resume to begin anew"
            ) from error


def problem_differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What two problems differ in, in words; empty when in nothing."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if not names:
        return ""
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{listed} {'differs' if len(names) == 1 else 'differ'}"


# Recipes in words for people, and as text by which equal ones are known.

_MOST_NAMED = 3
_STEPS = {"explicit_bias": ""}


def recipe_json(recipe: Recipe) -> str:
    """A recipe as JSON; equal recipes give equal texts."""
    return json.dumps(asdict(recipe), sort_keys=True, ensure_ascii=False)


def recipe_key(recipe: Recipe) -> str:
    """A hash of a recipe."""
    return hashlib.sha256(recipe_json(recipe).encode("utf-8", "surrogatepass")).hexdigest()


def describe(recipe: Recipe, base: Recipe) -> str:
    """What a recipe does otherwise than another, in a few words."""
    return "; ".join(filter(None, _parts(recipe, base))) or "plain"


def _parts(recipe: Recipe, base: Recipe) -> Iterator[str]:
    if recipe.method != base.method:
        yield f"ranges by {recipe.method or 'default'}"
    if recipe.weight_method != base.weight_method:
        yield f"weights by {recipe.weight_method or 'default'}"
    if recipe.tensor_methods and recipe.tensor_methods != base.tensor_methods:
        yield f"other ranges for {counted(len(recipe.tensor_methods), 'tensor')}"
    for name in recipe.variations:
        if name not in base.variations:
            yield name.replace("_", " ").replace(":", " at ")
    for step in (*recipe.transforms, *recipe.corrections):
        if step not in (*base.transforms, *base.corrections):
            yield _STEPS.get(step.name, step.name.replace("_", " "))
    # Tensors follow the nodes that read them.
    added = [rule for rule in recipe.rules if rule not in base.rules and rule.kind == "node"]
    for precision in dict.fromkeys(inputs_text(rule.precision) for rule in added):
        yield _nodes([rule for rule in added if inputs_text(rule.precision) == precision], precision)


def _nodes(rules: Sequence[Rule], precision: str) -> str:
    names = [name for rule in rules for name in rule.selector]
    few = ", ".join(names[:_MOST_NAMED]) + (" ..." if len(names) > _MOST_NAMED else "")
    return f"{counted(len(names), 'node')} at {precision}: {few}"
