"""A suite: models, chips, data, commands and goals from a file, and the units of work that they come to.

A unit is a pure function of what it is given: the content of its files, its settings, and the versions of what
computes. The hash of these is its name everywhere.
"""

import contextlib
import hashlib
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, get_args

from roundoff import __version__
from roundoff.core.files import is_there
from roundoff.core.untrusted import read_toml
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english
from roundoff.studies.run_diff.gate import decibels, metric_budget
from roundoff.suite.fetching import ContentHashes, FetchedFiles, changed, default_cache, is_url

_SCHEMA = 1
# Results may differ in their last bits between versions of these.
_COMPUTING = ("numpy", "onnx", "onnxruntime")

QUANTIZING = (
    "diagnose", "layers", "sensitivity", "accumulate", "partial", "quantize", "tune", "transform", "outliers",
    "samples", "check_calibration",
)  # fmt: skip
"""Commands that take a model and a chip, or a quantized model."""
EVALUATE, BOARD = "evaluate", "board"
"""Units of suites alone: a metric on a range of samples; dumps made on a device, and compared."""
COMMANDS = (*QUANTIZING, "compare", "audit", EVALUATE, BOARD)

_TOP = ("name", "store", "targets", "options", "models", "commands", "goals", "boards")
_OF_MODEL = ("goals", "targets", "commands", "depends", "boards")
_OF_COMMAND = ("models", "targets", "goals", "split", "depends", "name")
_GOALS = ("verdict", "min_output_db", "min_accuracy", "max_regression", "metrics", "floor")
_FILES = (
    "model", "data", "labels", "evaluator", "rules", "quantized", "reference", "candidate", "dumps", "aliases",
    "eval_data", "test_data", "test_labels", "cost", "ranking", "float_model", "subject", "statistics", "held_out",
    "test", "deployed", "tapped",
)  # fmt: skip
_BY_TARGET = ("quantized", "candidate", "dumps", "deployed", "tapped")
"""May be a table by chip."""
_NUMBERS = ("scale", "mean", "std")
# Of the caller, or of a whole run; and one thread unless said otherwise: units then give the same everywhere.
_NOT_GIVEN = frozenset({"progress", "tell", "on_trial", "explore", "output", "resume", "force", "options", "dask"})
_THREADS = {"threads": 1}
_BOARD_OPTIONS = ("push", "run", "pull", "tap_run", "clean", "time_limit", "version")
_EVALUATE_OPTIONS = ("eval_data", "eval_samples", "labels", "evaluator")
_FIX = english("correct it; 'roundoff explain suite.md' shows what it may hold")


@dataclass(frozen=True, slots=True)
class SuiteUnit:
    """A piece of work.

    Attributes:
        label: What it is called: model, chip and command, and the range of samples.
        command: What is done.
        model: Name of the model.
        target: The chip, or the board; empty for none.
        options: What the function is given; files as paths.
        files: The files among them: what each is for, as the suite calls it, and the hash of its content.
        places: Where each of them lies, a path or a URL, and what tells that it did not change, or nothing; no
            part of the key.
        span: First and last sample but one, of an evaluation that is split; None for all.
        key: The hash of all that the result depends on.
        goals: What must be reached; no part of the key.
        board: Only one of these at a time; empty for none.
    """

    label: str
    command: str
    model: str
    target: str
    options: Mapping[str, Any]
    files: tuple[tuple[str, str, str], ...] = ()
    places: tuple[tuple[str, str], ...] = ()
    span: tuple[int, int] | None = None
    key: str = ""
    goals: Mapping[str, Any] = field(default_factory=dict)
    board: str = ""

    @property
    def whole(self) -> str:
        """Its label without the range of samples: parts of one evaluation share it."""
        return self.label.partition("[")[0]


@dataclass(frozen=True, slots=True)
class Suite:
    """What a suite's file says.

    Attributes:
        name: Of the suite.
        file: The file.
        store: Where what is done is kept: a folder or a URL.
        units: All of it, in the order of the file.
        goals: For all units.
    """

    name: str
    file: Path
    store: str
    units: tuple[SuiteUnit, ...]
    goals: Mapping[str, Any]


