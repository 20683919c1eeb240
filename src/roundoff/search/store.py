"""What a search has measured, in an SQLite file: appended to, so that a sudden end loses one unit of work."""

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.claims import alone_in, say_removed
from roundoff.core.files import (
    LISTING_NAME,
    add_to_list,
    check_output_directory,
    clear_up,
    foreign_files,
    list_folder,
    output_directory,
    reading,
    remove_listed,
    write_text,
    writing,
)
from roundoff.core.plan import Recipe, inputs_text
from roundoff.core.target import Target
from roundoff.core.tensors import Array
from roundoff.core.untrusted import parse_json
from roundoff.errors import BadInput
from roundoff.messages.catalogue import named
from roundoff.messages.message import Message, english, joined, message, verbatim
from roundoff.messages.numbers import first_of
from roundoff.quantize.calibration.files import save_calibration
from roundoff.quantize.plan_file import PLAN_NAME, PlanOrigin, write_quantized
from roundoff.quantize.recipes import BuiltModel
from roundoff.search.result import Trial

JOURNAL_NAME = "journal.sqlite"
"""The file of a search's folder that remembers what was measured."""

_ANEW = english("choose another -o, or add --force instead of --resume to begin anew")
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
            what = english("{path} was written by another version of roundoff.", path=path)
            raise BadInput(what, fix=_ANEW)
        differing = problem_differences(self._stored(about.get("problem")), dict(problem))
        if differing:
            what = english("{path} is of another search: {differing}.", path=path, differing=differing)
            raise BadInput(
                what, fix=english("give what was given then, choose another -o, or --force to begin anew")
            )

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
        return None if found is None else self._stored(found[0])

    def add_fact(self, key: str, value: Any) -> None:
        """Remember something else; it is on the disk when this returns."""
        with self._guarded():
            self._base.execute("insert or ignore into facts values (?, ?)", (key, json.dumps(value)))

    def facts(self, start: str) -> list[Any]:
        """All that was found out under names with this start."""
        with self._guarded():
            rows = self._base.execute("select value from facts where substr(key, 1, ?) = ?", (len(start), start))
            return [self._stored(value) for (value,) in rows]

    def _stored(self, value: Any) -> Any:
        return parse_json(str(value), self._path, surrogates=True, fix=_ANEW)

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
                what = english("{path} is in use by another search.", path=self._path)
                raise BadInput(what, fix=english("wait for it to end, or choose another -o")) from error
            raise BadInput(
                english("{path} cannot be written: {error}.", path=self._path, error=error),
                fix=english("choose another -o"),
            ) from error
        except BadInput:
            raise
        # Values of other types and lengths than were written here are damage, too.
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            what = english(
                "{path} is not a journal of a search, or is damaged: {error}.", path=self._path, error=error
            )
            raise BadInput(what, fix=_ANEW) from error


def problem_differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What two problems differ in, in words; empty when in nothing."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if not names:
        return ""
    listed = (
        names[0]
        if len(names) == 1
        else english("{names} and {names2}", names=", ".join(names[:-1]), names2=names[-1])
    )
    return f"{listed} {'differs' if len(names) == 1 else 'differ'}"


# Recipes in words for people, and as text by which equal ones are known.

_MOST_NAMED = 3
# A search asks for the texts of all its recipes again and again.
_RECIPES_KNOWN = 1024


@lru_cache(_RECIPES_KNOWN)
def recipe_json(recipe: Recipe) -> str:
    """A recipe as JSON; equal recipes give equal texts."""
    return json.dumps(asdict(recipe), sort_keys=True, ensure_ascii=False)


def recipe_key(recipe: Recipe) -> str:
    """A hash of a recipe."""
    return hashlib.sha256(recipe_json(recipe).encode("utf-8", "surrogatepass")).hexdigest()


def describe(recipe: Recipe, base: Recipe) -> Message:
    """What a recipe does otherwise than another, in a few words."""
    return joined(tuple(_parts(recipe, base)) or (message("search.plain_recipe"),))


def _parts(recipe: Recipe, base: Recipe) -> Iterator[Message]:
    if recipe.method != base.method:
        yield message("search.ranges_by", method=recipe.method or message("search.default_method"))
    if recipe.weight_method != base.weight_method:
        yield message("search.weights_by", method=recipe.weight_method or message("search.default_method"))
    if recipe.tensor_methods and recipe.tensor_methods != base.tensor_methods:
        yield message("search.other_ranges", count=len(recipe.tensor_methods))
    for name in recipe.variations:
        if name not in base.variations:
            yield verbatim(name.replace("_", " ").replace(":", " at "))
    for step in (*recipe.transforms, *recipe.corrections):
        # The room for a bias correction is no change of its own.
        if step not in (*base.transforms, *base.corrections) and step.name != "explicit_bias":
            known = named(f"search.step_{step.name}") is not None
            yield message(f"search.step_{step.name}") if known else verbatim(step.name.replace("_", " "))
    # Tensors follow the nodes that read them.
    added = [rule for rule in recipe.rules if rule not in base.rules and rule.kind == "node"]
    for precision in dict.fromkeys(inputs_text(rule.precision) for rule in added):
        names = [name for rule in added if inputs_text(rule.precision) == precision for name in rule.selector]
        few = first_of(names, _MOST_NAMED)
        yield message("search.nodes_at", count=len(names), precision=precision, names=few)


BEST_NAME = "best"
"""The folder in a search's folder that holds the best model so far."""