def load_suite(
    file: Path,
    *,
    store: str | None = None,
    only: Sequence[str] = (),
    fetched: FetchedFiles | None = None,
    hashes: ContentHashes | None = None,
) -> Suite:
    """Read a suite and hash what it names.

    Args:
        file: The TOML file.
        store: Where what is done is kept, if not where the file says.
        only: Patterns of labels; all units when empty.
        fetched: Where files of URLs go.
        hashes: What is known of files already.

    Raises:
        BadInput: It holds what is not known there, names files that are not there, or comes to nothing.
    """
    content = read_toml(file, what=english("The suite"), fix=_FIX)
    _known(file, content, _TOP)
    reader = _SuiteReader(file, content, fetched or default_cache(), hashes or ContentHashes())
    units = tuple(_chosen(tuple(reader.units()), only, file))
    given = content.get("store", "store") if store is None else store
    where = str(given) if is_url(str(given)) or store is not None else str(file.parent / str(given))
    name = content.get("name", file.stem)
    if not isinstance(name, str) or not name or set(name) & set('/\\:*?"<>|') or name.startswith("."):
        what = english("{file}: {name!r} is no name of a suite.", file=file, name=name)
        raise BadInput(what, fix=english("use letters, digits, dots and dashes"))
    return Suite(name, file, where, units, _goals(file, content.get("goals", {}), {}))


def _chosen(units: Sequence[SuiteUnit], only: Sequence[str], file: Path) -> Iterator[SuiteUnit]:
    found = [each for each in units if not only or any(fnmatchcase(each.label, pattern) for pattern in only)]
    if not found:
        labels = ", ".join(each.label for each in units[:4])
        what = english("{file} comes to no unit of work.", file=file)
        raise BadInput(what, fix=english("say --only as one of: {labels}", labels=labels) if units else _FIX)
    yield from found


def _known(where: object, given: Any, names: Sequence[str]) -> None:
    if not isinstance(given, dict):
        raise BadInput(english("{where} is no table.", where=where), fix=_FIX)
    for key in given:
        if key not in names:
            raise BadInput(english("{where} has an entry {key!r}.", where=where, key=key), fix=nearest(key, names))


def _table_fix(part: str, given: Any) -> str:
    """How a part of the file is written, with the first name that was given for it."""
    if part == "options":
        return english("write a table: {table}", table="[options]")
    first = given[0] if isinstance(given, list) and given else given
    known = isinstance(first, str) and first.isidentifier()
    name = first if known else "quantize" if part == "commands" else "NAME"
    return english("write a table for each: {table}", table=f"[{part}.{name}]")


def _goals(where: object, *given: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in given:
        _known(english("{where}: goals", where=where), each, _GOALS)
        found |= each
    for name in ("min_output_db", "min_accuracy"):
        if not isinstance(found.get(name, 0.0), int | float):
            what = english("{where}: goals: {name} is {value!r}.", where=where, name=name, value=found[name])
            raise BadInput(what, fix=english("give a number"))
    for name in ("max_regression", "floor"):
        if name in found:
            _decibels(where, name, found[name])
    metrics = found.get("metrics", [])
    if not isinstance(metrics, list) or not all(isinstance(each, str) for each in metrics):
        what = english("{where}: goals: {name} is {value!r}.", where=where, name="metrics", value=metrics)
        raise BadInput(what, fix=english('write a list, as ["top-1 accuracy: -0.5%"]'))
    for each in metrics:
        metric_budget(each)
    if not isinstance(found.get("verdict", True), bool):
        what = english("{where}: goals: {name} is {value!r}.", where=where, name="verdict", value=found["verdict"])
        raise BadInput(what, fix=english("give true or false"))
    return found


def _decibels(where: object, name: str, given: Any) -> None:
    """See that they can be read."""
    try:
        decibels(str(given))
    except ValueError as error:
        what = english("{where}: goals: {name} is {value!r}.", where=where, name=name, value=given)
        raise BadInput(what, fix=english("write them as 1 or 0.5dB")) from error


@cache
def _keywords(command: str) -> frozenset[str]:
    """What the function of a command takes."""
    if command == BOARD:
        return frozenset(
            {"model", "deployed", "tapped", "data", "samples", "threads", "max_memory", *_BOARD_OPTIONS}
        )
    name = "layers" if command == EVALUATE else command
    api = import_module("roundoff.api")
    function = inspect.unwrap(getattr(api, name))
    names = set(inspect.signature(function).parameters) - _NOT_GIVEN
    for each in get_args(function.__annotations__.get("options")):
        names |= set(each.__annotations__)
    names |= {"fix"} if command == "diagnose" else set()
    names = (names - {"method", "mode", "arithmetic"}) | set(_EVALUATE_OPTIONS) if command == EVALUATE else names
    return frozenset(names - _NOT_GIVEN)


class _SuiteReader:
    """Makes units of a suite's file."""

    def __init__(
        self, file: Path, content: Mapping[str, Any], fetched: FetchedFiles, hashes: ContentHashes
    ) -> None:
        self._file, self._content, self._fetched, self._hashes = file, content, fetched, hashes
        self._targets = self._names("targets", content.get("targets", []))
        self._general = content.get("options", {})
        self._digests: dict[str, str] = {}
        self._versions = {name: metadata.version(name) for name in _COMPUTING} | {"roundoff": __version__}
        self._chips: dict[str, str] = {}

    def _names(self, where: str, given: Any) -> list[str]:
        if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
            what = english("{file}: {where} is no list of names.", file=self._file, where=where)
            raise BadInput(what, fix=_FIX)
        return given

    def units(self) -> Iterator[SuiteUnit]:
        models, commands = self._content.get("models", {}), self._content.get("commands", {})
        boards = self._content.get("boards", {})
        parts = {"models": models, "commands": commands, "boards": boards, "options": self._general}
        for part, given in parts.items():
            if not isinstance(given, dict):
                what = english(
                    "{file}: {part} is {given!r}, which is no table.", file=self._file, part=part, given=given
                )
                raise BadInput(what, fix=_table_fix(part, given))
        for name, asked in commands.items():
            _known(f"{self._file}: commands.{name}", asked, asked)  # a table, of whatever it holds
            kind = str(asked.get("name", name)).replace("-", "_")
            if kind not in COMMANDS or kind == BOARD:
                known = [each.replace("_", "-") for each in COMMANDS if each != BOARD]
                what = english("{file} has a command {name!r}.", file=self._file, name=kind)
                raise BadInput(what, fix=nearest(kind.replace("_", "-"), known))
        self._check_boards(models, boards)
        seen: set[str] = set()
        for model, given in models.items():
            self._check_model(model, given, commands, boards)
            for unit in self._of_model(model, given, commands, boards):
                if unit.label in seen:
                    what = english("{file} comes to {label!r} twice.", file=self._file, label=unit.label)
                    raise BadInput(what, fix=english("give one of them another name"))
                seen.add(unit.label)
                yield unit

    def _check_boards(self, models: Mapping[str, Any], boards: Mapping[str, Any]) -> None:
        from roundoff.suite.board import BoardRunner

        for board, template in boards.items():
            _known(f"{self._file}: boards.{board}", template, _BOARD_OPTIONS)
            BoardRunner(board, template, unique="")
        if boards and not any(isinstance(each, dict) and "deployed" in each for each in models.values()):
            what = english("{file} has boards, and no model that runs there.", file=self._file)
            raise BadInput(what, fix=english("write {needed} = FILE for the model", needed="deployed"))

    def _check_model(self, name: str, given: Any, commands: Mapping[str, Any], boards: Mapping[str, Any]) -> None:
        kinds = {str(each.get("name", key)).replace("-", "_") for key, each in commands.items()}
        kinds |= {BOARD} if boards else set()
        known = {keyword for kind in kinds for keyword in _keywords(kind)}
        _known(f"{self._file}: models.{name}", given, (*_OF_MODEL, *sorted(known)))
        for key in self._general:
            if key not in known:
                what = english("{where} has an entry {key!r}.", where=f"{self._file}: options", key=key)
                raise BadInput(what, fix=nearest(key, sorted(known)))

    def _of_model(
        self, model: str, given: Mapping[str, Any], commands: Mapping[str, Any], boards: Mapping[str, Any]
    ) -> Iterator[SuiteUnit]:
        wanted = self._names(f"models.{model}.commands", given.get("commands", ["*"]))
        for name, asked in commands.items():
            kind = str(asked.get("name", name)).replace("-", "_")
            _known(f"{self._file}: commands.{name}", asked, (*_OF_COMMAND, *sorted(_keywords(kind))))
            here = any(fnmatchcase(model, each) for each in self._names("models", asked.get("models", ["*"])))
            if here and any(fnmatchcase(name, each) for each in wanted):
                yield from self._of_command(model, given, name, kind, asked)
        if "deployed" in given:
            for board, template in boards.items():
                if any(fnmatchcase(board, each) for each in self._names("boards", given.get("boards", ["*"]))):
                    yield self._unit(model, given, BOARD, board, {**template}, label=BOARD, by=board)

    def _of_command(
        self, model: str, given: Mapping[str, Any], name: str, kind: str, asked: Mapping[str, Any]
    ) -> Iterator[SuiteUnit]:
        for target in self._targets_of(given, kind, asked):
            unit = self._unit(model, given, kind, target, asked, label=name, by=target)
            split = asked.get("split")
            if kind != EVALUATE:
                if split is not None:
                    what = english("{file}: only 'evaluate' is split into ranges of samples.", file=self._file)
                    raise BadInput(what, fix=english("leave 'split' out"))
                yield unit
                continue
            if split is not None and (not isinstance(split, int) or isinstance(split, bool) or split < 1):
                what = english("{file}: split is {split!r}.", file=self._file, split=split)
                raise BadInput(what, fix=english("give the number of samples of a unit"))
            yield from self._ranges(unit, split)

    def _targets_of(self, given: Mapping[str, Any], kind: str, asked: Mapping[str, Any]) -> Sequence[str]:
        by_target = [given[name] for name in _BY_TARGET if isinstance(given.get(name), dict)]
        if kind in ("compare", "audit") or isinstance(given.get("quantized"), str):
            return list(by_target[0]) if by_target else [""]
        if "target" in asked or "target" in given or "target" in self._general:
            return [str(asked.get("target", given.get("target", self._general.get("target"))))]
        found = self._names("targets", asked.get("targets", given.get("targets", self._targets)))
        if not found and by_target:
            return list(by_target[0])
        if not found:
            what = english("{file} names no chip for {command!r}.", file=self._file, command=kind)
            raise BadInput(what, fix=english('write targets = ["generic-int8"], or quantized = FILE of a model'))
        return found

    def _unit(  # noqa: PLR0913 - a cell of the matrix
        self,
        model: str,
        given: Mapping[str, Any],
        kind: str,
        target: str,
        asked: Mapping[str, Any],
        *,
        label: str,
        by: str,
    ) -> SuiteUnit:
        known = _keywords(kind)
        options: dict[str, Any] = {**_THREADS, **self._general}
        options |= {key: value for key, value in given.items() if key not in _OF_MODEL}
        options |= {key: value for key, value in asked.items() if key not in _OF_COMMAND}
        for name in _BY_TARGET:
            if isinstance(options.get(name), dict):
                options[name] = options[name].get(by)
        if kind == "audit":
            options["subject"] = options.get("subject", options.get("quantized"))
            options["float_model"] = options.get("float_model", options.get("model"))
        elif target and kind not in ("compare", BOARD) and options.get("quantized") is None:
            options["target"] = target
        options = {key: value for key, value in options.items() if key in known and value is not None}
        if options.get("quantized") is not None:
            options.pop("target", None)
        options = {key: self._value(key, value) for key, value in options.items()}
        named = [*self._named(options)]
        named += [("depends", self._path(text)) for text in (*given.get("depends", []), *asked.get("depends", []))]
        short = Path(target).stem if target.endswith(".toml") else target
        goals = _goals(self._file, self._content.get("goals", {}), given.get("goals", {}), asked.get("goals", {}))
        unit = SuiteUnit(
            "/".join(filter(None, (model, short, label))),
            kind,
            model,
            short,
            options,
            tuple((role, self._shown(path), self._digest(path)) for role, path in named),
            tuple((path, self._mark(path)) for _, path in named),
            goals=goals,
            board=target if kind == BOARD else "",
        )
        return self._keyed(unit)

    def _keyed(self, unit: SuiteUnit) -> SuiteUnit:
        """The unit with its hash."""
        plain = {key: value for key, value in unit.options.items() if key not in _FILES}
        if "target" in plain:
            name = str(plain["target"])
            self._chips[name] = plain["target"] = self._chips.get(name) or _target_hash(name)
        content = {
            "schema": _SCHEMA,
            "command": unit.command,
            "options": plain,
            "files": [(role, digest) for role, _, digest in unit.files],
            "span": unit.span,
            "board": unit.board,
            "versions": self._versions,
        }
        text = json.dumps(content, sort_keys=True, default=str)
        return replace(unit, key=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())

    def _ranges(self, unit: SuiteUnit, split: int | None) -> Iterator[SuiteUnit]:
        from roundoff.suite.evaluation import count_samples

        with placed(unit, self._fetched, self._hashes) as there:
            total = count_samples(there)
        size = total if split is None else split
        for start in range(0, total, size):
            stop = min(total, start + size)
            label = unit.label if size >= total else f"{unit.label}[{start}:{stop}]"
            yield self._keyed(replace(unit, label=label, span=(start, stop)))

    # Values and files.

    def _value(self, key: str, value: Any) -> Any:
        if key in _NUMBERS:
            return [_number(each) for each in value] if isinstance(value, list) else _number(value)
        if key == "target" and isinstance(value, str) and value.endswith(".toml"):
            return str(self._path(value))
        if key not in _FILES or (key == "evaluator" and not is_there(self._file.parent / str(value))):
            return value
        if isinstance(value, dict):
            return {name: self._path(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._path(each) for each in value]
        return self._path(value)

    def _path(self, text: Any) -> str:
        if not isinstance(text, str):
            raise BadInput(english("{file}: {text!r} is no path.", file=self._file, text=text), fix=_FIX)
        if is_url(text):
            return text
        path = self._file.parent / text
        if not is_there(path) and "," not in path.name:
            what = english("{file} names {text}, which does not exist.", file=self._file, text=text)
            raise BadInput(what, fix=english("paths begin at the folder of the suite's file"))
        return str(path)

    def _named(self, options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """The files among options, and what each is for."""
        for key, value in options.items():
            if key not in _FILES:
                continue
            several = value.items() if isinstance(value, dict) else [("", value)]
            if isinstance(value, list):
                several = [("", each) for each in value]
            yield from ((f"{key} {name}" if name else key, str(path)) for name, path in several)

    def _digest(self, path: str) -> str:
        """The hash of what a path or a URL stands for."""
        if is_url(path):
            if path not in self._digests:
                self._digests[path] = self._fetched.digest(path)
            return self._digests[path]
        # Else it is the name of an evaluator that ships.
        return self._hashes.of(Path(path)) if is_there(Path(path)) or "," in path else path

    def _mark(self, path: str) -> str:
        there = not is_url(path) and (is_there(Path(path)) or "," in path)
        return self._hashes.mark(Path(path)) if there else ""

    def _shown(self, path: str) -> str:
        """A path as the suite's file calls it."""
        if is_url(path):
            return path
        try:
            return Path(path).relative_to(self._file.parent).as_posix()
        except ValueError:
            return str(path)


@contextlib.contextmanager
def placed(unit: SuiteUnit, fetched: FetchedFiles, hashes: ContentHashes) -> Iterator[SuiteUnit]:
    """A unit whose files lie on this machine, and hold what they held when the suite was read.

    Args:
        unit: Which.
        fetched: Where files of URLs go.
        hashes: What is known of files.

    Raises:
        BadInput: A file changed, or cannot be fetched.
    """
    with contextlib.ExitStack() as held:
        here: dict[str, str] = {}
        for (_, _, digest), (path, _) in zip(unit.files, unit.places, strict=True):
            if is_url(path):
                here[path] = str(held.enter_context(fetched.held(path, digest)))
        check_unchanged(unit, hashes)
        options = {key: _moved(value, here) if key in _FILES else value for key, value in unit.options.items()}
        places = tuple((here.get(path, path), mark) for path, mark in unit.places)
        yield replace(unit, options=options, places=places) if here else unit


def check_unchanged(unit: SuiteUnit, hashes: ContentHashes) -> None:
    """See that files of this machine hold what they held when the suite was read.

    Raises:
        BadInput: One changed, or cannot be read any more.
    """
    for (_, _, digest), (path, mark) in zip(unit.files, unit.places, strict=True):
        if mark and hashes.mark(Path(path)) != mark and hashes.of(Path(path)) != digest:
            raise changed(path)


def _moved(value: Any, here: Mapping[str, str]) -> Any:
    """Paths in place of URLs."""
    if isinstance(value, dict):
        return {key: _moved(each, here) for key, each in value.items()}
    return [_moved(each, here) for each in value] if isinstance(value, list) else here.get(value, value)


def _number(value: Any) -> Any:
    """A number, which may be written as a quotient: ``1/255``."""
    try:
        return float(Fraction(value)) if isinstance(value, str) else value
    except (ValueError, ZeroDivisionError) as error:
        raise BadInput(
            english("{value!r} is no number.", value=value), fix=english("write it as in 0.5 or '1/255'")
        ) from error


def _target_hash(name: str) -> str:
    """A chip by its table, whichever file it comes from."""
    from roundoff.quantize.targets.files import load_target

    # Sets have another order in every process.
    text = json.dumps(asdict(load_target(name)), sort_keys=True, default=sorted)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