_MARKER = "search.txt"
_STATISTICS = "calibration.npz"
# Of files in the way so many are looked for, and so many named.
_MANY, _NAMED = 1000, 3
_ABOUT = "A search of roundoff tune. While it is under way the best model so far is in best/; --resume goes on.\n"


@contextlib.contextmanager
def open_folder(folder: Path, *, resume: bool, force: bool) -> Iterator[bool]:
    """Make the folder of a search, or open one to go on; no other run works in it until the block ends.

    Args:
        folder: The folder.
        resume: Go on with the search it holds, if there is one.
        force: Remove an earlier search first; nothing that we did not write is removed.

    Yields:
        Whether there is a search to go on with.

    Raises:
        BadInput: It holds something else, or a search and nobody said what to do with it; or another run is
            at work there.
    """
    if not folder.is_dir():
        check_output_directory(folder, marker=_MARKER, force=False)
    with writing(folder), alone_in(folder):
        yield _opened(folder, resume=resume, force=force)


def _opened(folder: Path, *, resume: bool, force: bool) -> bool:
    if not any(folder.iterdir()):
        check_output_directory(folder, marker=_MARKER, force=False)
        _begin(folder)
        return False
    if not (folder / _MARKER).is_file():
        raise BadInput(
            english("{folder} is not empty, and holds no search.", folder=folder),
            fix=english("choose another folder with -o"),
        )
    if resume:
        _sweep(folder)
        return (folder / JOURNAL_NAME).is_file()
    if not force:
        what = english("{folder} already holds a search.", folder=folder)
        raise BadInput(
            what, fix=english("add --resume to go on with it, --force to begin anew, or choose another -o")
        )
    _sweep(folder)
    _claim(folder)
    best = folder / BEST_NAME
    with reading(folder, what=english("The output folder")):
        foreign = [name for name in foreign_files(folder, most=_MANY) if name.split("/")[0] != BEST_NAME]
        foreign += foreign_files(best, most=_MANY) if best.is_dir() else []
    if foreign:
        what = english(
            "{folder} holds files that roundoff did not write: {foreign}.",
            folder=folder,
            foreign=", ".join(foreign[:_NAMED]),
        )
        raise BadInput(
            what, fix=english("move them away or choose another -o; --force replaces only earlier results")
        )
    _remove(folder, itself=False)
    _begin(folder)
    return False


def discard_folder(folder: Path) -> None:
    """Remove the folder of a search that came to nothing; one with a model in it stays."""
    if (folder / _MARKER).is_file() and not (folder / BEST_NAME).is_dir():
        _claim(folder)
        _remove(folder, itself=True)


def _remove(folder: Path, *, itself: bool) -> None:
    if (folder / BEST_NAME).is_dir():
        remove_listed(folder / BEST_NAME)
    remove_listed(folder, itself=itself)


def _claim(folder: Path) -> None:
    """Count what a search writes as it goes among what we wrote."""
    names = (JOURNAL_NAME, f"{JOURNAL_NAME}-journal", _STATISTICS)
    for file in (*(folder / name for name in names), *folder.glob("statistics-*.npz")):
        if file.is_file():
            add_to_list(file)


def _begin(folder: Path) -> None:
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / _MARKER, _ABOUT)
    list_folder(folder)


def _sweep(folder: Path) -> None:
    """Remove what a killed run left of the best model that it was about to exchange or to remove."""
    best = folder / BEST_NAME
    clear_up(best)
    if (best / LISTING_NAME).is_file() and not (best / PLAN_NAME).is_file():
        remove_listed(best)
        say_removed(best)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Writes models of a search.

    Attributes:
        folder: The folder of the search.
        prefix: How the models' names start.
        model: The float model, as the user gave it.
        model_sha256: Its hash.
        target: For which chip.
        version: Of roundoff.
    """

    folder: Path
    prefix: str
    model: str
    model_sha256: str
    target: Target
    version: str

    def best_so_far(self, built: BuiltModel, trial: Trial) -> None:
        """Exchange the best model so far, whole."""
        place = self.folder / BEST_NAME
        with output_directory(place, marker=PLAN_NAME, force=True) as staged:
            self._write(staged, built, note=message("search.note_best_so_far", change=trial.change))

    def final(self, built: BuiltModel, texts: Mapping[str, str]) -> tuple[Path, ...]:
        """Write the answer, and remove the best so far.

        Args:
            built: The answer.
            texts: More files, by name.

        Returns:
            What was written.
        """
        names = self._write(self.folder, built, note=None)
        for name, text in texts.items():
            write_text(self.folder / name, text)
        _claim(self.folder)
        if (self.folder / BEST_NAME).is_dir():
            remove_listed(self.folder / BEST_NAME)
        return tuple(self.folder / name for name in (*names, *texts))

    def _write(self, folder: Path, built: BuiltModel, *, note: Message | None) -> tuple[str, ...]:
        """Write models, plan and statistics."""
        origin = PlanOrigin(
            model=self.model,
            model_sha256=self.model_sha256,
            prefix=self.prefix,
            arithmetic=self.target.arithmetic,
            samples=built.calibration.samples,
            version=self.version,
        )
        saved = write_quantized(
            folder,
            built.quantized,
            origin,
            plan=built.plan,
            method=built.recipe.method or self.target.calibration.method,
            notes=(*built.notes, *((note,) if note else ())),
            float_too=bool(built.recipe.transforms),
        )
        save_calibration(built.calibration, folder / _STATISTICS, model_hash=saved.model_sha256)
        return (*dict.fromkeys(saved.files.values()), _STATISTICS, PLAN_NAME)
